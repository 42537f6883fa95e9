"""Attention matrices reduced to numbers, in one pass over blocks of rows.

Of every head, with A its matrix (rows are queries), l its logits, over the keys a row may see:

    column sum     max_j sum_i A_ij
    entropy        mean_i -sum_j A_ij log A_ij
    logit std      sqrt(mean_i var_j l_ij)          (a constant added to a row changes nothing)
    logit span     max_i (max_j l_ij - min_j l_ij)
    sink share     mean over i > 1 of A_i1
    distance       mean_i sum_j A_ij |i - j|
    divergence     H(mean over heads of A_i) - mean over heads of H(A_i), mean over i: the
                   Jensen-Shannon divergence of the heads, from 0 (all alike) to log(heads)

and the two largest singular values. Examples of one shape go together; padded rows and columns
never enter. Up to `LONG` keys the matrices of a few heads stand in memory for a moment, from there
on only blocks of rows do.

Every matrix is proved on the way: A V w must be the attention's own output times w, w random
signs. The miss |A V w - O w| / |A V w| is counted in eps of the output, or in eps of float32 times
one plus the largest logit where that is more: an error of a logit is a relative error of a weight.

Weights that the model computed itself are compared with the softmax of their logits. Where they
have been changed in between (smoothed, masked, renormalised), the logits are not theirs: entropy
and column sums are of the weights, and of the logits nothing is told.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, Protocol

import torch

from leadline.anatomy import SeenAttention
from leadline.anatomy.exactness import exactly
from leadline.numerics.attention_rows import AttentionRows, Softmax
from leadline.numerics.denormals import flushed
from leadline.numerics.score_fit import Scores, fit_scores, same_bias
from leadline.numerics.spectrum import (
    SpectralNorm,
    blocks_leading_pair,
    leading_pair,
    rows_leading_pair,
    spectral_norm,
)

__all__ = ["EMPTY", "HIDDEN", "LONG", "PROOF_LIMIT", "Measured", "Patterns", "Shape"]

Tensor = torch.Tensor
LONG = 4096
HIDDEN = 1000.0
"""A logit so far below the largest of its row hides its key: its weight is zero in any precision."""
EMPTY = -9999.0
"""A row whose largest logit is at or below this sees nothing: GPT-1 hides by -10,000."""
PROOF_LIMIT = 8.0
ALTERED = 1e-4
"""Weights that differ by more from the softmax of their logits have been changed after it."""
_SIGNS = 4
_COARSEST = 1e-2
"""Rounding beyond this proves nothing any more."""
_ROWS = 128
"""Rows of a block of long matrices: what one product of a Krylov run reads."""
_AT_ONCE = 1 << 23
"""Entries of the matrices that stand in memory together."""

Mask = Literal["none", "causal", "other"]


@dataclass(frozen=True)
class Shape:
    """What the matrices of some examples look like: how many keys each row may see."""

    queries: int
    keys: int
    examples: int
    mask: Mask
    allowed: tuple[int, ...]


@dataclass
class Measured:
    """The numbers of all examples: [example, head], or [example] for the divergence.

    `missing` counts rows that may see no key at all, `uneven` is the largest |1 - row sum| over
    the others, `excess` the largest row sum less one, `lowest` the smallest weight, `proof` the
    largest miss of A V in eps, None where the product could not be understood.
    """

    norm: SpectralNorm
    second: SpectralNorm | None
    column_sum: Tensor
    entropy: Tensor
    logit_std: Tensor
    logit_span: Tensor
    sink_share: Tensor
    distance: Tensor
    divergence: Tensor
    missing: int
    uneven: float
    proof: float | None
    bias_range: float
    excess: float
    lowest: float
    altered: bool
    broken: bool
    """Whether any logit is NaN."""
    shapes: list[Shape] = field(default_factory=list)


class _Rows(Protocol):
    def softmaxes(
        self, rows: int | None = None, *, dtype: torch.dtype = ...
    ) -> Iterator[Softmax]: ...


@dataclass(frozen=True)
class _Given:
    """Weights and logits that the model computed itself: [matrix, query, key]."""

    logits: Tensor
    weights: Tensor

    def softmaxes(
        self, rows: int | None = None, *, dtype: torch.dtype = torch.float32
    ) -> Iterator[Softmax]:
        step = rows or max(1, _AT_ONCE // (4 * max(1, self.weights[:, 0].numel())))
        for first in range(0, self.weights.shape[1], step):
            here = slice(first, first + step)
            logits, weights = self.logits[:, here].to(dtype), self.weights[:, here].to(dtype)
            top = logits.amax(-1, keepdim=True)
            shifted = logits - torch.where(top == -torch.inf, 0, top)
            # The largest weight belongs to a shifted logit of zero.
            total = 1 / weights.amax(-1, keepdim=True).clamp_min(torch.finfo(dtype).tiny)
            yield Softmax(first, top, shifted, total, weights)


class Patterns:
    """The attention matrices of one call, of all examples and heads.

    `queries` and `keys` tell the real tokens, [example, token]; None: all of them.
    """

    def __init__(
        self, seen: SeenAttention, *, queries: Tensor | None = None, keys: Tensor | None = None
    ) -> None:
        self.seen = seen
        self._queries, self._keys = queries, keys

    @property
    def heads(self) -> int:
        return self.seen.heads

    @property
    def examples(self) -> int:
        first = self.seen.weights if self.seen.weights is not None else self.seen.query
        assert first is not None
        return first.shape[0]

    @cached_property
    def measured(self) -> Measured:
        """Everything, computed once and shared by all who ask."""
        with exactly(), flushed():
            return _gathered([_measure(group) for group in self._groups()], self.examples)

    def size(self, example: int) -> tuple[int, int]:
        """How many queries and keys one example has."""
        grid = self.seen.weights if self.seen.weights is not None else self.seen.query
        assert grid is not None
        rows = grid.shape[2] if self._queries is None else int(self._queries[example].sum())
        keys = self._key_count() if self._keys is None else int(self._keys[example].sum())
        return rows, keys

    def has(self, example: int) -> bool:
        """Whether the example has any token."""
        return min(self.size(example)) > 0

    @cached_property
    def scores(self) -> Scores | None:
        """Scaling and position bias; None where queries or keys were not seen."""
        seen = self.seen
        if seen.query is None or seen.key is None or self.measured.altered:
            return None
        if seen.route == "kernel":
            assert seen.scaling is not None
            return Scores(seen.scaling, self.measured.bias_range)
        order = sorted(range(self.examples), key=self.size, reverse=True)[:2]
        with exactly():
            parts = [self._score_parts(example) for example in order if self.has(example)]
            if not parts:
                return None
            eps = torch.finfo(seen.query.dtype).eps
            given = {"soft_cap": seen.soft_cap, "eps": eps}
            found = fit_scores(*parts[0], scaling=seen.scaling, **given)
            if found is None or found.bias_range == 0.0 or len(parts) == 1:
                return found
            alike = same_bias(parts[0], parts[1], scaling=found.scaling, **given)
            return found if alike else None

    def _score_parts(self, example: int) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and logits of one example, -inf where a key is hidden."""
        group = next(g for g in self._groups(together=False) if g.members == [example])
        assert group.query is not None and group.key is not None
        assert isinstance(group.matrices, _Given)
        logits = group.matrices.logits
        top = logits.amax(-1, keepdim=True)
        hidden = torch.where(logits > top - HIDDEN, logits, float("-inf"))
        return group.query[0], group.key[0], hidden

    def matrices(self) -> Iterator[tuple[int, Tensor]]:
        """(example, [head, query, key]) one example after the other. Forms the matrices."""
        with exactly():
            for group in self._groups(together=False):
                yield group.members[0], group.dense()

    def _groups(self, *, together: bool = True) -> Iterator[_Group]:
        for members, rows, columns in self._alike(together):
            yield _Group(self.seen, members, rows, columns)

    def _alike(self, together: bool) -> Iterator[tuple[list[int], Tensor | None, Tensor | None]]:
        """Examples with the same tokens left, few enough to stand in memory together."""
        first = self.seen.weights if self.seen.weights is not None else self.seen.query
        assert first is not None
        keys = self._key_count()
        kept: dict[tuple[bytes, bytes], list[int]] = {}
        for example in range(self.examples):
            kept.setdefault(
                (_pattern(self._queries, example), _pattern(self._keys, example)), []
            ).append(example)
        for members in kept.values():
            rows = None if self._queries is None else self._queries[members[0]].nonzero()[:, 0]
            columns = None if self._keys is None else self._keys[members[0]].nonzero()[:, 0]
            height = first.shape[2] if rows is None else len(rows)
            width = keys if columns is None else len(columns)
            if height == 0 or width == 0:
                continue
            size = max(1, _AT_ONCE // (self.heads * height * width)) if together else 1
            for start in range(0, len(members), size):
                yield members[start : start + size], rows, columns

    def _key_count(self) -> int:
        if self.seen.weights is not None:
            return self.seen.weights.shape[-1]
        assert self.seen.key is not None
        return self.seen.key.shape[2]


def _pattern(mask: Tensor | None, example: int) -> bytes:
    return b"" if mask is None else mask[example].cpu().numpy().tobytes()


class _Group:
    """Examples that share their tokens: [example * head, query, key] matrices."""

    def __init__(
        self, seen: SeenAttention, members: list[int], rows: Tensor | None, columns: Tensor | None
    ) -> None:
        self.seen, self.members = seen, members
        self.heads = seen.heads
        at = torch.tensor(members)

        def chosen(tensor: Tensor, *, query: bool, key: bool) -> Tensor:
            taken = tensor[at.to(tensor.device)] if len(members) < len(tensor) else tensor
            if query and rows is not None:
                taken = taken.index_select(2, rows.to(taken.device))
            if key and columns is not None:
                taken = taken.index_select(3 if query else 2, columns.to(taken.device))
            return taken

        self.value = self.output = None
        if seen.output.ndim == 4 and seen.output.shape[1] == self.heads:
            self.output = chosen(seen.output, query=True, key=False)
            value = seen.value
            if value.ndim == 4 and self.heads % value.shape[1] == 0:
                self.value = _repeated(chosen(value, query=False, key=True), self.heads)
        self.query = self.key = self.mask = None
        if seen.query is not None and seen.key is not None:
            self.query = chosen(seen.query, query=True, key=False)
            self.key = _repeated(chosen(seen.key, query=False, key=True), self.heads)
        if seen.weights is not None:
            assert seen.logits is not None
            weights = chosen(seen.weights, query=True, key=True)
            logits = chosen(seen.logits, query=True, key=True)
            self.queries, self.keys = weights.shape[2:]
            self.matrices: _Rows = _Given(logits.flatten(0, 1), weights.flatten(0, 1))
        else:
            assert self.query is not None and self.key is not None
            self.queries, self.keys = self.query.shape[2], self.key.shape[2]
            self.mask = self._shared_mask(rows, columns)
            assert seen.scaling is not None
            self.matrices = AttentionRows(
                self.query.flatten(0, 1),
                self.key.flatten(0, 1),
                scaling=seen.scaling,
                causal=seen.causal and self.mask is None,
                mask=self.mask,
            )

    def _shared_mask(self, rows: Tensor | None, columns: Tensor | None) -> Tensor | None:
        """The mask of the kernel, cut to the real tokens: [1 or example * head, query, key]."""
        assert self.query is not None and self.key is not None
        device = self.query.device
        mask = self.seen.mask
        cut = rows is not None or columns is not None
        assert self.seen.query is not None and self.seen.key is not None
        full = self.seen.query.shape[2], self.seen.key.shape[2]
        if self.seen.causal and (cut or full[0] != full[1]):
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
    def one_mask(self) -> bool:
        """Whether all matrices hide the same entries, so that one of them tells."""
        if isinstance(self.matrices, _Given):
            return False
        return self.mask is None or self.mask.shape[0] == 1

    def dense(self) -> Tensor:
        """[example * head, query, key]."""
        if isinstance(self.matrices, _Given):
            return self.matrices.weights.to(self.dtype)
        assert isinstance(self.matrices, AttentionRows)
        return self.matrices.dense(dtype=self.dtype)

    @property
    def dtype(self) -> torch.dtype:
        """What statistics are computed in: float64 for a float64 model, float32 otherwise."""
        return torch.float64 if self.seen.output.dtype == torch.float64 else torch.float32

    def bias_range(self) -> float:
        """The largest range, over a row, of an additive mask where it does not hide."""
        if self.mask is None or self.mask.dtype == torch.bool:
            return 0.0
        seen = torch.isfinite(self.mask)
        high = self.mask.masked_fill(~seen, float("-inf")).amax(-1)
        low = self.mask.masked_fill(~seen, float("inf")).amin(-1)
        return float((high - low).clamp_min(0).nan_to_num(0.0, 0.0, 0.0).max())


def _repeated(tensor: Tensor, heads: int) -> Tensor:
    """Keys and values of grouped queries, once for every head."""
    groups = tensor.shape[1]
    return tensor if groups == heads else tensor.repeat_interleave(heads // groups, 1)


@dataclass
class _Sums:
    """What the pass over the rows adds up: [matrix] or [example]."""

    columns: Tensor
    entropy: Tensor
    variance: Tensor
    span: Tensor
    sink: Tensor
    distance: Tensor
    divergence: Tensor
    missing: int = 0
    uneven: float = 0.0
    largest: Tensor | None = None
    excess: float = -1.0
    lowest: float = 0.0
    altered: bool = False
    broken: bool = False
    counts: list[Tensor] = field(default_factory=list[Tensor])
    triangle: bool = True


def _measure(group: _Group) -> tuple[_Group, Measured]:
    matrices = len(group.members) * group.heads
    example = group.query if group.query is not None else group.seen.output
    device = example.device
    long = group.keys >= LONG
    kept: list[Tensor] | None = None if long or isinstance(group.matrices, _Given) else []

    def zeros(*shape: int) -> Tensor:
        return torch.zeros(*shape, dtype=torch.float64, device=device)

    sums = _Sums(
        columns=zeros(matrices, group.keys),
        entropy=zeros(matrices),
        variance=zeros(matrices),
        span=zeros(matrices),
        sink=zeros(matrices),
        distance=zeros(matrices),
        divergence=zeros(len(group.members)),
    )
    sums.largest = zeros(matrices)
    image, expected = _proof_vectors(group)
    misses, sizes = zeros(matrices), zeros(matrices)
    step = _ROWS if group.keys > _ROWS else None
    for block in group.matrices.softmaxes(step, dtype=group.dtype):
        _add(sums, block, group=group)
        first, weights = block.first, block.weights
        if kept is not None:
            kept.append(weights)
        if image is not None and expected is not None:
            got = weights @ image[:, : weights.shape[2]]
            miss = got - expected[:, first : first + weights.shape[1]]
            misses += miss.double().square().sum((1, 2))
            sizes += got.double().square().sum((1, 2))
    proof = None
    if image is not None and expected is not None:
        proof = _miss_in_eps(misses.sqrt(), sizes.sqrt(), sums.largest, group)
    norm, second = _spectrum(group, kept)
    rows = group.queries
    counts = torch.cat(sums.counts)
    allowed = tuple(counts.tolist())
    mask: Mask = "other"
    if all(count == group.keys for count in allowed):
        mask = "none"
    elif sums.triangle and rows == group.keys:
        mask = "causal"
    if sums.altered:
        mask = "other"
    shape = Shape(rows, group.keys, len(group.members), mask, allowed)
    later = max(1, rows - 1)
    return group, Measured(
        norm=norm,
        second=second,
        column_sum=sums.columns.amax(1),
        entropy=sums.entropy / rows,
        logit_std=(sums.variance / rows).sqrt(),
        logit_span=sums.span,
        sink_share=sums.sink / later if rows > 1 else torch.full_like(sums.sink, float("nan")),
        distance=sums.distance / rows,
        divergence=sums.divergence / rows,
        missing=sums.missing,
        uneven=sums.uneven,
        proof=proof,
        bias_range=group.bias_range(),
        excess=sums.excess,
        lowest=sums.lowest,
        altered=sums.altered,
        broken=sums.broken,
        shapes=[shape],
    )


def _proof_vectors(group: _Group) -> tuple[Tensor, Tensor] | tuple[None, None]:
    """The values times random signs, and the output times them."""
    if group.value is None or group.output is None:
        return None, None
    features = group.value.shape[-1]
    if group.value.shape[:3] != (*group.output.shape[:2], group.keys):
        return None, None
    if group.output.shape[-1] != features or group.output.shape[2] != group.queries:
        return None, None
    generator = torch.Generator().manual_seed(0)
    signs = torch.randint(0, 2, (features, _SIGNS), generator=generator) * 2 - 1
    signs = signs.to(dtype=group.dtype, device=group.value.device)
    return (
        (group.value.to(group.dtype) @ signs).flatten(0, 1),
        (group.output.to(group.dtype) @ signs).flatten(0, 1),
    )


def _miss_in_eps(misses: Tensor, sizes: Tensor, largest: Tensor, group: _Group) -> float:
    """|A V w - O w| / |A V w| of the worst matrix, in units of rounding; NaN where not finite."""
    own = torch.finfo(group.seen.output.dtype).eps
    logit = torch.finfo(group.dtype).eps * (1 + largest)
    unit = logit.clamp(min=own, max=max(own, _COARSEST))
    # Values that are all zero prove nothing, and nothing can be wrong then.
    relative = torch.where(misses == 0, 0.0, misses / sizes)
    return float((relative / unit).max())


def _add(sums: _Sums, block: Softmax, *, group: _Group) -> None:
    """Take one block of rows in. No step here branches entry by entry: that would cost most."""
    first, top, shifted, partition, weights = block
    rows, keys = weights.shape[1:]
    device, dtype = weights.device, weights.dtype
    given = isinstance(group.matrices, _Given)
    visible = shifted[:1] > -HIDDEN if group.one_mask else shifted > -HIDDEN
    count = visible.sum(-1)
    empty = top[..., 0] <= EMPTY
    broken = ~torch.isfinite(top[..., 0]) & ~empty
    sums.broken = sums.broken or bool(broken.any())
    sums.missing += int(empty.sum())
    # What is hidden is -inf or very low: brought to a finite number, times zero.
    shifted.clamp_(min=-2 * HIDDEN).mul_(visible.to(dtype))
    total = weights.sum(-1)
    sums.excess = max(sums.excess, float((total.nan_to_num(0.0) - 1).max()))
    if given:
        sums.lowest = min(sums.lowest, float(weights.amin().nan_to_num(0.0)))
    off = torch.where(empty | broken, 0.0, (total - 1).abs()).amax()
    sums.uneven = max(sums.uneven, float(off))
    span = -shifted.amin(-1)
    size = torch.where(empty | broken, 0.0, top[..., 0].abs() + span).amax(1).double()
    assert sums.largest is not None
    sums.largest = torch.maximum(sums.largest, size)
    sums.columns[:, :keys] += weights.sum(1)
    if given and not sums.altered:
        sums.altered = _is_altered(group, weights, shifted, visible, total, empty | broken)
    if sums.altered:
        entropy = torch.special.entr(weights).sum(-1)
    else:
        # -log A = log(sum exp) - l.
        entropy = partition[..., 0].log() * total - (weights * shifted).sum(-1)
    sums.entropy += entropy.double().sum(1)
    mean = shifted.sum(-1) / count.clamp_min(1)
    square = torch.linalg.vector_norm(shifted, dim=-1).square() / count.clamp_min(1)
    sums.variance += (square - mean * mean).clamp_min(0).double().sum(1)
    # A maximum forgets NaN on some devices; a sum does not.
    span = span.amax(1).double() + 0.0 * span.double().sum(1)
    sums.span = torch.maximum(sums.span, span) + 0.0 * span
    later = weights[:, 1:, 0] if first == 0 else weights[..., 0]
    sums.sink += later.double().sum(1)
    i = torch.arange(first, first + rows, device=device)
    j = torch.arange(keys, device=device)
    lower = i.unsqueeze(1) >= j
    sums.triangle = sums.triangle and bool((visible == lower).all())
    if sums.triangle:
        # Nothing lies ahead: the distance is the row's place less the mean place of its keys.
        apart = i * total - weights @ j.to(dtype)
    else:
        apart = (weights * (i.unsqueeze(1) - j).abs().to(dtype)).sum(-1)
    sums.distance += apart.double().sum(1)
    # A row that sees nothing in one example must not count as such in the others.
    sums.counts.append(torch.where(count == 0, group.keys, count).amin(0))
    mixed = weights.reshape(-1, group.heads, rows, keys).mean(1)
    mixed = -(mixed * mixed.clamp_min(torch.finfo(dtype).tiny).log()).sum(-1)
    own = entropy.reshape(-1, group.heads, rows).mean(1)
    sums.divergence += (mixed - own).double().sum(1)


def _is_altered(
    group: _Group,
    weights: Tensor,
    shifted: Tensor,
    visible: Tensor,
    total: Tensor,
    unknown: Tensor,
) -> bool:
    """Whether weights are not in proportion to exp(logits), as softmax makes them.

    A sink takes the same share from all weights of a row.
    """
    assert isinstance(group.matrices, _Given)
    exponentials = shifted.exp() * visible.to(shifted.dtype)
    share = (total / exponentials.sum(-1)).unsqueeze(-1)
    apart = (weights - share * exponentials).abs().amax(-1)
    rounding = 2 * torch.finfo(group.matrices.weights.dtype).eps
    return float(torch.where(unknown, 0.0, apart).max()) > max(ALTERED, rounding)


def _spectrum(group: _Group, kept: list[Tensor] | None) -> tuple[SpectralNorm, SpectralNorm | None]:
    if min(group.queries, group.keys) < 2:
        return spectral_norm(group.dense()), None
    if isinstance(group.matrices, _Given):
        return leading_pair(group.matrices.weights)
    if kept is not None:
        return blocks_leading_pair(kept, group.keys)
    assert isinstance(group.matrices, AttentionRows)
    return rows_leading_pair(group.matrices)


def _gathered(parts: list[tuple[_Group, Measured]], examples: int) -> Measured:
    """All examples in their order; an example without tokens has NaN."""
    heads = parts[0][0].heads

    def place(values: list[Tensor], wide: bool = True) -> Tensor:
        shape = (examples, heads) if wide else (examples,)
        result = torch.full(shape, float("nan"), dtype=torch.float64)
        for (group, _), value in zip(parts, values, strict=True):
            there = torch.tensor(group.members)
            result[there] = value.double().cpu().reshape(len(there), *shape[1:])
        return result

    def interval(found: list[SpectralNorm]) -> SpectralNorm:
        turns = torch.zeros((examples, heads), dtype=torch.int64)
        for (group, _), one in zip(parts, found, strict=True):
            turns[torch.tensor(group.members)] = one.iterations.cpu().reshape(-1, heads)
        return SpectralNorm(
            value=place([one.value for one in found]),
            lower=place([one.lower for one in found]),
            upper=place([one.upper for one in found]),
            iterations=turns,
        )

    measured = [one for _, one in parts]
    seconds = [_or_none(one) for one in measured]
    has_second = any(one.second is not None for one in measured)
    proofs = [one.proof for one in measured if one.proof is not None]
    return Measured(
        norm=interval([one.norm for one in measured]),
        second=interval(seconds) if has_second else None,
        column_sum=place([one.column_sum for one in measured]),
        entropy=place([one.entropy for one in measured]),
        logit_std=place([one.logit_std for one in measured]),
        logit_span=place([one.logit_span for one in measured]),
        sink_share=place([one.sink_share for one in measured]),
        distance=place([one.distance for one in measured]),
        divergence=place([one.divergence for one in measured], wide=False),
        missing=sum(one.missing for one in measured),
        uneven=max(one.uneven for one in measured),
        proof=max(proofs) if len(proofs) == len(measured) else None,
        bias_range=max(one.bias_range for one in measured),
        excess=max(one.excess for one in measured),
        lowest=min(one.lowest for one in measured),
        altered=any(one.altered for one in measured),
        broken=any(one.broken for one in measured),
        shapes=_merged([shape for one in measured for shape in one.shapes]),
    )


def _or_none(one: Measured) -> SpectralNorm:
    if one.second is not None:
        return one.second
    unknown = torch.full_like(one.norm.value, float("nan"))
    return SpectralNorm(unknown, unknown, unknown, torch.zeros_like(one.norm.iterations))


def _merged(shapes: list[Shape]) -> list[Shape]:
    """One entry per shape, with the number of its examples."""
    counts: dict[tuple[int, int, Mask, tuple[int, ...]], int] = {}
    for shape in shapes:
        key = (shape.queries, shape.keys, shape.mask, shape.allowed)
        counts[key] = counts.get(key, 0) + shape.examples
    return [
        Shape(queries, keys, examples, mask, allowed)
        for (queries, keys, mask, allowed), examples in counts.items()
    ]
