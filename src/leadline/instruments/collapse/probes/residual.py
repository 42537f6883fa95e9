"""How far tokens still differ, as theorems on rank collapse measure it, and their singular values.

    |A|_{1,inf} = sqrt(|A|_1 |A|_inf),   |A|_1 the largest column sum of |A|, |A|_inf the largest row sum

of X - 1 m' with m the mean token, and the least over all x of |X - 1 x'|_{1,inf}: the mean is not
where it is least (Dong, Cordonnier, Loukas 2021, arXiv 2103.03404). How the least is searched for
and bounded from below stands in `leadline.instruments.collapse.composite_residual`; `steps` is how long from each start.
Measured at block boundaries; padding is left out.

Every residual has an interval: in a stream of limited precision tokens that have become equal still
differ by rounding, so its ends are `ROUNDING` eps |X|_{1,inf} away. Where the lower end is 0 the
number may be rounding alone. The least has its lower bound as lower end, less the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from leadline.errors import ProbeError, check_count
from leadline.instruments.collapse.composite_residual import (
    ROUNDING,
    STEPS,
    composite_residual,
    composite_size,
    smallest_composite_residual,
    token_singular_values,
)
from leadline.instruments.cost.work import Size, Workload, calling, eigenvalues, moving, product
from leadline.instruments.passes.probe import PROBES, At, Each, Result, Single
from leadline.numerics.tokens import PerExample, Tokens
from leadline.record import Quantity

Tensor = torch.Tensor
_SOURCE = "Dong, Cordonnier, Loukas 2021, arXiv 2103.03404"
RANKS = 8
STEP_CALLS = 40
"""Operations of one step of a descent, most of them on one number per example."""
STARTS = 4
"""Descents of each search: three starts, and one along the rows alone."""
"""How many singular values are kept."""

COMPOSITE = Quantity(
    name="tokens.composite_residual",
    title="Composite token residual",
    symbol="‖X − 1m′‖_{1,∞}",
    formula="square root of largest column sum times largest row sum of the absolute tokens of one "
    "example minus their mean; the interval is that of rounding",
    scale="log",
    high="Tokens differ; in a growing stream that alone says little: see the relative one.",
    low="Tokens have become equal: rank collapse.",
    source=_SOURCE,
    meaning="The distance from equal tokens in which the theorems on collapse speak.",
)
RELATIVE = Quantity(
    name="tokens.relative_composite_residual",
    title="Relative composite token residual",
    symbol="‖X − 1m′‖_{1,∞} / ‖X‖_{1,∞}",
    formula="composite token residual over the composite measure of all tokens",
    scale="log",
    high="Tokens keep their own content.",
    low="Tokens are nearly one vector: rank collapse.",
    source=_SOURCE,
    meaning="The same distance, over the size of the stream.",
)
SMALLEST = Quantity(
    name="tokens.smallest_composite_residual",
    title="Smallest composite token residual",
    symbol="min_x ‖X − 1x′‖_{1,∞}",
    formula="least composite measure of the tokens of one example minus one common vector; the "
    "value is the least that was found, the interval contains the least",
    scale="log",
    high="Tokens differ; in a growing stream that alone says little: see the relative one.",
    low="Tokens have become equal: rank collapse.",
    source=_SOURCE,
    meaning="The same distance from the nearest stream of equal tokens.",
)
RELATIVE_SMALLEST = Quantity(
    name="tokens.relative_smallest_composite_residual",
    title="Relative smallest composite token residual",
    symbol="min_x ‖X − 1x′‖_{1,∞} / ‖X‖_{1,∞}",
    formula="smallest composite token residual over the composite measure of all tokens",
    scale="log",
    high="Tokens keep their own content.",
    low="Tokens are nearly one vector: rank collapse.",
    source=_SOURCE,
    meaning="The same smallest distance, over the size of the stream.",
)
SINGULAR = Quantity(
    name="tokens.singular_value",
    title="Singular values of the tokens",
    symbol="σ_k(X)",
    formula="of the tokens of one example as they are, rank by rank; without a rank, the mean of "
    "those kept",
    scale="log",
    high="Many ranks high: tokens fill many directions.",
    low="All but the first towards 0: the token matrix tends to rank one.",
    meaning="How the tokens are spread, direction by direction.",
    axes=("rank",),
)


@PROBES.register("residual")
class ResidualProbe:
    """Composite residual at the mean and at its least, and singular values of the tokens."""

    sees = ("stream",)
    quantities = (COMPOSITE, RELATIVE, SMALLEST, RELATIVE_SMALLEST, SINGULAR)

    def __init__(self, steps: int = STEPS) -> None:
        name = "The option steps of the probe residual"
        self.steps = check_count(steps, name, error=ProbeError)

    def cost(self, size: Size) -> Workload:
        """Every step of the search goes about ten times over the tokens; then their singular values."""
        short, long = sorted((size.tokens, size.width))
        gram = product(short, long, short, count=size.examples, times=size.sites, double=True)
        values = eigenvalues(short, count=size.examples, times=size.sites, double=True)
        steps = moving(size.numbers, times=10 * STARTS * self.steps * size.sites)
        small = calling(STEP_CALLS * STARTS * self.steps * size.sites / 2)
        return steps + small + gram + values

    def stream(self, at: At, x: Tokens, start: Tokens) -> Iterator[Result]:
        if at.site.sublayer is not None or x.length < 2:
            return
        size, mean = composite_size(x), composite_residual(x)
        if not mean.all.numel():
            return
        floor = ROUNDING * at.eps
        yield _with_rounding(COMPOSITE, mean, PerExample(floor * size.all, floor * size.rest))
        yield _largest(COMPOSITE, mean.all, mean.all, floor * size.all)
        shares = PerExample(_over(mean.all, size.all), _over(mean.rest, size.rest))
        even = PerExample(torch.full_like(size.all, floor), torch.full_like(size.rest, floor))
        yield _with_rounding(RELATIVE, shares, even)
        least = smallest_composite_residual(x, steps=self.steps)
        for quantity, unit in (
            (SMALLEST, torch.ones_like(size.all)),
            (RELATIVE_SMALLEST, size.all),
        ):
            away = floor * _over(size.all, unit)
            value, lower = _over(least.value, unit), _over(least.lower, unit)
            yield Single(
                quantity,
                value.mean(),
                "mean",
                lower=(lower - away).clamp_min(0).mean(),
                upper=(value + away).mean(),
            )
        yield _largest(SMALLEST, least.value, least.lower, floor * size.all)
        values = token_singular_values(x, RANKS)
        yield Single(SINGULAR, torch.cat(values).mean(), "mean")
        for rank, of_rank in enumerate(values):
            yield Single(SINGULAR, of_rank.mean(), "mean", site=replace(at.site, rank=rank + 1))


def _largest(quantity: Quantity, value: Tensor, lower: Tensor, away: Tensor) -> Single:
    """The example in which tokens differ most: bounds are about one example, not about a mean."""
    # `take`, because an index asks the device which number it is.
    value, lower, away = (one.take(value.argmax()) for one in (value, lower, away))
    return Single(quantity, value, "max", lower=(lower - away).clamp_min(0), upper=value + away)


def _over(first: Tensor, second: Tensor) -> Tensor:
    """The ratio; 0 where all tokens are 0."""
    return torch.where(first == 0, 0.0, first / second)


def _with_rounding(quantity: Quantity, values: PerExample, away: PerExample) -> Each:
    return Each(
        quantity,
        values,
        lower=PerExample(
            (values.all - away.all).clamp_min(0), (values.rest - away.rest).clamp_min(0)
        ),
        upper=PerExample(values.all + away.all, values.rest + away.rest),
    )
