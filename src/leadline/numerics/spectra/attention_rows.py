"""The attention matrix of one example, a block of rows at a time.

    P_ij = exp(l_ij) / (sum_k exp(l_ik) + exp(sink)),   l = cap tanh(scaling q k' / cap) + mask

Nothing of size m x n is kept. A block holds about `BLOCK` weights; causal blocks stop at the last
key that one of their queries may see, so that the upper half is never computed. Each row's maximum
and sum are kept after the first pass in a precision: later passes compute only exponentials.

With m queries and n keys a causal query i sees the keys up to i + n - m: the last query is the
last token, as with a cache. A query that may look nowhere has a row of zeros, and logits of -inf.
Grouped queries: heads / groups neighbouring heads share one key head.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch

from leadline.errors import InputError

__all__ = ["BLOCK", "AttentionRows", "Softmax"]

Tensor = torch.Tensor

BLOCK = 1 << 19
"""Weights per block: 2 MB in float32, which stays in the cache of a core."""


class Softmax(NamedTuple):
    """A block of rows: l - top, the sum of exp(l - top), and the weights; top is -inf without keys."""

    first: int
    top: Tensor
    """[heads, b, 1], the largest logit of each row."""
    shifted: Tensor
    total: Tensor
    weights: Tensor


class AttentionRows:
    """Rows of softmax(scaling q k' + mask) for one example.

    Query [heads, m, d], key [groups, n, d]. `mask` is boolean (True: may look) or added to the
    logits, and broadcasts to [heads, m, n]. `soft_cap` c makes a logit c tanh(l / c) before the
    mask. `sinks` [heads] is one more logit per row whose weight is dropped. `keep_queries` [m] and
    `keep_keys` [n] (boolean or positions) leave padding out: rows and columns vanish, while the
    causal order and the mask still count the positions as they were.
    """

    def __init__(
        self,
        query: Tensor,
        key: Tensor,
        *,
        scaling: float,
        causal: bool = False,
        mask: Tensor | None = None,
        soft_cap: float | None = None,
        sinks: Tensor | None = None,
        keep_queries: Tensor | None = None,
        keep_keys: Tensor | None = None,
    ) -> None:
        _check(query, key, mask)
        heads, m, _ = query.shape
        n = key.shape[1]
        device = query.device
        self.query_positions = _positions(keep_queries, m, device)
        self.key_positions = _positions(keep_keys, n, device)
        self.query = query if keep_queries is None else query[:, self.query_positions]
        self.key = key if keep_keys is None else key[:, self.key_positions]
        self.scaling = float(scaling)
        self.causal = causal
        self.soft_cap = soft_cap
        self.sinks = sinks
        self.mask = None if mask is None else self._kept_mask(mask, heads, m, n)
        # The last key position that each kept query may see, and how many kept keys that is.
        last = self.query_positions + (n - m)
        if keep_queries is None and keep_keys is None:
            # Known without asking the device.
            self._visible_keys = [min(n, max(0, i + 1 + n - m)) for i in range(m)]
        else:
            self._visible_keys = torch.searchsorted(self.key_positions, last, right=True).tolist()
        self._last = last
        self._cast: dict[torch.dtype, tuple[Tensor, Tensor]] = {}
        self._sums: dict[torch.dtype, tuple[Tensor, Tensor]] = {}

    @property
    def shape(self) -> tuple[int, int, int]:
        """(heads, m, n) without what was left out."""
        return self.query.shape[0], self.query.shape[1], self.key.shape[1]

    @property
    def stochastic(self) -> bool:
        """Whether rows sum to one by construction (rows without any key excepted)."""
        return self.sinks is None

    def head(self, number: int) -> AttentionRows:
        """The rows of one head alone, counted from 0."""
        heads, groups = self.query.shape[0], self.key.shape[0]
        group = number // (heads // groups)
        one = object.__new__(AttentionRows)
        one.__dict__.update(self.__dict__)
        one.query = self.query[number : number + 1]
        one.key = self.key[group : group + 1]
        if self.sinks is not None:
            one.sinks = self.sinks[number : number + 1]
        if self.mask is not None and self.mask.shape[0] > 1:
            one.mask = self.mask[number : number + 1]
        one._cast, one._sums = {}, {}
        return one

    def softmaxes(
        self, rows: int | None = None, *, dtype: torch.dtype = torch.float32, lent: bool = False
    ) -> Iterator[Softmax]:
        """What a softmax computes on the way: blocks [heads, b, n'], n' < n where later keys are hidden.

        `lent`: the shifted logits of all blocks stand in one memory, one after the other.
        """
        hidden_rows = self.causal and 0 in self._visible_keys
        for first, logits in self._logits(rows, dtype, lent=lent):
            top = logits.amax(-1, keepdim=True)
            shift = torch.where(top == -torch.inf, 0, top)
            shifted = logits.sub_(shift)
            if self.sinks is None and self.mask is None and not hidden_rows:
                # All in one operation; the largest weight belongs to a shifted logit of zero.
                weights = shifted.softmax(-1)
                yield Softmax(first, top, shifted, 1 / weights.amax(-1, keepdim=True), weights)
                continue
            weights = shifted.exp()
            total = weights.sum(-1, keepdim=True)
            if self.sinks is not None:
                total = total + (self.sinks.to(dtype)[:, None, None] - shift).exp()
            # A row without keys stays a row of zeros.
            total = torch.where(total == 0, 1, total)
            yield Softmax(first, top, shifted, total, weights.div_(total))

    def weights(
        self, rows: int | None = None, *, dtype: torch.dtype = torch.float32
    ) -> Iterator[tuple[int, Tensor]]:
        """(first row, weights): cheaper than `softmaxes` where the logits are not needed."""
        for first, logits in self._logits(rows, dtype):
            weights, total = self._exponentials(first, logits)
            yield first, weights.div_(total)

    def dense(self, *, dtype: torch.dtype = torch.float32) -> Tensor:
        """[heads, m, n]: the matrix itself, for short sequences."""
        out = torch.zeros(self.shape, dtype=dtype, device=self.query.device)
        for first, weights in self.weights(dtype=dtype):
            out[:, first : first + weights.shape[1], : weights.shape[2]] = weights
        return out

    def gram(self, x: Tensor) -> Tensor:
        """P'(P x) [heads, n, columns] for x [heads, n, columns]: one pass for both products."""
        return self.gram_rows(x.mT).mT

    def gram_rows(self, x: Tensor) -> Tensor:
        """P'(P x) for vectors as rows [heads, columns, n]."""
        out = torch.zeros(x.shape, dtype=x.dtype, device=x.device)
        for first, logits in self._logits(None, x.dtype):
            n = logits.shape[2]
            # E = diag(total) P: the sums divide the few columns instead of the block.
            weights, total = self._exponentials(first, logits)
            image = torch.bmm(x[..., :n], weights.mT).div_(total.mT.square())
            out[..., :n] += torch.bmm(image, weights)
        return out

    def rounding(self) -> Tensor:
        """[heads]: how far, relatively, a weight computed in float64 can be from the true one.

        Weights too small for float64 are zero, which no singular value feels.
        A logit is right to (d + 4) eps |q| |k| scaling (and the mask's addition), the softmax
        doubles that and adds the n + 8 roundings of its sum and its exponentials.
        """
        heads, _, n = self.shape
        query, key = self.query.double(), self.key.double()
        longest = query.square().sum(-1).amax(-1).sqrt()
        widest = key.square().sum(-1).amax(-1).sqrt().repeat_interleave(heads // len(key))
        logit = abs(self.scaling) * longest * widest
        if self.mask is not None and self.mask.dtype != torch.bool:
            # What hides a key (-inf or the lowest number) gives a weight of exactly zero.
            size = self.mask.double().abs()
            logit = logit + torch.where(size < 1e4, size, 0).amax()
        eps = torch.finfo(torch.float64).eps
        return (2 * (query.shape[-1] + 4) * logit + n + 8) * eps

    def _logits(
        self, rows: int | None, dtype: torch.dtype, *, lent: bool = False
    ) -> Iterator[tuple[int, Tensor]]:
        heads, m, n = self.shape
        groups = self.key.shape[0]
        if rows is None:
            rows = max(1, min(m, BLOCK // max(1, heads * n)))
        query, key = self._in(dtype)
        memory = query.new_empty(heads * min(rows, m) * n if lent else 0)
        for first in range(0, m, rows):
            last = min(m, first + rows)
            width = max(1, self._visible_keys[last - 1]) if self.causal else n
            # Heads of one group are one tall matrix: one product per key head.
            tall = query[:, first:last].reshape(groups, -1, query.shape[-1])
            shape = (*tall.shape[:2], width)
            out = memory[: math.prod(shape)].view(shape) if lent else None
            logits = torch.bmm(tall, key[:, :width].mT, out=out).view(heads, last - first, width)
            if self.soft_cap is not None:
                logits.div_(self.soft_cap).tanh_().mul_(self.soft_cap)
            self._hide(logits, first, last)
            yield first, logits

    def _hide(self, logits: Tensor, first: int, last: int) -> None:
        """Add the mask; put -inf where a key must not be seen."""
        width = logits.shape[2]
        if self.mask is not None:
            mask = self.mask[:, first:last] if self.mask.shape[1] > 1 else self.mask
            mask = mask[..., :width] if mask.shape[2] > 1 else mask
            if mask.dtype == torch.bool:
                logits.add_(_minus_infinity(~mask, logits.dtype))
            else:
                logits.add_(mask.to(logits.dtype))
        if self.causal:
            # Keys before `shared` are visible to all queries of the block.
            shared = max(0, min(self._visible_keys[first], width))
            hidden = self.key_positions[shared:width] > self._last[first:last, None]
            # Adding -inf to all heads at once is far faster than filling entry by entry.
            logits[..., shared:] += _minus_infinity(hidden, logits.dtype)

    def _exponentials(self, first: int, logits: Tensor) -> tuple[Tensor, Tensor]:
        """exp(l - top) in place, and the sum of each row [heads, b, 1]; both are kept for later."""
        dtype, rows = logits.dtype, slice(first, first + logits.shape[1])
        if dtype not in self._sums:
            top = torch.full((*self.shape[:2], 1), torch.nan, dtype=dtype, device=logits.device)
            self._sums[dtype] = top, top.clone()
        kept_top, kept_total = (each[:, rows] for each in self._sums[dtype])
        if bool(torch.isfinite(kept_total).all()):
            return logits.sub_(kept_top).exp_(), kept_total
        top = logits.amax(-1, keepdim=True)
        sinks = None if self.sinks is None else self.sinks.to(dtype)[:, None, None]
        if sinks is not None:
            top = torch.maximum(top, sinks)
        top = torch.where(top == -torch.inf, 0, top)
        logits.sub_(top).exp_()
        total = logits.sum(-1, keepdim=True)
        if sinks is not None:
            total = total + (sinks - top).exp()
        # A row without keys stays a row of zeros.
        total = torch.where(total == 0, 1, total)
        kept_top.copy_(top)
        kept_total.copy_(total)
        return logits, total

    def _in(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Query, scaled, and key in a precision; float64 products are exact enough to certify."""
        if dtype not in self._cast:
            self._cast[dtype] = (self.query.to(dtype) * self.scaling, self.key.to(dtype))
        return self._cast[dtype]

    def _kept_mask(self, mask: Tensor, heads: int, m: int, n: int) -> Tensor:
        mask = mask.reshape((1,) * (3 - mask.ndim) + tuple(mask.shape))
        allowed = ((1, heads), (1, m), (1, n))
        if any(size not in sizes for size, sizes in zip(mask.shape, allowed, strict=True)):
            raise InputError(
                f"A mask of shape {tuple(mask.shape)} does not broadcast to {heads} heads, "
                f"{m} queries and {n} keys."
            )
        if mask.shape[1] > 1:
            mask = mask[:, self.query_positions]
        if mask.shape[2] > 1:
            mask = mask[:, :, self.key_positions]
        return mask


def _minus_infinity(hidden: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where a key is seen, -inf where it is hidden."""
    return torch.zeros(hidden.shape, dtype=dtype, device=hidden.device).masked_fill_(
        hidden, -torch.inf
    )


def _check(query: Tensor, key: Tensor, mask: Tensor | None) -> None:
    if query.ndim != 3 or key.ndim != 3 or query.shape[-1] != key.shape[-1]:
        raise InputError(
            f"Attention rows need query [heads, m, d] and key [groups, n, d]; "
            f"got {tuple(query.shape)} and {tuple(key.shape)}."
        )
    if not (query.is_floating_point() and key.is_floating_point()):
        raise InputError(
            f"Queries and keys must be floating point, not {query.dtype}, {key.dtype}."
        )
    if key.shape[0] == 0 or query.shape[0] % key.shape[0]:
        raise InputError(
            f"{query.shape[0]} query heads do not divide into {key.shape[0]} key heads."
        )
    if mask is not None and mask.dtype != torch.bool and not mask.is_floating_point():
        raise InputError(
            f"A mask is boolean (True: may look) or floating point (added to the logits), "
            f"not {mask.dtype}."
        )


def _positions(keep: Tensor | None, size: int, device: torch.device) -> Tensor:
    if keep is None:
        return torch.arange(size, device=device)
    keep = keep.to(device)
    return keep.nonzero().flatten() if keep.dtype == torch.bool else keep
