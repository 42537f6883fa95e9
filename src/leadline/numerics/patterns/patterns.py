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
and column sums are of the weights, and nothing is reported about the logits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import torch

from leadline.anatomy import SeenAttention
from leadline.anatomy.exactness import exactly
from leadline.numerics.denormals import flushed
from leadline.numerics.patterns.matrix_group import AT_ONCE, MatrixGroup, ModelPattern
from leadline.numerics.patterns.pattern_sums import Sums, add_block, miss_in_eps, proof_vectors
from leadline.numerics.patterns.score_fit import Scores, fit_scores, same_bias
from leadline.numerics.spectra.attention_rows import AttentionRows
from leadline.numerics.spectra.spectrum import (
    SpectralNorm,
    blocks_leading_pair,
    leading_pair,
    rows_leading_pair,
    spectral_norm,
)

__all__ = ["LONG", "PROOF_LIMIT", "PatternNumbers", "PatternShape", "Patterns"]

Tensor = torch.Tensor
LONG = 4096
"""From so many keys on no attention matrix is formed, only blocks of its rows."""
PROOF_LIMIT = 8.0
"""The largest miss of A V, in eps, at which the matrices count as proved."""
_ROWS = 128
"""Rows of a block of long matrices: what one product of a Krylov run reads."""

Mask = Literal["none", "causal", "other"]


@dataclass(frozen=True)
class PatternShape:
    """What the matrices of some examples look like: how many keys each row may see."""

    queries: int
    keys: int
    examples: int
    mask: Mask
    allowed: tuple[int, ...]


@dataclass
class PatternNumbers:
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
    doubtful: bool = False
    """Whether some key was taken for hidden by the size of its logit alone: no mask was seen."""
    shapes: list[PatternShape] = field(default_factory=list)


