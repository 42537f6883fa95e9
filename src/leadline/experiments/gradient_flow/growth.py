"""What the parts of the gradient-flow experiment found, and the fits that are drawn from it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from leadline.experiments.gradient_flow.jacobians import Blocks, Norms
from leadline.experiments.gradient_flow.starts import DESIGNS, Start
from leadline.experiments.gradient_flow.training import TrainedDesigns
from leadline.experiments.outcome.exponent import Exponent, fit_exponent
from leadline.parts import Recipe
from leadline.reading.bounds.depth.facts import EPS
from leadline.theory.depth import DepthFacts

__all__ = [
    "FITTED_FROM",
    "Fit",
    "FlowGrowth",
    "facts_of",
    "fitted",
    "mean_error",
    "mean_errors",
    "straight",
]

FITTED_FROM = 12
"""Exponents are fitted from this depth on where there are two: below, the power law is not
reached, since the mean square of the entry still counts."""


@dataclass(frozen=True)
class FlowGrowth:
    """All numbers of one run of the experiment."""

    starts: tuple[Start, ...]
    overflowed: Mapping[int, bool]
    """By depth: whether the design without norms overflows float32, at the first seed."""
    blocks: tuple[Blocks, ...]
    norms: tuple[Norms, ...]
    trained: tuple[TrainedDesigns, ...]

    @property
    def depths(self) -> list[int]:
        """The depths that were measured before training."""
        return sorted({one.depth for one in self.starts})

    @property
    def deepest(self) -> int:
        """The deepest of them."""
        return self.depths[-1]

    def at(self, design: str, depth: int) -> list[Start]:
        """The untrained models of one design and depth, a seed each."""
        return [one for one in self.starts if (one.design, one.depth) == (design, depth)]

    def whole(self, design: str, depth: int) -> bool:
        """Whether every number of every seed is finite."""
        found = self.at(design, depth)
        return bool(found) and all(one.finite for one in found)

    def squares(self, design: str) -> tuple[float, ...]:
        """The mean square at every site of the deepest models of a design, the mean over seeds."""
        several = [one.squares for one in self.at(design, self.deepest)]
        return tuple(mean_error(column)[0] for column in zip(*several, strict=True))

    def exponent(self, design: str, number: Callable[[Start], float]) -> Exponent | None:
        """The power of the depth with which a number grows; None where fewer than two depths fit."""
        depths = fitted([d for d in self.depths if self.whole(design, d)])
        if len(depths) < 2:
            return None
        seeds = sorted({one.seed for one in self.starts})
        values = {
            seed: [number(one) for d in depths for one in self.at(design, d) if one.seed == seed]
            for seed in seeds
        }
        return fit_exponent(depths, values)


@dataclass(frozen=True)
class Fit:
    """A straight line by least squares, and the share of the variance that it explains."""

    slope: float
    r2: float


def fitted(depths: Sequence[int]) -> list[int]:
    """The depths that an exponent is fitted over."""
    deep = [depth for depth in depths if depth >= FITTED_FROM]
    return deep if len(deep) > 1 else list(depths)


def straight(x: Sequence[float], y: Sequence[float]) -> Fit:
    """The line through the points."""
    one, other = np.asarray(x, float), np.asarray(y, float)
    one, other = one - one.mean(), other - other.mean()
    slope = float(one @ other / (one @ one))
    left = other - slope * one
    total = float(other @ other)
    return Fit(slope, 1.0 - float(left @ left) / total if total > 0 else math.nan)


def mean_error(values: Sequence[float]) -> tuple[float, float]:
    """The mean and its standard error, NaN for one value."""
    found = np.asarray(values, float)
    count = len(found)
    return float(found.mean()), float(
        found.std(ddof=1) / math.sqrt(count)
    ) if count > 1 else math.nan


def mean_errors(columns: Iterable[Sequence[float]]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The mean of every column, and its standard error; NaN where a column is empty."""
    pairs = [mean_error(column) if column else (math.nan, math.nan) for column in columns]
    return tuple(mean for mean, _ in pairs), tuple(error for _, error in pairs)


def facts_of(design: str, depth: int, *, width: int, mean_square: Sequence[float]) -> DepthFacts:
    """What the laws of depth ask about an untrained model of a design with the plain sum x + u."""
    recipe = Recipe(depth=depth, width=width, **{"init": "xavier", **DESIGNS[design]})
    init = recipe.choice("init")
    connection = recipe.choice("connection").name
    plain = 1.0 if connection == "identity" else None
    norm = recipe.choice("norm")
    eps = norm.options.get("eps", EPS.get(norm.name))
    scale = init.options.get("std" if init.name == "gpt2" else "gain", 1.0)
    return DepthFacts(
        depth=depth,
        width=width,
        connection=connection,
        placement=recipe.choice("placement").name,
        init=init.name,
        init_scale=float(scale) if isinstance(scale, int | float) else None,
        norm=norm.name,
        norm_eps=float(eps) if isinstance(eps, int | float) else None,
        mlp=recipe.choice("mlp").name,
        hidden_ratio=4.0,
        attention=recipe.choice("attention").name,
        branches=recipe.branches,
        final_norm=True,
        initial=True,
        keep=plain,
        gain=plain,
        mean_square=tuple(mean_square),
    )
