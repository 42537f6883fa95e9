"""How far tokens still differ, layer by layer, with skip and MLP switched on and off.

The experiment of the long note, section 5 (after Dong, Cordonnier and Loukas 2021, arXiv
2103.03404): 10 random tokens of width 128 through 12 layers with one head, 32 samples, seed 0, in
four variants: attention only, with a skip, with an MLP, with both. The note drew |res X|_F in
float32 on a linear axis. Here the same draw is followed twice: in float32, which shows rounding
from the fourth layer on, and without cancellation, which shows the residual. The relative residual
|res X|_F / |X|_F stands beside it: a stream that grows can keep its absolute residual and lose the
relative one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from leadline.errors import Progress, no_progress
from leadline.experiments.outcome.outcome import Outcome
from leadline.experiments.rank_collapse import RankCollapseOptions
from leadline.experiments.rank_collapse.note_block import note_blocks
from leadline.instruments.collapse.measure import follow
from leadline.reading.show.panels import Line

__all__ = ["VARIANTS", "rank_collapse"]

VARIANTS = {
    "SAN only": (False, False),
    "skip only": (True, False),
    "MLP only": (False, True),
    "skip + MLP": (True, True),
}
"""Skip and MLP of each variant, in the order of the note, which decides what is drawn for each."""
DRAWN, TRUE, RELATIVE = (
    "|res X|_F as the note drew it",
    "log₁₀ |res X|_F",
    "log₁₀ |res X|_F / |X|_F",
)
COLLAPSED = -3.0
"""The logarithm of the relative residual below which tokens count as collapsed."""
SMALL = -1.0
"""The logarithm of a residual below which its growth is compared with the cubic law's."""
STEADY, STEADY_LAYERS = 2.0, 4
"""An exponential fall: the factors of so many last layers lie within this ratio of one another."""
KEPT = 0.9
"""The share of a residual that must be left so that it counts as kept."""
Curve = NDArray[np.float64]


@dataclass(frozen=True)
class Variant:
    """The curves of one variant, site 0 to depth, all as log10 of means over the samples."""

    name: str
    float32: Curve
    float32_relative: Curve
    true: Curve
    relative: Curve
    median: float
    """log10 of the residual of the median sample after the last layer."""
    error: float

    @property
    def floor(self) -> int | None:
        """The first layer at which float32 shows more rounding than residual."""
        apart = np.abs(self.float32 - self.true)
        return next((i for i, off in enumerate(apart) if off > math.log10(2)), None)


def rank_collapse(
    options: RankCollapseOptions | None = None,
    *,
    progress: Progress = no_progress,
) -> Outcome:
    """Residual by layer with skip and MLP switched on and off: float32 beside the truth."""
    options = options or RankCollapseOptions()
    options.check()
    found: list[Variant] = []
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.default_generator.manual_seed(options.seed)
        for number, name in enumerate(VARIANTS):
            found.append(
                _followed(
                    options,
                    name,
                    lambda done, at=number, what=name: progress(
                        what, at * options.samples + done, len(VARIANTS) * options.samples
                    ),
                )
            )
    return Outcome(
        experiment="rank-collapse",
        title=f"How far tokens still differ: {options.depth} layers, {_mask(options)}",
        value_label="",
        lines=tuple(_lines(found)),
        remarks=tuple(_remarks(found, options)),
        records={},
        start=0,
        scales={TRUE: "exponent", RELATIVE: "exponent"},
        captioned=True,
    )


def _followed(options: RankCollapseOptions, name: str, done: Callable[[int], None]) -> Variant:
    skip, mlp = VARIANTS[name]
    blocks = note_blocks(
        options.depth,
        options.width,
        options.heads,
        mlp=mlp,
        skip=skip,
        norm=options.norm,
        causal=options.causal,
    )
    x = torch.randn(options.samples, options.tokens, options.width)
    shown = [_residuals(x)]
    y = x
    for block in blocks:
        y = block(y)
        shown.append(_residuals(y))
    plain, over = (np.stack([one[i] for one in shown]) for i in (0, 1))
    true, relative, errors = [], [], []
    for number, sample in enumerate(x):
        done(number)
        one = follow(list(blocks), sample, causal=options.causal, seed=options.seed)
        true.append(one.log10_residual)
        relative.append(one.log10_relative)
        errors.append(one.error)
    return Variant(
        name,
        _mean_log(plain.T),
        _mean_log(over.T),
        _mean_log(np.stack(true)),
        _mean_log(np.stack(relative)),
        float(np.median([one[-1] for one in true])),
        float(np.max(errors)),
    )


def _residuals(x: torch.Tensor) -> tuple[Curve, Curve]:
    """log10 of the residual and the relative residual of each sample, as the note computes it."""
    apart = (x - x.mean(1, keepdim=True)).flatten(1).norm(dim=1).double().numpy()
    whole = x.flatten(1).norm(dim=1).double().numpy()
    with np.errstate(divide="ignore"):
        return np.log10(apart), np.log10(apart / whole)


