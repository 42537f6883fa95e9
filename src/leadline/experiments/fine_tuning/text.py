"""What was found in fine-tuning, as tables and sentences: computed, never typed."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from leadline.experiments.fine_tuning.adapting import Adapted, Together
from leadline.reading.show.panels import Table

__all__ = ["remarks", "spearman", "tables", "verdict"]

T = TypeVar("T")
AdaptedBy = Mapping[tuple[str, str, str, float], Sequence[Adapted]]
"""By design, way, method and weight; the sequences run over the seeds."""
TogetherBy = Mapping[tuple[str, float], Sequence[Together]]
UNTRAINED = 0.3
"""A base whose loss is not so many nats below the unigram entropy has learned frequencies alone."""

LEAST = 0.6
"""The least rank correlation in every seed with which something counts as rising or falling."""
RISES, FALLS, UNDECIDED = "rises", "falls", "is undecided"

ADAPTED: dict[str, Callable[[Adapted], float]] = {
    "old before": lambda one: one.old_before,
    "new before": lambda one: one.new_before,
    "new after": lambda one: one.new_after,
    "old after": lambda one: one.old_after,
    "update ratio": lambda one: one.heard.ratio,
    "output change": lambda one: one.heard.output,
}
TOGETHER: dict[str, Callable[[Together], float]] = {
    "old before": lambda one: one.old_before,
    "new alone": lambda one: one.new_alone,
    "new, both": lambda one: one.new_both,
    "old, alone": lambda one: one.old_alone,
    "old, both": lambda one: one.old_both,
}
WAYS = {"trained": "trained with r", "changed": "changed to r after training"}


def spearman(x: Sequence[float], y: Sequence[float]) -> float:
    """The correlation of the ranks, which equal values share; 0 where one of them never changes."""
    if len(set(x)) < 2 or len(set(y)) < 2:
        return 0.0
    return statistics.correlation(_ranks(x), _ranks(y))


def _ranks(values: Sequence[float]) -> list[float]:
    """How many values lie below each, and half of the others that equal it."""
    return [sum((v < one) + 0.5 * (v == one) for v in values) for one in values]


def verdict(correlations: Sequence[float]) -> str:
    """Whether something goes one way with r in every seed."""
    if min(correlations) >= LEAST:
        return RISES
    return FALLS if max(correlations) <= -LEAST else UNDECIDED


def tables(adapted: AdaptedBy, together: TogetherBy) -> Iterator[Table]:
    """Means over the seeds, a row per residual weight."""
    for design, way, method in dict.fromkeys(key[:3] for key in adapted):
        rows = [
            (key[3], *(statistics.fmean(map(of, seeds)) for of in ADAPTED.values()))
            for key, seeds in adapted.items()
            if key[:3] == (design, way, method)
        ]
        yield Table(
            f"{design}, {WAYS[way]}: {method}", ("weight r", *ADAPTED), tuple(rows), digits=3
        )
    for design in dict.fromkeys(key[0] for key in together):
        rows = [
            (key[1], *(statistics.fmean(map(of, seeds)) for of in TOGETHER.values()))
            for key, seeds in together.items()
            if key[0] == design
        ]
        yield Table(
            f"{design}, {WAYS['trained']}: all weights trained on the new task alone, or on both",
            ("weight r", *TOGETHER),
            tuple(rows),
            digits=3,
        )


def remarks(adapted: AdaptedBy, together: TogetherBy, *, unigram: float) -> Iterator[str]:
    """Say what rises and falls with r, and what that says about the notes."""
    unable = {place: seeds for place, seeds in together.items() if _learned_little(seeds, unigram)}
    yield from _left_out(unable, unigram)
    seeds = len(next(iter(together.values())))
    yield (
        "Below stand rank correlations with r: "
        + ("of 1 seed." if seeds == 1 else f"their mean and range over {seeds} seeds.")
        + f" Something rises or falls where each is at least {LEAST:g} in size."
    )
    cases: list[Mapping[float, Sequence[Adapted]]] = []
    for design, way, method in dict.fromkeys(key[:3] for key in adapted):
        part = {
            key[3]: found
            for key, found in adapted.items()
            if key[:3] == (design, way, method)
            # What is changed to r was trained with r = 1.
            and (design, key[3] if way == "trained" else 1.0) not in unable
        }
        if len(part) > 1:
            yield f"{design}, {WAYS[way]}, {method}: {_told(part)}"
            cases.append(part)
    for design in dict.fromkeys(key[0] for key in together):
        able = {
            key[1]: found
            for key, found in together.items()
            if key[0] == design and key not in unable
        }
        if len(able) > 1:
            yield _interference(design, able)
    yield from _concluded(cases)


def _concluded(cases: Sequence[Mapping[float, Sequence[Adapted]]]) -> Iterator[str]:
    """Answer the notes, by how many of the cases say what."""
    if not cases:
        yield "No case is left to judge by: train the bases for more steps."
        return
    ratio, output, gap = (
        [verdict(_by_seed(part, of)) for part in cases] for of in (_ratio, _output, _gap)
    )
    yield (
        "Does a larger residual weight drown the adapters? What they change is smaller beside the "
        f"stream in {ratio.count(FALLS)} of {len(cases)} cases, and moves the output less for its "
        f"size in {output.count(FALLS)}."
    )
    yield (
        "Does it hinder adaptation, the loss on the new task compared with that of the trained "
        f"base on the old one? It does in {gap.count(RISES)} of {len(cases)} cases, it helps in "
        f"{gap.count(FALLS)}, and {gap.count(UNDECIDED)} are undecided."
    )


def _told(part: Mapping[float, Sequence[Adapted]]) -> str:
    told = [f"{what} {_spoken(_by_seed(part, of))}" for what, of in _ASKED.items()]
    means = {weight: statistics.fmean(map(_after, seeds)) for weight, seeds in part.items()}
    ends = [f"{means[r]:.3f} at r = {r:g}" for r in (min(part), max(part))]
    best = min(means, key=means.__getitem__)
    return (
        f"as r grows, {', '.join(told)}. Loss on the new task: {' and '.join(ends)} nats, lowest "
        f"at r = {best:g} ({means[best]:.3f})."
    )


def _learned_little(seeds: Sequence[Together], unigram: float) -> bool:
    return max(one.old_before for one in seeds) > unigram - UNTRAINED


def _left_out(unable: TogetherBy, unigram: float) -> Iterator[str]:
    """Say which bases are left out, by which rule, with the numbers that it is about."""
    if not unable:
        return
    yield (
        "A base is left out below where its loss on the old task, in the worst seed, is less than "
        f"{UNTRAINED:g} nats below the unigram entropy {unigram:.3f}."
    )
    for design in dict.fromkeys(design for design, _ in unable):
        weights = ", ".join(
            f"r = {weight:g} ({_worst(seeds)})"
            for (name, weight), seeds in unable.items()
            if name == design
        )
        also = f", and so is all that is {WAYS['changed']}" if (design, 1.0) in unable else ""
        yield f"{design}, {WAYS['trained']}, left out: {weights}{also}."


def _worst(seeds: Sequence[Together]) -> str:
    """The loss of the worst seed, and the mean that stands in the tables."""
    found = [one.old_before for one in seeds]
    if len(found) == 1:
        return f"{found[0]:.3f}"
    return f"worst seed {max(found):.3f}, mean {statistics.fmean(found):.3f}"


def _interference(design: str, part: Mapping[float, Sequence[Together]]) -> str:
    cost = [one.new_both - one.new_alone for seeds in part.values() for one in seeds]
    lost = [one.old_alone - one.old_before for seeds in part.values() for one in seeds]
    slowed = _by_seed(part, lambda one: one.new_both - one.new_alone)
    forgotten = _by_seed(part, lambda one: one.old_alone - one.old_before)
    return (
        f"{design}, all weights: training on the old task too costs the new one "
        f"{statistics.fmean(cost):.3f} nats ({min(cost):.3f} to {max(cost):.3f}), which "
        f"{_spoken(slowed)} as r grows; training on the new task alone costs the old one "
        f"{statistics.fmean(lost):.3f} nats, which {_spoken(forgotten)}."
    )


def _by_seed(part: Mapping[float, Sequence[T]], of: Callable[[T], float]) -> list[float]:
    """The rank correlation of r with a number, seed by seed."""
    weights = list(part)
    columns = zip(*([of(one) for one in seeds] for seeds in part.values()), strict=True)
    return [spearman(weights, column) for column in columns]


def _spoken(found: Sequence[float]) -> str:
    """A verdict with the correlations that it rests on."""
    if len(found) == 1:
        return f"{verdict(found)} ({found[0]:.2f})"
    mean = statistics.fmean(found)
    return f"{verdict(found)} ({mean:.2f}, {min(found):.2f} to {max(found):.2f})"


def _after(one: Adapted) -> float:
    return one.new_after


def _ratio(one: Adapted) -> float:
    return one.heard.ratio


def _output(one: Adapted) -> float:
    return one.heard.output


def _gap(one: Adapted) -> float:
    return one.new_after - one.base


_ASKED: dict[str, Callable[[Adapted], float]] = {
    "the loss on the new task": _after,
    "that loss over the base's on the old task": _gap,
    "the loss on the old task afterwards": lambda one: one.old_after,
    "the update ratio": _ratio,
    "the output change per change of the updates": _output,
}
