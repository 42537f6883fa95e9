"""The panels and the tables of the gradient-flow experiment."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from leadline.experiments.gradient_flow.growth import FlowGrowth, facts_of, mean_error, mean_errors
from leadline.experiments.gradient_flow.starts import ADDS, DESIGNS, Start
from leadline.experiments.gradient_flow.training import TRAINED, TrainedDesigns
from leadline.reading.show.panels import Line, Places, Table
from leadline.theory.depth import LAWS, Band

__all__ = ["across_depth", "law_exponent", "lines", "places", "scales", "stream_band", "tables"]

WEIGHT = "Untrained: log₁₀ |∂L/∂W₂| of the last block, over depth"
RATIO = "Untrained: log₁₀ |∂L/∂x₀| / |∂L/∂x_L|, over depth"
AFTER = "Trained: log₁₀ |∂L/∂x₀| / |∂L/∂x_L|, over depth"
COSINE = "Trained: token cosine at the last site, over depth"
SQUARE = "Untrained, {} layers: mean square of the stream"
PROFILE = "Untrained, {} layers: log₁₀ |∂L/∂x_l| / |∂L/∂x_L|"
LARGEST = "Untrained, {} layers: log₁₀ σ₁ of each block"
DISTANCE = "Untrained, {} layers: |J − I|_F / √N of each block"
TRAINED_PROFILE = "Trained, {} layers: log₁₀ |∂L/∂x_l| / |∂L/∂x_L|"
LAST_GRADIENT, STREAM = "xiong-last-gradient", "xiong-stream"


def lines(found: FlowGrowth, *, width: int) -> Iterator[Line]:
    """Every curve, panel by panel."""
    yield from _over_depth(found, width=width)
    yield from _over_sites(found, width=width)
    yield from _of_blocks(found)
    yield from _of_training(found)


def places(found: FlowGrowth) -> dict[str, Places]:
    """What stands below the panels that do not count sites."""
    depths = Places("depth", tuple(float(d) for d in found.depths), logarithmic=True)
    sites = Places("layer", tuple(float(site) for site in range(found.deepest + 1)))
    stands = {
        WEIGHT: depths,
        RATIO: depths,
        SQUARE.format(found.deepest): sites,
        PROFILE.format(found.deepest): sites,
    }
    if found.blocks:
        deepest = max(one.depth for one in found.blocks)
        blocks = Places("block", tuple(float(k) for k in range(1, deepest + 1)))
        stands |= {LARGEST.format(deepest): blocks, DISTANCE.format(deepest): blocks}
    if found.trained:
        own = sorted({one.depth for one in found.trained})
        trained = Places("depth", tuple(float(d) for d in own), logarithmic=True)
        layers = Places("layer", tuple(float(site) for site in range(own[-1] + 1)))
        stands |= {AFTER: trained, COSINE: trained, TRAINED_PROFILE.format(own[-1]): layers}
    return stands


def scales(found: FlowGrowth) -> dict[str, str]:
    """Every panel has a scale of its own; logarithms that may be large have one for exponents."""
    large = {RATIO, AFTER, PROFILE.format(found.deepest)}
    named = list(dict.fromkeys(line.panel for line in lines(found, width=1)))
    return {
        panel: "exponent" if panel in large or panel.startswith("Trained, ") else "own"
        for panel in named
    }


def across_depth(
    found: FlowGrowth, design: str, number: Callable[[Start], float]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """log10 of a number at every depth, the mean over seeds, with its standard error."""
    return mean_errors(
        [math.log10(number(one)) for one in found.at(design, depth)]
        if found.whole(design, depth)
        else []
        for depth in found.depths
    )


def law_exponent(found: FlowGrowth, design: str, *, width: int) -> float | None:
    """The exponent that Xiong et al. have for |dL/dW2|, where their assumptions hold."""
    law = LAWS.build(LAST_GRADIENT)
    facts = facts_of(design, found.deepest, width=width, mean_square=found.squares(design))
    return law.exponent(facts) if law.applies(facts) else None


def stream_band(found: FlowGrowth, *, width: int) -> tuple[Band, ...] | None:
    """The band of the mean square of the deepest pre-norm models, after Xiong et al.

    It is that of these models: of their activation and the inner width of their MLP. None where the
    assumptions do not hold.
    """
    law = LAWS.build(STREAM)
    facts = facts_of("pre", found.deepest, width=width, mean_square=found.squares("pre"))
    return law.predicted(facts) if law.applies(facts) else None


def _over_depth(found: FlowGrowth, *, width: int) -> Iterator[Line]:
    for design in DESIGNS:
        values, errors = across_depth(found, design, lambda one: one.weight)
        yield Line(WEIGHT, design, values, facts={"model": design}, errors=errors)
        slope = law_exponent(found, design, width=width)
        whole = [k for k, v in enumerate(values) if math.isfinite(v)]
        if slope is None or not whole:
            continue
        logs = [math.log10(depth) for depth in found.depths]
        middle = sum(values[k] - slope * logs[k] for k in whole) / len(whole)
        drawn = tuple(middle + slope * log for log in logs)
        name = f"{design}: L^{slope:g} (Xiong et al.)"
        yield Line(WEIGHT, name, drawn, faint=True, facts={"model": design})
    for design in DESIGNS:
        values, errors = across_depth(found, design, lambda one: one.ratio)
        yield Line(RATIO, design, values, facts={"model": design}, errors=errors)


def _over_sites(found: FlowGrowth, *, width: int) -> Iterator[Line]:
    depth = found.deepest
    for design in DESIGNS:
        if design == "no norm":
            continue  # it leaves the axis: the profile of its gradient stands beside
        several = [one.squares for one in found.at(design, depth)]
        values, errors = mean_errors(zip(*several, strict=True))
        yield Line(SQUARE.format(depth), design, values, facts={"model": design}, errors=errors)
        if design == "pre":
            yield from _band(found, width=width)
    for design in DESIGNS:
        if not found.whole(design, depth):
            continue
        logs = [
            [math.log10(g / one.gradients[-1]) for g in one.gradients]
            for one in found.at(design, depth)
        ]
        values, errors = mean_errors(zip(*logs, strict=True))
        yield Line(PROFILE.format(depth), design, values, facts={"model": design}, errors=errors)


def _band(found: FlowGrowth, *, width: int) -> Iterator[Line]:
    bands = stream_band(found, width=width)
    for end, name in enumerate(("at least", "at most")):
        if bands is not None:
            drawn = tuple(band[end] for band in bands)
            what = f"pre: {name} (after Xiong et al.)"
            yield Line(
                SQUARE.format(found.deepest), what, drawn, faint=True, facts={"model": "pre"}
            )


def _of_blocks(found: FlowGrowth) -> Iterator[Line]:
    if not found.blocks:
        return
    deepest = max(one.depth for one in found.blocks)
    some = [one for one in found.blocks if one.depth == deepest]
    for one in some:
        logs = tuple(math.log10(value) for value in one.largest)
        yield Line(LARGEST.format(deepest), one.design, logs, facts={"model": one.design})
    for one in some:
        if one.design == "no norm":
            continue  # it leaves the axis: the table has it
        yield Line(DISTANCE.format(deepest), one.design, one.distance, facts={"model": one.design})


def _of_training(found: FlowGrowth) -> Iterator[Line]:
    if not found.trained:
        return
    depths = sorted({one.depth for one in found.trained})
    numbers: dict[str, Callable[[TrainedDesigns, int], float]] = {
        AFTER: lambda one, at: _log(one.ratio[at]),
        COSINE: lambda one, at: one.cosine[at],
    }
    for panel, number in numbers.items():
        for design in TRAINED:
            own = [one for one in found.trained if one.design == design]
            for moment, name in ((1, design), (0, f"{design}, before the training")):
                values, errors = mean_errors(
                    [number(one, moment) for one in own if one.depth == depth] for depth in depths
                )
                facts = {"model": design}
                yield Line(panel, name, values, faint=not moment, facts=facts, errors=errors)
    for design in TRAINED:
        logs = [
            [_log(g / one.profile[-1]) for g in one.profile]
            for one in found.trained
            if (one.design, one.depth) == (design, depths[-1]) and _usable(one.profile)
        ]
        if logs:
            values, errors = mean_errors(zip(*logs, strict=True))
            panel = TRAINED_PROFILE.format(depths[-1])
            yield Line(panel, design, values, facts={"model": design}, errors=errors)


def _usable(profile: Sequence[float]) -> bool:
    return bool(profile) and math.isfinite(profile[-1]) and profile[-1] > 0.0


def _log(value: float) -> float:
    return math.log10(value) if math.isfinite(value) and value > 0.0 else math.nan


# --- tables ----------------------------------------------------------------------------------


def tables(found: FlowGrowth, *, width: int) -> Iterator[Table]:
    """Every table, in the order of the panels."""
    yield from _exponents(found, width=width)
    yield _split(found)
    yield Table(
        "Untrained: token cosine at the last site, by depth",
        tuple(str(depth) for depth in found.depths),
        tuple(
            tuple(
                mean_error([one.cosine for one in found.at(design, depth)])[0]
                for depth in found.depths
            )
            for design in DESIGNS
        ),
        digits=3,
        names=tuple(DESIGNS),
    )
    if found.blocks:
        yield _products(found)
    if found.norms:
        yield _norms(found)
    if found.trained:
        yield _trainings(found)


def _exponents(found: FlowGrowth, *, width: int) -> Iterator[Table]:
    def powers(design: str, *numbers: Callable[[Start], float]) -> list[float]:
        row: list[float] = []
        for number in numbers:
            fit = found.exponent(design, number)
            row += [math.nan, math.nan] if fit is None else [fit.slope, fit.error]
        return row

    laws = {d: law_exponent(found, d, width=width) for d in DESIGNS}
    yield Table(
        "Untrained: power of the depth of |dL/dW2|, alone and times the rms of x_L, ± s.e.",
        ("law", "alone", "±", "times rms", "± "),
        tuple(
            (
                math.nan if laws[design] is None else float(laws[design] or 0.0),
                *powers(design, lambda one: one.weight, lambda one: one.scaled_weight),
            )
            for design in DESIGNS
        ),
        digits=2,
        names=tuple(DESIGNS),
    )
    # Without norms the ratio is no power of the depth: the remarks say what it is.
    several = [design for design in DESIGNS if design != "no norm"]
    yield Table(
        "Untrained: power of the depth of |dL/dx_0| / |dL/dx_L|, ± s.e.",
        ("power", "±"),
        tuple(tuple(powers(design, lambda one: one.ratio)) for design in several),
        digits=2,
        names=tuple(several),
    )


def _split(found: FlowGrowth) -> Table:
    rows = [
        tuple(
            mean_error([number(one) for one in found.at(design, found.deepest)])[0]
            for number in (
                lambda one: one.squares[0],
                lambda one: one.squares[-1],
                lambda one: one.updates,
                lambda one: one.crosses,
                lambda one: one.crosses / one.grown,
                _mismatch,
            )
        )
        for design in ADDS
    ]
    return Table(
        f"Untrained, {found.deepest} layers: m_L = m_0 + sum mean u² + sum 2 mean x u",
        ("m_0", "m_L", "sum u²", "sum 2xu", "cross share", "off (rel.)"),
        tuple(rows),
        digits=3,
        names=ADDS,
    )


def _mismatch(one: Start) -> float:
    return abs(one.grown - one.updates - one.crosses) / one.squares[-1]


def _products(found: FlowGrowth) -> Table:
    return Table(
        "Untrained: log10 of the product of the blocks' norms, and of the norm of their product",
        ("product", "true", "loose by", "largest σ₁", "|J−I| first", "|J−I| last"),
        tuple(
            (
                one.product,
                math.log10(one.whole),
                one.product - math.log10(one.whole),
                max(one.largest),
                one.distance[0],
                one.distance[-1],
            )
            for one in found.blocks
        ),
        digits=3,
        names=tuple(f"{one.design}, {one.depth}" for one in found.blocks),
    )


def _norms(found: FlowGrowth) -> Table:
    return Table(
        "Post-norm, untrained: the product with and without the Jacobians of its norms, log10",
        ("σ₁ with", "without", "|P|_F/√N with", "without ", "norms alone"),
        tuple(
            (one.with_largest, one.without_largest, one.with_size, one.without_size, one.shrink)
            for one in found.norms
        ),
        digits=3,
        names=tuple(f"{one.depth} layers" for one in found.norms),
    )


def _trainings(found: FlowGrowth) -> Table:
    some = sorted(found.trained, key=lambda one: (TRAINED.index(one.design), one.depth, one.seed))
    return Table(
        "Training without warm-up: first and last reading",
        ("steps", "ratio first", "ratio last", "cos first", "cos last", "loss"),
        tuple((float(one.steps), *one.ratio, *one.cosine, one.loss) for one in some),
        digits=4,
        names=tuple(f"{one.design}, {one.depth}, seed {one.seed}" for one in some),
    )
