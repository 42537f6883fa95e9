"""The numbers of attention matrices, and what is added up for them before they are fetched.

The formulas stand in `patterns`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch

from leadline.numerics.spectra.spectrum import SpectralNorm

__all__ = ["GroupNumbers", "Mask", "PatternNumbers", "PatternShape", "fetch", "gathered"]

Tensor = torch.Tensor
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


@dataclass
class GroupNumbers:
    """What was added up for the matrices of some examples, on their device until it is fetched."""

    members: list[int]
    queries: int
    keys: int
    table: Tensor
    """[number, matrix], float64: column sum, entropy, variance of the logits, span, sink, distance."""
    divergence: Tensor
    """[example], float64."""
    flags: Tensor
    """Float64: missing, uneven, excess, lowest, bias range, broken, triangle, proof."""
    counts: Tensor
    """[query]: how many keys it may see."""
    provable: bool
    altered: bool
    doubtful: bool
    pair: tuple[SpectralNorm, SpectralNorm | None] | None = None
    """None while it waits for others."""
    fetched: bool = False

    def tensors(self) -> list[Tensor]:
        """Everything that has to be fetched, in the order in which `take` wants it."""
        assert self.pair is not None
        ends = [
            end
            for one in self.pair
            if one is not None
            for end in (one.value, one.lower, one.upper, one.iterations)
        ]
        return [self.table, self.divergence, self.flags, self.counts, *ends]

    def take(self, numbers: list[Tensor]) -> None:
        """Put what was fetched in the place of what stood on the device."""
        self.table, self.divergence, self.flags, self.counts, *ends = numbers
        quads = [ends[at : at + 4] for at in range(0, len(ends), 4)]
        pair = [SpectralNorm(v, low, high, turns.long()) for v, low, high, turns in quads]
        self.pair = pair[0], pair[1] if len(pair) > 1 else None
        self.fetched = True

    @property
    def shape(self) -> PatternShape:
        """How many keys each row may see, and what mask that is."""
        assert self.fetched
        allowed = tuple(self.counts.long().tolist())
        mask: Mask = "other"
        if not self.altered and allowed.count(self.keys) == len(allowed):
            mask = "none"
        elif not self.altered and bool(self.flags[6]) and self.queries == self.keys:
            mask = "causal"
        return PatternShape(self.queries, self.keys, len(self.members), mask, allowed)


def fetch(groups: Sequence[GroupNumbers]) -> None:
    """Bring the numbers of all groups to the CPU, with one transfer from each device."""
    waiting = [group for group in groups if not group.fetched]
    tensors = [tensor for group in waiting for tensor in group.tensors()]
    by_device: dict[torch.device, list[int]] = {}
    for at, tensor in enumerate(tensors):
        by_device.setdefault(tensor.device, []).append(at)
    for places in by_device.values():
        sizes = [tensors[at].numel() for at in places]
        together = torch.cat([tensors[at].double().flatten() for at in places]).cpu()
        for at, part in zip(places, together.split(sizes), strict=True):
            tensors[at] = part.view(tensors[at].shape)
    numbers = iter(tensors)
    for group in waiting:
        group.take([next(numbers) for _ in group.tensors()])


def gathered(groups: Sequence[GroupNumbers], examples: int) -> PatternNumbers:
    """All examples in their order; an example without tokens has NaN."""
    heads = groups[0].table.shape[1] // len(groups[0].members)
    tables = torch.full((14, examples, heads), float("nan"), dtype=torch.float64)
    divergence = torch.full((examples,), float("nan"), dtype=torch.float64)
    turns = torch.zeros((2, examples, heads), dtype=torch.int64)
    for group in groups:
        assert group.pair is not None
        there = torch.tensor(group.members)
        shape = (len(there), heads)
        rows = list(_means(group))
        for one in group.pair:
            rows += (
                [one.value, one.lower, one.upper] if one is not None else [rows[0] * torch.nan] * 3
            )
        tables[: len(rows), there] = torch.stack(rows).view(len(rows), *shape)
        divergence[there] = group.divergence / group.queries
        for at, one in enumerate(group.pair):
            if one is not None:
                turns[at, there] = one.iterations.view(shape)
    column_sum, entropy, std, span, sink, distance = tables[:6]
    norm, second = (
        SpectralNorm(tables[first], tables[first + 1], tables[first + 2], turns[at])
        for at, first in enumerate((6, 9))
    )
    flags = torch.stack([group.flags for group in groups])
    largest, least = flags.amax(0).tolist(), flags.amin(0).tolist()
    return PatternNumbers(
        norm=norm,
        second=second if any(group.pair and group.pair[1] for group in groups) else None,
        column_sum=column_sum,
        entropy=entropy,
        logit_std=std,
        logit_span=span,
        sink_share=sink,
        distance=distance,
        divergence=divergence,
        missing=int(flags[:, 0].sum()),
        uneven=largest[1],
        excess=largest[2],
        lowest=least[3],
        bias_range=largest[4],
        broken=largest[5] > 0,
        proof=largest[7] if all(group.provable for group in groups) else None,
        altered=any(group.altered for group in groups),
        doubtful=any(group.doubtful for group in groups),
        shapes=_merged([group.shape for group in groups]),
    )


def _means(group: GroupNumbers) -> tuple[Tensor, ...]:
    """The sums over the queries as means."""
    column_sum, entropy, variance, span, sink, distance = group.table
    rows = group.queries
    sink = sink / (rows - 1) if rows > 1 else torch.full_like(sink, float("nan"))
    return column_sum, entropy / rows, (variance / rows).sqrt(), span, sink, distance / rows


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
