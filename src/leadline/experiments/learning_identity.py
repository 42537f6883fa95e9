"""Is it easier to learn F = 0 or F = x?

The exercise of the card note: a block with a skip, x + F(x), is the identity map where F = 0; one
without, F(x), where F = x. Here blocks F(x) = W2 relu(W1 x + b1) + b2 with a hidden width of four
times the width are trained to be the identity on standard normal vectors (mean squared error, Adam,
fresh vectors at every step, the same for all cases of a seed): one block and a row of them, with
and without skip. Both can: with a hidden width of twice the width, relu(x) - relu(-x) = x.

The answer depends on the start, so there are two, with biases 0 and normal weights:

    small   variances 1 / (3 d) and 1 / (3 h), those of torch's own linear layers:
            E|F|^2 = |x|^2 / 18, so a row without skip starts near zero, one with skip near x
    kept    variances 2 / d and 1 / h (He et al. 2015, arXiv 1502.01852, for the first):
            E|F|^2 = |x|^2, so a row without skip keeps its signal, and one with skip starts with a
            stream whose mean square doubles in every block

Reported are the error at the end, the mean over fresh vectors with its standard error over the
seeds, and |F| / |x| of the blocks: where the weights went. A single number is compared by its
logarithm seed by seed: the answer names a winner only where the mean difference of log10 is larger
than two of its standard errors. One seed has none, and gets no winner.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leadline.errors import InputError, Progress, no_progress
from leadline.experiments.experiment import EXPERIMENTS, TRAINING, ExperimentOptions, option

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from leadline.experiments.outcome.outcome import Outcome
    from leadline.reading.show.panels import Line, Table

    Curve = NDArray[np.float64]

__all__ = ["READINGS", "STARTS", "IdentityCase", "LearningIdentityOptions", "learning_identity"]

READINGS = 50
"""So many times the error is read during the training."""
STARTS = {"small": (1 / 3, 1 / 3), "kept": (2.0, 1.0)}
"""The variances of W1 and W2, times the number of inputs of the matrix."""
JUDGED = 1024
"""So many fresh vectors judge what was learned."""
SURE = 2.0
"""A winner is named where the difference is so many standard errors."""
UNLEARNED = 0.9
"""Whoever answers 0 has an error of 1; a case that stays above this has learned nearly nothing."""


@EXPERIMENTS.register("learning-identity")
@dataclass(frozen=True)
class LearningIdentityOptions(ExperimentOptions):
    """Is it easier to learn F = 0 or F = x? Blocks trained to be the identity, in seconds.

    One ReLU block and a row of them, with and without skip, from two starts.
    """

    group = TRAINING
    redoes = "the exercise of the card note"
    work = "leadline.experiments.learning_identity:learning_identity"
    beginning = "Drawing the blocks"

    blocks: int = option(12, "Blocks of the row that is trained beside the single block.", least=2)
    width: int = option(32, "Features.", least=1)
    steps: int = option(400, "Training steps.", least=1)
    seeds: int = option(5, "How often each is trained.", least=1)
    batch: int = option(64, least=1)
    rate: float = 1e-3

    def check(self) -> None:
        """Refuse what cannot be trained, with what to change."""
        super().check()
        if self.seed < 0:
            raise InputError(f"seed is {self.seed}; give a whole number from 0 on.")
        if not (self.rate > 0 and math.isfinite(self.rate)):
            raise InputError(f"rate is {self.rate}; give a learning rate above 0.")

    @property
    def readings(self) -> tuple[int, ...]:
        """The steps at which the error is read, the first and the last among them."""
        count = min(READINGS, self.steps)
        return tuple(sorted({round(k * self.steps / count) for k in range(count + 1)}))


@dataclass(frozen=True)
class IdentityCase:
    """One of the eight trainings, all seeds of it; arrays are [reading, seed] or [block, seed]."""

    blocks: int
    skip: bool
    start: str
    curve: Curve
    error: Curve
    """The mean squared error on fresh vectors after the last step, by seed."""
    first: Curve
    last: Curve
    """|F| / |x| of every block before the first and after the last step."""

    @property
    def name(self) -> str:
        """What the case is called."""
        skip = "with skip, F = 0" if self.skip else "no skip, F = x"
        return f"{skip}, {self.start} start"


def learning_identity(
    options: LearningIdentityOptions | None = None,
    *,
    progress: Progress = no_progress,
) -> Outcome:
    """Blocks with and without skip trained to be the identity: which is learned better?"""
    from leadline.experiments.outcome.outcome import Outcome
    from leadline.reading.show.panels import Places

    options = options or LearningIdentityOptions()
    options.check()
    places = [
        (blocks, start, skip)
        for blocks in (1, options.blocks)
        for start in STARTS
        for skip in (False, True)
    ]
    found: list[IdentityCase] = []
    for number, (blocks, start, skip) in enumerate(places):
        progress(f"{_blocks(blocks)}, {'skip' if skip else 'no skip'}", number, len(places))
        found.append(trained(options, blocks=blocks, skip=skip, start=start))
    panels = {blocks: _panel(blocks) for blocks in (1, options.blocks)}
    steps = Places("step", tuple(float(step) for step in options.readings))
    return Outcome(
        experiment="learning-identity",
        title="Blocks trained to be the identity map: is F = 0 or F = x learned better?",
        value_label="",
        lines=tuple(_line(case) for case in found),
        remarks=tuple(_remarks(found, options)),
        records={},
        axis="step",
        scales=dict.fromkeys(panels.values(), "own"),
        tables=tuple(_table(found, blocks) for blocks in panels),
        captioned=True,
        places=dict.fromkeys(panels.values(), steps),
    )


# --- training --------------------------------------------------------------------------------


def drawn(options: LearningIdentityOptions, *, blocks: int, start: str) -> list[list[Tensor]]:
    """W1, b1, W2, b2 of every block, all seeds side by side: [seed, in, out]."""
    import torch

    width, hidden = options.width, 4 * options.width
    first, second = STARTS[start]
    generators = [
        torch.Generator().manual_seed(1000 * (options.seed + seed)) for seed in range(options.seeds)
    ]

    def normal(rows: int, columns: int, variance: float) -> Tensor:
        one = [torch.randn(rows, columns, generator=g) for g in generators]
        return torch.stack(one) * math.sqrt(variance / rows)

    return [
        [
            normal(width, hidden, first),
            torch.zeros(options.seeds, 1, hidden),
            normal(hidden, width, second),
            torch.zeros(options.seeds, 1, width),
        ]
        for _ in range(blocks)
    ]


def mapped(x: Tensor, weights: list[list[Tensor]], *, skip: bool) -> tuple[Tensor, list[Tensor]]:
    """What the blocks make of x [seed, example, width], and |F| / |x| of each block by seed."""
    import torch

    shares: list[Tensor] = []
    for up, lift, down, shift in weights:
        u = torch.baddbmm(shift, torch.baddbmm(lift, x, up).relu(), down)
        with torch.no_grad():
            shares.append(u.flatten(1).norm(dim=1) / x.flatten(1).norm(dim=1))
        x = x + u if skip else u
    return x, shares


def trained(
    options: LearningIdentityOptions, *, blocks: int, skip: bool, start: str
) -> IdentityCase:
    """Train one case, all seeds at once: Adam moves every number by itself, so none meet."""
    import torch

    weights = drawn(options, blocks=blocks, start=start)
    flat = [one.requires_grad_() for block in weights for one in block]
    adam = torch.optim.Adam(flat, lr=options.rate)
    generators = [
        torch.Generator().manual_seed(1000 * (options.seed + seed) + 1)
        for seed in range(options.seeds)
    ]

    def vectors(count: int) -> Tensor:
        return torch.stack([torch.randn(count, options.width, generator=g) for g in generators])

    curve: list[Tensor] = []
    judged = vectors(JUDGED)
    with torch.no_grad():
        _, first = mapped(judged, weights, skip=skip)
    for step in range(options.steps + 1):
        x = vectors(options.batch)
        y, _ = mapped(x, weights, skip=skip)
        error = (y - x).square().mean((1, 2))
        if step in options.readings:
            curve.append(error.detach())
        if step == options.steps:
            break
        adam.zero_grad()
        error.sum().backward()
        adam.step()
    with torch.no_grad():
        y, last = mapped(judged, weights, skip=skip)
        end = (y - judged).square().mean((1, 2))
    return IdentityCase(
        blocks=blocks,
        skip=skip,
        start=start,
        curve=_numbers(torch.stack(curve)),
        error=_numbers(end),
        first=_numbers(torch.stack(first)),
        last=_numbers(torch.stack(last)),
    )


def _numbers(tensor: Tensor) -> Curve:
    return tensor.double().numpy()


# --- what is shown ---------------------------------------------------------------------------


def _blocks(count: int) -> str:
    return "1 block" if count == 1 else f"{count} blocks"


def _panel(blocks: int) -> str:
    return f"{_blocks(blocks)}: log₁₀ of the mean squared error"


def _line(case: IdentityCase) -> Line:
    import numpy as np

    from leadline.reading.show.panels import Line

    logs = np.log10(case.curve)
    return Line(
        _panel(case.blocks),
        case.name,
        tuple(float(v) for v in logs.mean(1)),
        faint=case.start != next(iter(STARTS)),
        facts={"model": "with skip" if case.skip else "no skip", "start": case.start},
        errors=tuple(standard_error(row) for row in logs),
    )


def standard_error(values: Curve) -> float:
    """That of the mean; NaN for one seed."""
    return float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else math.nan


def _table(found: list[IdentityCase], blocks: int) -> Table:
    from leadline.reading.show.panels import Table

    some = [case for case in found if case.blocks == blocks]
    return Table(
        f"{_blocks(blocks)}: mean squared error after the last step, and |F| / |x|",
        ("MSE", "± (s.e.)", "lowest", "highest", "|F|/|x| first", "|F|/|x| last"),
        tuple(
            (
                float(case.error.mean()),
                standard_error(case.error),
                float(case.error.min()),
                float(case.error.max()),
                float(case.first.mean()),
                float(case.last.mean()),
            )
            for case in some
        ),
        digits=3,
        names=tuple(case.name for case in some),
    )


def advantage(plain: IdentityCase, skip: IdentityCase) -> tuple[float, float]:
    """log10 of the error without skip over that with it: the mean over the seeds, its error."""
    import numpy as np

    apart = np.log10(plain.error) - np.log10(skip.error)
    return float(apart.mean()), standard_error(apart)


def verdict(plain: IdentityCase, skip: IdentityCase) -> str:
    """Which of two cases ends with the smaller error, and by how much; "" where nobody wins."""
    apart, error = advantage(plain, skip)
    if math.isnan(error) or abs(apart) <= SURE * error:
        return ""
    return "F = 0" if apart > 0 else "F = x"


def _remarks(found: list[IdentityCase], options: LearningIdentityOptions) -> Iterator[str]:
    winners: dict[str, str] = {}
    for blocks in (1, options.blocks):
        for start in STARTS:
            plain, skip = (
                next(c for c in found if (c.blocks, c.start, c.skip) == (blocks, start, with_skip))
                for with_skip in (False, True)
            )
            won = verdict(plain, skip)
            winners[f"{_blocks(blocks)}, {start} start"] = won
            yield _compared(plain, skip, won)
    yield _answer(winners, options)
    yield from _unlearned(found)


def _compared(plain: IdentityCase, skip: IdentityCase, won: str) -> str:
    apart, error = advantage(plain, skip)
    if math.isnan(error):
        told = (
            f"{10.0**apart:.3g} times as large without as with it in this one seed, which has no "
            "spread to judge that by"
        )
    else:
        times = f"{10.0 ** abs(apart):.3g} times smaller (× or ÷ {10.0**error:.2f})"
        better = {"F = 0": f"with skip {times}", "F = x": f"without skip {times}"}
        told = better.get(won, "no difference beyond the spread of the seeds")
    return (
        f"{_blocks(plain.blocks)}, {plain.start} start: the error is {plain.error.mean():.2g} "
        f"without skip and {skip.error.mean():.2g} with it, "
        f"{told}; |F| / |x| went from {plain.first.mean():.2f} to {plain.last.mean():.2f} without "
        "skip (F = x is 1) and from "
        f"{skip.first.mean():.2f} to {skip.last.mean():.2f} with it (F = 0 is 0)."
    )


def _answer(winners: dict[str, str], options: LearningIdentityOptions) -> str:
    """The answer to the exercise, with its conditions."""
    sides = {side: [w for w, won in winners.items() if won == side] for side in ("F = 0", "F = x")}
    after = f"after {options.steps} steps"
    if options.seeds == 1:
        return (
            f"One seed has no spread, so nothing is said about which is learned better {after}: "
            "ask for two seeds or more."
        )
    zero, one = (sides[side] for side in ("F = 0", "F = x"))
    if len(zero) == len(winners):
        return f"F = 0 is learned better in every case {after}."
    if not zero and not one:
        return f"No case shows a difference beyond the spread of the seeds {after}."
    parts = [f"{side} is learned better with {' or '.join(w)}" for side, w in sides.items() if w]
    undecided = [where for where, won in winners.items() if not won]
    rest = f"; undecided: {'; '.join(undecided)}" if undecided else ""
    return f"The answer depends on the start {after}: {', but '.join(parts)}{rest}."


def _unlearned(found: list[IdentityCase]) -> Iterator[str]:
    """Name what is no better than the answer 0, whose error is 1."""
    poor = [case for case in found if float(case.error.min()) > UNLEARNED]
    if poor:
        names = "; ".join(f"{_blocks(case.blocks)}, {case.name}" for case in poor)
        yield f"Not or hardly better than always answering 0, whose error is 1: {names}."
