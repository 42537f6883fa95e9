"""Examples that share their tokens, as one batch of attention matrices: [example * head, query, key].

Either a kernel's queries and keys, from which blocks of rows are computed, or the weights and
logits that the model computed itself. Rows and columns of padding are cut away first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import torch

from leadline.anatomy import SeenAttention
from leadline.numerics.spectra.attention_rows import AttentionRows, Softmax

__all__ = ["AT_ONCE", "HIDDEN", "MatrixGroup", "ModelPattern", "Sight", "SoftmaxBlocks"]

Tensor = torch.Tensor
HIDDEN = 1000.0
"""A mask that lowers a logit by so much hides its key: its weight is zero in any precision.

Minus 10,000 before the division by the square root of 64 features is 1,250, and it still hides.
"""
EMPTY = -9999.0
"""A row whose largest logit is at or below this sees nothing: GPT-1 hides by -10,000."""
AT_ONCE = 1 << 23
"""Entries of the matrices that stand in memory together."""
_BOTTOMLESS = -1e30
"""Nothing but a mask is below this: -inf, or the lowest number of float32 or bfloat16."""
_ROUNDINGS = 4.0
"""What is left of logits without their products is right to so many eps of both."""


class SoftmaxBlocks(Protocol):
    """Matrices that come as blocks of rows of a softmax."""

    def softmaxes(
        self, rows: int | None = None, *, dtype: torch.dtype = ..., lent: bool = ...
    ) -> Iterator[Softmax]: ...


@dataclass(frozen=True)
class ModelPattern:
    """Weights and logits that the model computed itself: [matrix, query, key]."""

    logits: Tensor
    weights: Tensor

    def softmaxes(
        self, rows: int | None = None, *, dtype: torch.dtype = torch.float32, lent: bool = False
    ) -> Iterator[Softmax]:
        step = rows or max(1, AT_ONCE // (4 * max(1, self.weights[:, 0].numel())))
        for first in range(0, self.weights.shape[1], step):
            here = slice(first, first + step)
            logits, weights = self.logits[:, here].to(dtype), self.weights[:, here].to(dtype)
            top = logits.amax(-1, keepdim=True)
            shifted = logits - torch.where(top == -torch.inf, 0, top)
            # The largest weight belongs to a shifted logit of zero.
            total = 1 / weights.amax(-1, keepdim=True).clamp_min(torch.finfo(dtype).tiny)
            yield Softmax(first, top, shifted, total, weights)


@dataclass(frozen=True)
class Sight:
    """What the queries of a block of rows may see.

    `visible` is [matrix or 1, query, key], `empty` [matrix, query] where no key may be seen.
    `doubtful` is whether some key was taken for hidden by the size of its logit alone.
    """

    visible: Tensor
    empty: Tensor
    doubtful: bool = False


class MatrixGroup:
    """Examples that share their tokens: [example * head, query, key] matrices."""

    def __init__(
        self,
        attention: SeenAttention,
        members: list[int],
        rows: Tensor | None,
        columns: Tensor | None,
    ) -> None:
        self.attention, self.members = attention, members
        self.heads = attention.heads
        at = torch.tensor(members)

        def chosen(tensor: Tensor, *, query: bool, key: bool) -> Tensor:
            taken = tensor[at.to(tensor.device)] if len(members) < len(tensor) else tensor
            if query and rows is not None:
                taken = taken.index_select(2, rows.to(taken.device))
            if key and columns is not None:
                taken = taken.index_select(3 if query else 2, columns.to(taken.device))
            return taken

        self.value = self.output = None
        if attention.output.ndim == 4 and attention.output.shape[1] == self.heads:
            self.output = chosen(attention.output, query=True, key=False)
            value = attention.value
            if value.ndim == 4 and self.heads % value.shape[1] == 0:
                self.value = _repeated(chosen(value, query=False, key=True), self.heads)
        self.query = self.key = self.mask = None
        if attention.query is not None and attention.key is not None:
            self.query = chosen(attention.query, query=True, key=False)
            self.key = _repeated(chosen(attention.key, query=False, key=True), self.heads)
        if attention.weights is not None:
            assert attention.logits is not None
            weights = chosen(attention.weights, query=True, key=True)
            logits = chosen(attention.logits, query=True, key=True)
            self.queries, self.keys = weights.shape[2:]
            self.matrices: SoftmaxBlocks = ModelPattern(logits.flatten(0, 1), weights.flatten(0, 1))
        else:
            assert self.query is not None and self.key is not None
            self.queries, self.keys = self.query.shape[2], self.key.shape[2]
            self.mask = self._shared_mask(rows, columns)
            assert attention.scaling is not None
            self.matrices = AttentionRows(
                self.query.flatten(0, 1),
                self.key.flatten(0, 1),
                scaling=attention.scaling,
                causal=attention.causal and self.mask is None,
                mask=self.mask,
            )

    def _shared_mask(self, rows: Tensor | None, columns: Tensor | None) -> Tensor | None:
        """The mask of the kernel, cut to the real tokens: [1 or example * head, query, key]."""
        assert self.query is not None and self.key is not None
        device = self.query.device
        mask = self.attention.mask
        cut = rows is not None or columns is not None
        assert self.attention.query is not None and self.attention.key is not None
        full = self.attention.query.shape[2], self.attention.key.shape[2]
        if self.attention.causal and (cut or full[0] != full[1]):
            # The kernel's own triangle, before padding is cut away; it begins at the first key.
            mask = torch.ones(full, dtype=torch.bool, device=device).tril()
        if mask is None:
            return None
        while mask.ndim < 4:
            mask = mask.unsqueeze(0)
        if mask.shape[0] > 1:
            mask = mask[torch.tensor(self.members, device=device)]
        if rows is not None and mask.shape[2] > 1:
            mask = mask.index_select(2, rows.to(device))
        if columns is not None and mask.shape[3] > 1:
            mask = mask.index_select(3, columns.to(device))
        if mask.dtype != torch.bool:
            top = mask.amax(-1, keepdim=True)
            mask = torch.where((mask > top - HIDDEN) & (top > EMPTY), mask, float("-inf"))
        if mask.shape[0] == mask.shape[1] == 1:
            return mask[0]
        return mask.expand(len(self.members), self.heads, *mask.shape[2:]).flatten(0, 1)

    @property
    def device(self) -> torch.device:
        """Where the matrices stand."""
        return self.attention.output.device

    @property
    def ordered(self) -> bool:
        """Whether query i is known to see the keys up to i and no others."""
        return isinstance(self.matrices, AttentionRows) and self.matrices.causal

    @property
    def one_mask(self) -> bool:
        """Whether all matrices hide the same entries, so that one of them tells."""
        if isinstance(self.matrices, ModelPattern):
            return False
        return self.mask is None or self.mask.shape[0] == 1

    def sight(self, block: Softmax) -> Sight:
        """Which keys may be seen: not how small their logits are, but what the mask says.

        A kernel's mask is known. Of logits that the model masked itself, the mask is what is left
        of them without the products of queries and keys. Where these were not seen, a logit by
        `HIDDEN` below the largest of its row is taken for hidden.
        """
        shifted, top = block.shifted, block.top[..., 0]
        if not isinstance(self.matrices, ModelPattern):
            logits = shifted[:1] if self.one_mask else shifted
            return Sight(logits > -torch.inf, top == -torch.inf)
        visible, empty = shifted > -HIDDEN, top <= EMPTY
        unsure = (shifted > _BOTTOMLESS) & ~visible
        if not bool(unsure.any() | (empty & (top > _BOTTOMLESS)).any()):
            return Sight(visible, empty)
        added = self._added(block)
        if added is None:
            # One number in the place of all hidden logits is a mask's; several may be logits.
            rows = slice(block.first, block.first + shifted.shape[1])
            values = self.matrices.logits[:, rows][unsure]
            several = values.numel() > 0 and float(values.amax()) > float(values.amin())
            return Sight(visible, empty, doubtful=several)
        mask, slack = added
        highest = mask.amax(-1, keepdim=True)
        hidden = (mask <= highest - HIDDEN - slack) | (mask <= EMPTY - slack)
        visible = (visible & ~empty.unsqueeze(-1)) | ~hidden
        return Sight(visible, ~visible.any(-1))

    def _added(self, block: Softmax) -> tuple[Tensor, Tensor] | None:
        """Logits less products of queries and keys, and how far that may be off by rounding."""
        scaling, cap = self.attention.scaling, self.attention.soft_cap
        if self.query is None or self.key is None or scaling is None:
            return None
        assert isinstance(self.matrices, ModelPattern)
        dtype = block.shifted.dtype
        here = slice(block.first, block.first + block.shifted.shape[1])
        query = self.query.flatten(0, 1)[:, here].to(dtype)
        key = self.key.flatten(0, 1).to(dtype)
        if query.shape[0] != block.shifted.shape[0] or key.shape[:2] != block.shifted.shape[::2]:
            return None
        products = (query * scaling) @ key.mT
        if cap is not None:
            products = cap * (products / cap).tanh()
        logits = self.matrices.logits[:, here].to(dtype)
        eps = torch.finfo(self.matrices.logits.dtype).eps
        slack = _ROUNDINGS * eps * products.abs().amax(-1, keepdim=True)
        return logits - products, slack

    def dense(self) -> Tensor:
        """[example * head, query, key]."""
        if isinstance(self.matrices, ModelPattern):
            return self.matrices.weights.to(self.dtype)
        assert isinstance(self.matrices, AttentionRows)
        return self.matrices.dense(dtype=self.dtype)

    @property
    def dtype(self) -> torch.dtype:
        """What statistics are computed in: float64 for a float64 model, float32 otherwise."""
        return torch.float64 if self.attention.output.dtype == torch.float64 else torch.float32

    def bias_range(self) -> Tensor:
        """The largest range, over a row, of an additive mask where it does not hide."""
        if self.mask is None or self.mask.dtype == torch.bool:
            return torch.zeros((), device=self.device)
        shown = torch.isfinite(self.mask)
        high = self.mask.masked_fill(~shown, float("-inf")).amax(-1)
        low = self.mask.masked_fill(~shown, float("inf")).amin(-1)
        return (high - low).clamp_min(0).nan_to_num(0.0, 0.0, 0.0).max()


def _repeated(tensor: Tensor, heads: int) -> Tensor:
    """Keys and values of grouped queries, once for every head."""
    groups = tensor.shape[1]
    return tensor if groups == heads else tensor.repeat_interleave(heads // groups, 1)