class Patterns:
    """The attention matrices of one call, of all examples and heads.

    `queries` and `keys` mark the real tokens, [example, token]; None: all of them.
    """

    def __init__(
        self, attention: SeenAttention, *, queries: Tensor | None = None, keys: Tensor | None = None
    ) -> None:
        self.attention = attention
        self._queries, self._keys = queries, keys

    @property
    def heads(self) -> int:
        return self.attention.heads

    @property
    def examples(self) -> int:
        return self._grid.shape[0]

    @property
    def _grid(self) -> Tensor:
        """The weights, or the queries where there are none: [example, head, query, ...]."""
        attention = self.attention
        grid = attention.weights if attention.weights is not None else attention.query
        assert grid is not None
        return grid

    @cached_property
    def measured(self) -> PatternNumbers:
        """All numbers of these matrices, computed at the first use and shared by all readers."""
        with exactly(), flushed():
            return _gathered([_measure(group) for group in self._groups()], self.examples)

    def size(self, example: int) -> tuple[int, int]:
        """How many queries and keys one example has."""
        rows = self._grid.shape[2] if self._queries is None else int(self._queries[example].sum())
        keys = self._key_count() if self._keys is None else int(self._keys[example].sum())
        return rows, keys

    def has(self, example: int) -> bool:
        """Whether the example has any token."""
        return min(self.size(example)) > 0

    @cached_property
    def scores(self) -> Scores | None:
        """Scaling and position bias; None where queries or keys were not seen."""
        attention = self.attention
        if attention.query is None or attention.key is None or self.measured.altered:
            return None
        if attention.route == "kernel":
            assert attention.scaling is not None
            return Scores(attention.scaling, self.measured.bias_range)
        order = sorted(range(self.examples), key=self.size, reverse=True)[:2]
        with exactly():
            parts = [self._score_parts(example) for example in order if self.has(example)]
            if not parts:
                return None
            eps = torch.finfo(attention.query.dtype).eps
            options = {"soft_cap": attention.soft_cap, "eps": eps}
            scores = fit_scores(*parts[0], scaling=attention.scaling, **options)
            if scores is None or scores.bias_range == 0.0 or len(parts) == 1:
                return scores
            alike = same_bias(parts[0], parts[1], scaling=scores.scaling, **options)
            return scores if alike else None

    def _score_parts(self, example: int) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and logits of one example, -inf where a key is hidden."""
        group = next(g for g in self._groups(together=False) if g.members == [example])
        assert group.query is not None and group.key is not None
        assert isinstance(group.matrices, ModelPattern)
        logits = group.matrices.logits
        blocks = group.matrices.softmaxes(dtype=group.dtype)
        visible = torch.cat([group.sight(block).visible for block in blocks], dim=1)
        return group.query[0], group.key[0], torch.where(visible, logits, float("-inf"))

    def matrices(self) -> Iterator[tuple[int, Tensor]]:
        """(example, [head, query, key]) one example after the other. Forms the matrices."""
        with exactly():
            for group in self._groups(together=False):
                yield group.members[0], group.dense()

    def _groups(self, *, together: bool = True) -> Iterator[MatrixGroup]:
        for members, rows, columns in self._alike(together):
            yield MatrixGroup(self.attention, members, rows, columns)

    def _alike(self, together: bool) -> Iterator[tuple[list[int], Tensor | None, Tensor | None]]:
        """Examples with the same tokens left, few enough to stand in memory together."""
        keys = self._key_count()
        kept: dict[tuple[bytes, bytes], list[int]] = {}
        for example in range(self.examples):
            kept.setdefault(
                (_pattern(self._queries, example), _pattern(self._keys, example)), []
            ).append(example)
        for members in kept.values():
            rows = None if self._queries is None else self._queries[members[0]].nonzero()[:, 0]
            columns = None if self._keys is None else self._keys[members[0]].nonzero()[:, 0]
            height = self._grid.shape[2] if rows is None else len(rows)
            width = keys if columns is None else len(columns)
            if height == 0 or width == 0:
                continue
            size = max(1, AT_ONCE // (self.heads * height * width)) if together else 1
            for start in range(0, len(members), size):
                yield members[start : start + size], rows, columns

    def _key_count(self) -> int:
        if self.attention.weights is not None:
            return self.attention.weights.shape[-1]
        assert self.attention.key is not None
        return self.attention.key.shape[2]


def _pattern(mask: Tensor | None, example: int) -> bytes:
    return b"" if mask is None else mask[example].cpu().numpy().tobytes()


def _measure(group: MatrixGroup) -> tuple[MatrixGroup, PatternNumbers]:
    matrices = len(group.members) * group.heads
    example = group.query if group.query is not None else group.attention.output
    device = example.device
    long = group.keys >= LONG
    kept: list[Tensor] | None = None if long or isinstance(group.matrices, ModelPattern) else []

    def zeros(*shape: int) -> Tensor:
        return torch.zeros(*shape, dtype=torch.float64, device=device)

    sums = Sums(
        columns=zeros(matrices, group.keys),
        entropy=zeros(matrices),
        variance=zeros(matrices),
        span=zeros(matrices),
        sink=zeros(matrices),
        distance=zeros(matrices),
        divergence=zeros(len(group.members)),
    )
    sums.largest = zeros(matrices)
    image, expected = proof_vectors(group)
    misses, sizes = zeros(matrices), zeros(matrices)
    step = _ROWS if group.keys > _ROWS else None
    for block in group.matrices.softmaxes(step, dtype=group.dtype):
        add_block(sums, block, group=group)
        first, weights = block.first, block.weights
        if kept is not None:
            kept.append(weights)
        if image is not None and expected is not None:
            product = weights @ image[:, : weights.shape[2]]
            miss = product - expected[:, first : first + weights.shape[1]]
            misses += miss.double().square().sum((1, 2))
            sizes += product.double().square().sum((1, 2))
    proof = None
    if image is not None and expected is not None:
        proof = miss_in_eps(misses.sqrt(), sizes.sqrt(), sums.largest, group)
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
    shape = PatternShape(rows, group.keys, len(group.members), mask, allowed)
    later = max(1, rows - 1)
    return group, PatternNumbers(
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
        doubtful=sums.doubtful,
        shapes=[shape],
    )


def _spectrum(
    group: MatrixGroup, kept: list[Tensor] | None
) -> tuple[SpectralNorm, SpectralNorm | None]:
    if min(group.queries, group.keys) < 2:
        return spectral_norm(group.dense()), None
    if isinstance(group.matrices, ModelPattern):
        return leading_pair(group.matrices.weights)
    if kept is not None:
        return blocks_leading_pair(kept, group.keys)
    assert isinstance(group.matrices, AttentionRows)
    return rows_leading_pair(group.matrices)


def _gathered(parts: list[tuple[MatrixGroup, PatternNumbers]], examples: int) -> PatternNumbers:
    """All examples in their order; an example without tokens has NaN."""
    heads = parts[0][0].heads

    def place(values: list[Tensor], wide: bool = True) -> Tensor:
        shape = (examples, heads) if wide else (examples,)
        result = torch.full(shape, float("nan"), dtype=torch.float64)
        for (group, _), value in zip(parts, values, strict=True):
            there = torch.tensor(group.members)
            result[there] = value.double().cpu().reshape(len(there), *shape[1:])
        return result

    def interval(intervals: list[SpectralNorm]) -> SpectralNorm:
        turns = torch.zeros((examples, heads), dtype=torch.int64)
        for (group, _), one in zip(parts, intervals, strict=True):
            turns[torch.tensor(group.members)] = one.iterations.cpu().reshape(-1, heads)
        return SpectralNorm(
            value=place([one.value for one in intervals]),
            lower=place([one.lower for one in intervals]),
            upper=place([one.upper for one in intervals]),
            iterations=turns,
        )

    measured = [one for _, one in parts]
    seconds = [_or_none(one) for one in measured]
    has_second = any(one.second is not None for one in measured)
    proofs = [one.proof for one in measured if one.proof is not None]
    return PatternNumbers(
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
        doubtful=any(one.doubtful for one in measured),
        shapes=_merged([shape for one in measured for shape in one.shapes]),
    )


def _or_none(one: PatternNumbers) -> SpectralNorm:
    if one.second is not None:
        return one.second
    unknown = torch.full_like(one.norm.value, float("nan"))
    return SpectralNorm(unknown, unknown, unknown, torch.zeros_like(one.norm.iterations))


def _merged(shapes: list[PatternShape]) -> list[PatternShape]:
    """One entry per shape, with the number of its examples."""
    counts: dict[tuple[int, int, Mask, tuple[int, ...]], int] = {}
    for shape in shapes:
        key = (shape.queries, shape.keys, shape.mask, shape.allowed)
        counts[key] = counts.get(key, 0) + shape.examples
    return [
        PatternShape(queries, keys, examples, mask, allowed)
        for (queries, keys, mask, allowed), examples in counts.items()
    ]
