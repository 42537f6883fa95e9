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
from functools import cached_property

import torch

from leadline.anatomy import SeenAttention
from leadline.anatomy.exactness import exactly
from leadline.anatomy.tap.seen_attention import outlined
from leadline.numerics.denormals import flushed
from leadline.numerics.patterns.matrix_group import AT_ONCE, MatrixGroup, ModelPattern
from leadline.numerics.patterns.pattern_numbers import (
    GroupNumbers,
    PatternNumbers,
    PatternShape,
    gathered,
)
from leadline.numerics.patterns.pattern_queue import PatternQueue
from leadline.numerics.patterns.pattern_sums import Sums, add_block, miss_in_eps, proof_vectors
from leadline.numerics.patterns.score_fit import Scores, fit_scores, same_bias
from leadline.numerics.spectra.attention_rows import AttentionRows
from leadline.numerics.spectra.leading import is_large
from leadline.numerics.spectra.spectrum import blocks_leading_pair, leading_pair, rows_leading_pair

__all__ = ["LONG", "PROOF_LIMIT", "PatternNumbers", "PatternShape", "Patterns"]

Tensor = torch.Tensor
LONG = 4096
"""From so many keys on no attention matrix is formed, only blocks of its rows."""
PROOF_LIMIT = 8.0
"""The largest miss of A V, in eps, at which the matrices count as proved."""
_ROWS = 128
"""Rows of a block of long matrices: what one product of a Krylov run reads."""


class Patterns:
    """The attention matrices of one call, of all examples and heads.

    `queries` and `keys` mark the real tokens, [example, token]; None: all of them. In a `queue` they
    wait for those of other calls.
    """

    def __init__(
        self,
        attention: SeenAttention,
        *,
        queries: Tensor | None = None,
        keys: Tensor | None = None,
        queue: PatternQueue | None = None,
    ) -> None:
        self.attention = attention
        self._queries, self._keys = queries, keys
        self._queue = PatternQueue() if queue is None else queue
        self._numbers: list[GroupNumbers] = []

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
        self.add_up()
        self._queue.settle()
        return gathered(self._numbers, self.examples)

    def add_up(self) -> None:
        """Reduce the matrices to numbers, which wait in the queue until somebody reads them."""
        if not self._numbers:
            with exactly(), flushed():
                self._numbers = [_measured(group, self._queue) for group in self._groups()]

    def let_go(self) -> None:
        """Keep of the tensors what can be told without their content, which is only lent."""
        self.add_up()
        self.attention = outlined(self.attention)

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


def _measured(group: MatrixGroup, queue: PatternQueue) -> GroupNumbers:
    """Add up what the rows say, and find the singular values or let them wait for others."""
    long = group.keys >= LONG
    kept: list[Tensor] | None = None if long or isinstance(group.matrices, ModelPattern) else []
    sums, vectors = Sums.empty(group), proof_vectors(group)
    step = _ROWS if group.keys > _ROWS else None
    for block in group.matrices.softmaxes(step, dtype=group.dtype, lent=True):
        add_block(sums, block, vectors, group=group)
        if kept is not None:
            kept.append(block.weights)
    proof = miss_in_eps(sums, group) if vectors is not None else sums.uneven * torch.nan
    flags = (
        sums.missing,
        sums.uneven,
        sums.excess,
        sums.lowest,
        group.bias_range(),
        sums.broken,
        sums.triangle,
        proof,
    )
    averaged = (sums.entropy, sums.variance, sums.span, sums.sink, sums.distance)
    numbers = GroupNumbers(
        members=group.members,
        queries=group.queries,
        keys=group.keys,
        table=torch.stack([sums.columns.amax(1), *averaged]),
        divergence=sums.divergence,
        flags=torch.stack([flag.double() for flag in flags]),
        counts=torch.cat(sums.counts),
        provable=vectors is not None,
        altered=sums.altered,
        doubtful=sums.doubtful,
    )
    if min(group.queries, group.keys) < 2 or not (
        long or is_large(group.queries, group.keys, wanted=2)
    ):
        queue.add(numbers, _whole(group, kept))
        return numbers
    if isinstance(group.matrices, ModelPattern):
        numbers.pair = leading_pair(group.matrices.weights)
    elif kept is not None:
        numbers.pair = blocks_leading_pair(kept, group.keys)
    else:
        assert isinstance(group.matrices, AttentionRows)
        numbers.pair = rows_leading_pair(group.matrices)
    queue.add(numbers)
    return numbers


def _whole(group: MatrixGroup, blocks: list[Tensor] | None) -> Tensor:
    """[matrix, query, key] of blocks of rows; the keys that a block lacks on the right are hidden."""
    if not blocks:
        return group.dense()
    if len(blocks) == 1 and blocks[0].shape[2] == group.keys:
        return blocks[0]
    matrices = blocks[0].new_zeros(len(blocks[0]), group.queries, group.keys)
    first = 0
    for block in blocks:
        matrices[:, first : first + block.shape[1], : block.shape[2]] = block
        first += block.shape[1]
    return matrices
