"""Laws of depth beside what was measured: which sites lie in the band, and the exponents.

    along layers    the mean over seeds at every site, with its standard error, beside the band.
                    A law about the mean over weights holds at a depth where every site lies in the
                    band, or outside by at most two standard errors; a strict one where every site
                    of every model does, but for the estimated error of its singular values.
    over depth      the exponent of a power of the depth, fitted seed by seed, with its standard
                    error; the law holds where the two differ by at most 0.1

A band says something about exponents too. What is fitted is m_L - m_0, or log(m_L / m_0) where a
law multiplies. Least squares gives a slope that is linear in the logarithms, sum x log y / sum x²
with x = log L less its mean, so a line inside of the band has its largest exponent at the upper end
where x > 0 and at the lower end where x < 0, its smallest the other way round. A measured exponent
is compared with these two, and told beside those of the two ends themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from leadline.experiments.depth_laws.cases import CASES, LawCase, Seen, bands_of, checked, law_of
from leadline.experiments.gradient_flow.growth import mean_errors
from leadline.experiments.outcome.exponent import Exponent, fit_exponent
from leadline.theory.depth import Band, DepthFacts

__all__ = [
    "SLACK",
    "SYMBOLS",
    "TOLERANCE",
    "Beside",
    "LawVerdicts",
    "Power",
    "allowed",
    "at_depth",
    "judged",
]

SLACK = 2.0
"""So many standard errors may the mean over seeds lie outside of the band."""
TOLERANCE = 0.1
"""So far may a fitted exponent be from that of a law over depth, which is one of infinite depth."""
ROUNDING = 1e-9
"""A fitted slope below this is 0: a constant that was summed layer by layer."""
SYMBOLS = {
    "stream.variance": "m_l",
    "jacobian.through": "σ₁",
    "gradient.parameters": "|∂L/∂W₂| of the last block",
    "update.ratio": "|u| / |x| of the MLPs",
}
"""How a quantity is written."""


@dataclass(frozen=True)
class Beside:
    """A law along layers and its measurement at one depth, sites 0 ... L."""

    case: LawCase
    depth: int
    values: tuple[float, ...]
    """The mean over seeds."""
    errors: tuple[float, ...]
    """Its standard error."""
    bands: tuple[Band, ...]
    sites: int
    """How many sites were compared: 1 ... L, of every model where the law is strict."""
    inside: int
    near: int
    """So many of them inside of the band, without and with slack."""

    @property
    def holds(self) -> bool:
        """Whether every site is inside, with slack."""
        return self.near == self.sites


@dataclass(frozen=True)
class Power:
    """A fitted exponent and what the law says of it."""

    case: LawCase
    what: str
    fit: Exponent
    least: float
    most: float
    """A law over depth: its exponent, twice. A band: the least and the most that it leaves room for."""
    ends: Band
    """The exponents of the two ends of the band."""

    @property
    def holds(self) -> bool:
        """Whether the exponent is as the law says."""
        over_depth = law_of(self.case).along == "depth"
        slack = TOLERANCE if over_depth else SLACK * self.fit.error
        return self.least - slack <= self.fit.slope <= self.most + slack


@dataclass(frozen=True)
class LawVerdicts:
    """Everything that was measured, law by law."""

    seen: Mapping[str, tuple[Seen, ...]]
    """By the title of the case."""
    besides: tuple[Beside, ...]
    powers: tuple[Power, ...]

    def of(self, case: LawCase) -> list[Beside]:
        """The depths of one law along layers."""
        return [one for one in self.besides if one.case is case]


def at_depth(several: Sequence[Seen], depth: int) -> list[Seen]:
    """The models of one depth, a seed each."""
    return [one for one in several if one.depth == depth]


def judged(seen: Mapping[str, tuple[Seen, ...]]) -> LawVerdicts:
    """Set every law beside what was seen of it, by the title of its case."""
    besides = [
        _beside(case, depth, at_depth(seen[case.title], depth))
        for case in CASES
        if law_of(case).along == "layers"
        for depth in sorted({one.depth for one in seen[case.title]})
    ]
    return LawVerdicts(seen, tuple(besides), tuple(_powers(seen, besides)))


def _facts(several: Sequence[Seen]) -> DepthFacts:
    return next(one.facts for one in several if one.facts is not None)


def _beside(case: LawCase, depth: int, several: Sequence[Seen]) -> Beside:
    values, errors = mean_errors(zip(*(one.values for one in several), strict=True))
    if law_of(case).strict:  # every model has a band of its own
        own = [bands_of(case, checked(case, _facts([one]))) for one in several]
        counts = [
            _count(one.values, one.errors, bands) for one, bands in zip(several, own, strict=True)
        ]
        bands = tuple(_mean_band(column) for column in zip(*own, strict=True))
        inside, near = (sum(part) for part in zip(*counts, strict=True))
        return Beside(case, depth, values, errors, bands, depth * len(several), inside, near)
    bands = bands_of(case, replace(_facts(several), mean_square=values))
    inside, near = _count(values, tuple(SLACK * error for error in errors), bands)
    return Beside(case, depth, values, errors, bands, depth, inside, near)


def _mean_band(several: Sequence[Band]) -> Band:
    low, high = (sum(ends) / len(several) for ends in zip(*several, strict=True))
    return low, high


def _count(
    values: Sequence[float], slack: Sequence[float], bands: Sequence[Band]
) -> tuple[int, int]:
    """How many sites behind the first are inside of the band, without and with slack."""
    own = list(zip(values, slack, bands, strict=True))[1:]
    inside = sum(low <= value <= high for value, _, (low, high) in own)
    near = sum(low - room <= value <= high + room for value, room, (low, high) in own)
    return inside, near


def _powers(seen: Mapping[str, Sequence[Seen]], besides: Sequence[Beside]) -> Iterator[Power]:
    for case in CASES:
        law, several = law_of(case), seen[case.title]
        depths = sorted({one.depth for one in several})
        if law.strict:
            continue  # it is about single models, not about their depth
        if law.along == "depth":
            values = _by_seed(several, lambda one: one.values[0])
            told = {
                law.exponent(checked(case, _facts(at_depth(several, depth)))) for depth in depths
            }
            (exponent,) = (one for one in told if one is not None)
            fit = fit_exponent(depths, values)
            yield Power(case, SYMBOLS[law.quantity], fit, exponent, exponent, (exponent, exponent))
            continue
        grown = _log_ratio if case.ratio else _difference
        what = "log(m_L / m_0)" if case.ratio else "m_L − m_0"
        fit = fit_exponent(depths, _by_seed(several, lambda one, f=grown: f(*_ends(one.values))))
        bands = [
            (grown(one.values[0], one.bands[-1][0]), grown(one.values[0], one.bands[-1][1]))
            for one in besides
            if one.case is case
        ]
        least, most = allowed(depths, bands)
        lower, upper = (
            fit_exponent(depths, {0: list(end)}).slope for end in zip(*bands, strict=True)
        )
        yield Power(case, what, fit, least, most, (_no_rounding(lower), _no_rounding(upper)))


def _no_rounding(slope: float) -> float:
    """0 for the slope of a constant that was summed layer by layer."""
    return 0.0 if abs(slope) < ROUNDING else slope


def _by_seed(several: Sequence[Seen], number: Callable[[Seen], float]) -> dict[int, list[float]]:
    found: dict[int, list[float]] = {}
    for one in several:  # depth by depth
        found.setdefault(one.seed, []).append(number(one))
    return found


def _ends(values: Sequence[float]) -> tuple[float, float]:
    return values[0], values[-1]


def _difference(first: float, last: float) -> float:
    return last - first


def _log_ratio(first: float, last: float) -> float:
    return math.log(last / first)


def allowed(depths: Sequence[int], bands: Sequence[Band]) -> Band:
    """The least and the most exponent of a line that stays inside of bands, one per depth."""
    middle = sum(math.log(depth) for depth in depths) / len(depths)
    deep = [math.log(depth) > middle for depth in depths]
    lines = (
        [band[far == up] for band, far in zip(bands, deep, strict=True)] for up in (False, True)
    )
    least, most = (fit_exponent(depths, {0: line}).slope for line in lines)
    return least, most