def _mean_log(logs: Curve) -> Curve:
    """log10 of the mean over the samples of numbers that are given as logarithms."""
    top = logs.max(0)
    with np.errstate(invalid="ignore"):
        spread = np.where(np.isneginf(top), 0.0, logs - top)
    return top + np.log10(np.mean(10.0**spread, axis=0))


def _lines(found: list[Variant]) -> Iterator[Line]:
    for one in found:
        drawn = tuple(float(v) for v in 10.0**one.float32)
        yield Line(DRAWN, one.name, drawn, facts={"model": one.name})
    for panel, exact, rounded in (
        (TRUE, "true", "float32"),
        (RELATIVE, "relative", "float32_relative"),
    ):
        for one in found:
            facts = {"model": one.name}
            yield Line(panel, one.name, _tuple(getattr(one, exact)), facts=facts)
            if one.floor is None:
                continue  # float32 shows the same
            shown = _tuple(getattr(one, rounded))
            yield Line(panel, f"{one.name}, in float32", shown, faint=True, facts=facts)


def _tuple(curve: Curve) -> tuple[float, ...]:
    return tuple(float(value) for value in curve)


def _mask(options: RankCollapseOptions) -> str:
    return "causal" if options.causal else "no mask"


def _remarks(found: list[Variant], options: RankCollapseOptions) -> Iterator[str]:
    by_name = {one.name: one for one in found}
    san, skip, mlp, both = (by_name[name] for name in VARIANTS)
    if options.norm != "none":
        yield (
            f"A {options.norm} stands before attention, so this is not the pure self-attention "
            "network of the theorem; --norm none takes it away."
        )
    for one in (san, mlp):
        if one.floor is not None:
            yield (
                f"{one.name}: from layer {one.floor} on float32 shows rounding, not the residual: "
                f"{_power(one.float32[one.floor])} where it is {_power(one.true[one.floor])}; at "
                f"layer {options.depth} {_power(one.float32[-1])} where it is "
                f"{_power(one.true[-1])}."
            )
    yield from _rates(san, options)
    yield _without_skip(san, mlp)
    yield _with_skip(skip, both)
    worst = max(one.error for one in found)
    yield f"Relative error of the residuals, estimated: at most {worst:.1e}."


def _without_skip(san: Variant, mlp: Variant) -> str:
    """Say what the MLP does without a skip: a collapse is one only where both streams show it."""
    ends = (
        f"after the last layer the residual, as the mean over the samples, is "
        f"{_power(mlp.true[-1])} with the MLP and {_power(san.true[-1])} without it, in the median "
        f"sample {_power(mlp.median)} and {_power(san.median)}."
    )
    if max(san.relative[-1], mlp.relative[-1]) < COLLAPSED:
        return (
            f"Without a skip the MLP does not stop the collapse: {ends} Its Lipschitz constant "
            "enters an upper bound only."
        )
    return f"Without a skip: {ends}"


def _with_skip(skip: Variant, both: Variant) -> str:
    kept = all(one.true[-1] >= one.true[0] + math.log10(KEPT) for one in (skip, both))
    lost = all(one.relative[-1] < one.relative[0] + math.log10(KEPT) for one in (skip, both))
    end = ": what is kept is the absolute one" if kept and lost else ""
    return (
        f"With a skip the residual goes from {10.0 ** skip.true[0]:.4g} to "
        f"{10.0 ** skip.true[-1]:.4g}, with skip and MLP from {10.0 ** both.true[0]:.4g} to "
        f"{10.0 ** both.true[-1]:.4g}; the relative residual goes from "
        f"{10.0 ** skip.relative[0]:.3f} to {10.0 ** skip.relative[-1]:.3f} and from "
        f"{10.0 ** both.relative[0]:.3f} to {10.0 ** both.relative[-1]:.3f}{end}."
    )


def _rates(san: Variant, options: RankCollapseOptions) -> Iterator[str]:
    """Say how fast the residual falls, and name a law only where the last layers follow it."""
    if len(san.true) < 3 or not np.isfinite(san.true[-1]):
        return
    if options.causal:
        steps = np.diff(san.true)[-STEADY_LAYERS:]
        steady = len(steps) == STEADY_LAYERS and float(np.ptp(steps)) < math.log10(STEADY)
        falling = float(steps.max()) < 0.0
        law = "collapse is only exponential: the " if steady and falling else ""
        yield (
            f"With a causal mask the {law}last layer changes the residual by a factor of "
            f"{10.0 ** steps[-1]:.3f}."
        )
    elif san.true[-2] < SMALL:
        ratio = san.true[-1] / san.true[-2]
        yield f"The logarithm of the residual grows {ratio:.4f} times in the last layer (cubic: 3)."


def _power(log: float) -> str:
    """A number given as its logarithm, as one would write it."""
    if not math.isfinite(log):
        return "0"
    return f"{10.0**log:.2g}" if abs(log) < 100 else f"10^{log:.6g}"
