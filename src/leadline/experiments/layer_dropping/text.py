"""What was found in layer dropping, as lines and sentences: computed, never typed."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from leadline.errors import join_words
from leadline.reading.show.panels import Line, Table

__all__ = ["EVENLY", "FREE", "RANDOM", "Dropped", "Model", "lines", "remarks", "tables"]

EVENLY, RANDOM = "dropped evenly", "dropped at random"
FREE = 0.1
"""A layer counts as free where the loss rises by fewer nats without it."""
UNTRAINED = 0.3
"""A model whose loss is not so many nats below the unigram entropy has learned frequencies alone."""


@dataclass(frozen=True)
class Dropped:
    """Validation losses of one trained model, by the number of layers dropped from 0 on."""

    evenly: tuple[float, ...]
    at_random: tuple[float, ...]
    spread: tuple[float, ...]
    """The standard deviation over the choices of layers."""
    curve: tuple[tuple[int, float], ...]
    """Validation losses during training: step and loss."""

    def at(self, step: float) -> float:
        """The loss at a step of the training, on the line between the readings around it."""
        for (first, before), (last, after) in pairwise(self.curve):
            if step <= last:
                return before + (after - before) * (step - first) / (last - first)
        return self.curve[-1][1]


@dataclass(frozen=True)
class Model:
    """What was found of one connection, seed by seed."""

    connection: str
    seeds: tuple[Dropped, ...]
    time: float
    """Of a training step, over that of the first model."""
    expected: float
    """The mean of 1 - p_l."""

    @property
    def name(self) -> str:
        return "plain" if self.connection == "identity" else self.connection

    def mean(self, what: str) -> list[float]:
        """The mean over the seeds, by the number of layers dropped."""
        columns = zip(*(getattr(one, what) for one in self.seeds), strict=True)
        return [statistics.fmean(column) for column in columns]


def lines(found: Sequence[Model]) -> Iterator[Line]:
    """Yield the loss over the layers left out, evenly and at random."""
    for panel, what in ((EVENLY, "evenly"), (RANDOM, "at_random")):
        for model in found:
            facts = {
                "model": model.name,
                "connection": model.connection,
                "seeds": [list(getattr(one, what)) for one in model.seeds],
                "step_time": model.time,
                "computed_share": model.expected,
            }
            if what == "at_random":
                facts["spread"] = model.mean("spread")
            yield Line(panel, model.name, tuple(model.mean(what)), facts=facts)


def tables(found: Sequence[Model]) -> Iterator[Table]:
    """Yield the table of what a training step costs."""
    yield Table(
        "a training step over the plain one",
        ("time", "expected share of the layers"),
        tuple((model.time, model.expected) for model in found),
        names=tuple(model.name for model in found),
    )


def remarks(found: Sequence[Model], unigram: float) -> Iterator[str]:
    """Yield what the losses say, in sentences."""
    plain, *others = found
    yield from _hardly_trained(found, unigram)
    depth, seeds = len(plain.seeds[0].evenly), len(plain.seeds)
    whole = ", ".join(f"{m.name} {_over_seeds([s.evenly[0] for s in m.seeds])}" for m in found)
    yield (
        f"Validation loss with all {depth} layers, mean and range over {seeds} "
        f"{_seeds(seeds)}: {whole} nats (unigram entropy {unigram:.3f})."
    )
    for part in dict.fromkeys((max(1, depth // 4), depth // 2)):
        rises = ", ".join(
            f"{m.name} {_over_seeds([s.evenly[part] - s.evenly[0] for s in m.seeds])}"
            for m in found
        )
        yield f"Rise of the loss with {part} of {depth} layers dropped evenly: {rises}."
    free = ", ".join(f"{m.name} {min(_free(s.evenly) for s in m.seeds)}" for m in found)
    yield (
        f"Layers that can be dropped evenly for less than {FREE:g} nats, in the worst seed: {free}."
    )
    for model in others:
        yield _compared(model, plain)
    spread = ", ".join(f"{m.name} {max(m.mean('spread')):.2f}" for m in found)
    yield f"Largest standard deviation over random choices of layers: {spread} nats."
    for model in others:
        yield _priced(model, plain)


def _hardly_trained(found: Sequence[Model], unigram: float) -> Iterator[str]:
    """Name the models whose whole loss, in some seed, is still near the unigram entropy."""
    near = [m.name for m in found if max(s.evenly[0] for s in m.seeds) > unigram - UNTRAINED]
    if near:
        yield (
            f"Hardly trained: {', '.join(near)}. In the worst seed the loss with all layers is less "
            f"than {UNTRAINED:g} nats below the unigram entropy {unigram:.3f}, so what is said "
            "below about dropping layers means little; train for more steps."
        )


def _priced(model: Model, plain: Model) -> str:
    """The time of a step, and the plain model that was trained for the same time."""
    steps = model.time * plain.seeds[0].curve[-1][0]
    reached = [one.at(steps) for one in plain.seeds]
    own = [one.evenly[0] for one in model.seeds]
    lower = sum(mine < theirs for mine, theirs in zip(own, reached, strict=True))
    return (
        f"{model.name}: a training step takes {model.time:.2f} of the time of a plain one (the "
        f"expected share of the layers is {model.expected:.2f}). After the same time the plain "
        f"model has made {steps:.0f} steps and its loss is {_over_seeds(reached)}; this one's, "
        f"whole, is {_over_seeds(own)}: lower in {lower} of {len(own)} {_seeds(len(own))}."
    )


def _compared(model: Model, plain: Model) -> str:
    """From how many dropped layers on a model is better than the plain one, in every seed."""
    pairs = list(zip(model.seeds, plain.seeds, strict=True))
    depth = len(plain.seeds[0].evenly)
    better = [all(m.evenly[k] < p.evenly[k] for m, p in pairs) for k in range(depth)]
    worse = [all(m.evenly[k] > p.evenly[k] for m, p in pairs) for k in range(depth)]
    lower = [str(k) for k in range(depth) if better[k]]
    higher = [str(k) for k in range(depth) if worse[k]]
    told = (
        f"below the plain model's in every seed with {join_words(lower)} layers dropped evenly"
        if lower
        else "below the plain model's in every seed at no number of layers dropped evenly"
    )
    end = f", above it in every seed with {join_words(higher)}" if higher else ""
    return f"{model.name}: its loss is {told}{end}."


def _free(losses: Sequence[float]) -> int:
    """How many layers can be dropped before the loss has risen by `FREE`."""
    return next(
        (k - 1 for k, loss in enumerate(losses) if loss - losses[0] > FREE), len(losses) - 1
    )


def _over_seeds(values: Sequence[float]) -> str:
    mean = statistics.fmean(values)
    if len(values) == 1:
        return f"{mean:.3f}"
    return f"{mean:.3f} ({min(values):.3f} to {max(values):.3f})"


def _seeds(count: int) -> str:
    return "seed" if count == 1 else "seeds"
