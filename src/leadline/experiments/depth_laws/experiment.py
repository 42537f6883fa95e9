"""Every law of depth beside its measurement on a design that meets its assumptions.

`cases` has the designs. Each is built untrained at several depths with several seeds, and
measured. `verdicts` says where a law holds: the band at every site, the exponent over depth.

Drawn are the deepest models site by site, with the ends of the band, and what is about depth over
depth, with the power of the law. Of a stream that grows exponentially the mean of the logarithms
is drawn: its plain mean is made by a few draws. What is judged is the plain mean, which the law is
about.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from leadline.errors import Progress, no_progress
from leadline.experiments.depth_laws import DepthLawsOptions
from leadline.experiments.depth_laws.cases import CASES, LawCase, Seen, law_of, look
from leadline.experiments.depth_laws.verdicts import (
    SLACK,
    SYMBOLS,
    TOLERANCE,
    Beside,
    LawVerdicts,
    Power,
    at_depth,
    judged,
)
from leadline.experiments.gradient_flow.growth import mean_error, mean_errors
from leadline.experiments.outcome.outcome import Outcome
from leadline.reading.show.panels import Line, Places, Table
from leadline.theory.depth import LAWS
from leadline.theory.depth.deepnorm import DeepNormLaw

__all__ = ["depth_laws"]


def depth_laws(
    options: DepthLawsOptions | None = None,
    *,
    progress: Progress = no_progress,
) -> Outcome:
    """Every law of depth drawn beside its measurement, with exponents over depth."""
    options = options or DepthLawsOptions()
    options.check()
    found = _found(options, progress)
    lines = tuple(_lines(found))
    return Outcome(
        experiment="depth-laws",
        title="The laws of depth, each beside its measurement before training",
        value_label="",
        lines=lines,
        remarks=tuple(_remarks(found)),
        records={},
        axis="place",
        scales=dict.fromkeys((line.panel for line in lines), "own"),
        tables=tuple(_tables(found)),
        places=_places(found),
        across=3,
    )


# --- measuring -----------------------------------------------------------------------------------


def _found(options: DepthLawsOptions, progress: Progress) -> LawVerdicts:
    total = sum(options.seeds_of(case) * sum(options.depths_of(case)) for case in CASES)
    done = 0
    seen: dict[str, tuple[Seen, ...]] = {}
    for case in CASES:
        several: list[Seen] = []
        for depth in options.depths_of(case):
            for number in range(options.seeds_of(case)):
                progress(f"{case.title}, {depth} layers", done, total)
                one = look(
                    case,
                    depth,
                    width=options.width,
                    length=options.length,
                    examples=options.examples,
                    seed=options.seed + number,
                    facts=number == 0,
                )
                several.append(one)
                done += depth
        seen[case.title] = tuple(several)
    return judged(seen)


# --- what is drawn -------------------------------------------------------------------------------


def _panel(case: LawCase, depth: int) -> str:
    law = law_of(case)
    if law.along == "depth":
        return f"{case.law}: log₁₀ {SYMBOLS[law.quantity]}, over depth"
    log = "log₁₀ " if case.logarithmic else ""
    return f"{case.title}, {depth} layers: {log}{SYMBOLS[law.quantity]}"


def _lines(found: LawVerdicts) -> Iterator[Line]:
    for case in CASES:
        yield from (
            _over_depth(found, case) if law_of(case).along == "depth" else _along(found, case)
        )


def _along(found: LawVerdicts, case: LawCase) -> Iterator[Line]:
    deepest = found.of(case)[-1]
    panel, facts = _panel(case, deepest.depth), {"model": case.name, "law": case.law}
    values, errors = deepest.values, deepest.errors
    ends = [[band[k] for band in deepest.bands] for k in (0, 1)]
    if _stretched(case):
        values, errors = _mean_logs(at_depth(found.seen[case.title], deepest.depth))
        ends = [[math.log10(value) for value in end] for end in ends]
    yield Line(panel, case.name, values, facts=facts, errors=errors)
    for end, name in zip(ends, ("at least", "at most"), strict=True):
        if all(math.isfinite(value) for value in end):
            yield Line(panel, f"law: {name}", tuple(end), faint=True, facts={"model": "law"})


def _stretched(case: LawCase) -> bool:
    """Whether logarithms are drawn of a number that is none."""
    return case.logarithmic and not law_of(case).log10


def _mean_logs(several: Sequence[Seen]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The mean over seeds of log10 at every site, and its standard error."""
    logs = [[math.log10(value) for value in one.values] for one in several]
    return mean_errors(zip(*logs, strict=True))


def _over_depth(found: LawVerdicts, case: LawCase) -> Iterator[Line]:
    several = found.seen[case.title]
    depths = sorted({one.depth for one in several})
    panel, facts = _panel(case, depths[-1]), {"model": case.name, "law": case.law}
    values, errors = mean_errors(
        [math.log10(one.values[0]) for one in at_depth(several, d)] for d in depths
    )
    yield Line(panel, case.name, values, facts=facts, errors=errors)
    exact = _exact(found, case)
    if exact is not None:
        name, drawn = f"{case.name}: the law's own value", [math.log10(value) for value in exact]
    else:
        (power,) = (one for one in found.powers if one.case is case)
        logs = [power.least * math.log10(depth) for depth in depths]
        middle = (sum(values) - sum(logs)) / len(depths)
        name, drawn = f"{case.name}: L^{power.least:g} (law)", [middle + log for log in logs]
    yield Line(panel, name, tuple(drawn), faint=True, facts=facts)


def _exact(found: LawVerdicts, case: LawCase) -> list[float] | None:
    """The number itself at every depth, where a law over depth gives more than the exponent."""
    law = law_of(case)
    if not isinstance(law, DeepNormLaw):
        return None
    told = [one.facts for one in found.seen[case.title] if one.facts is not None]
    return [value for facts in told if (value := law.mlp_ratio(facts)) is not None]


def _places(found: LawVerdicts) -> dict[str, Places]:
    stands: dict[str, Places] = {}
    for case in CASES:
        depths = sorted({one.depth for one in found.seen[case.title]})
        if law_of(case).along == "depth":
            where = Places("depth", tuple(float(depth) for depth in depths), logarithmic=True)
        else:
            where = Places("layer", tuple(float(site) for site in range(depths[-1] + 1)))
        stands[_panel(case, depths[-1])] = where
    return stands


def _tables(found: LawVerdicts) -> Iterator[Table]:
    for case in CASES:
        if law_of(case).along == "layers":
            yield _band_table(found, case)
    yield Table(
        "Exponents over depth: fitted ± s.e., and what the law leaves room for",
        ("fitted", "±", "least", "most", "lower end", "upper end"),
        tuple(
            (one.fit.slope, one.fit.error, one.least, one.most, *one.ends) for one in found.powers
        ),
        digits=3,
        names=tuple(f"{one.case.title}: {one.what}" for one in found.powers),
    )


def _band_table(found: LawVerdicts, case: LawCase) -> Table:
    strict = law_of(case).strict
    slack = "with error" if strict else f"with {SLACK:g} s.e."
    what = "log10 σ₁ of all blocks" if strict else "m_L"
    return Table(
        f"{case.title}: {what}, its band, and the share of sites inside",
        ("layers", "measured", "±", "at least", "at most", "inside", slack),
        tuple(
            (
                float(one.depth),
                one.values[-1],
                one.errors[-1],
                *one.bands[-1],
                one.inside / one.sites,
                one.near / one.sites,
            )
            for one in found.of(case)
        ),
        digits=3,
    )


# --- what is told --------------------------------------------------------------------------------


def _remarks(found: LawVerdicts) -> Iterator[str]:
    for case in CASES:
        several = found.of(case)
        if several:
            yield _told_along(
                case, several, len(at_depth(found.seen[case.title], several[0].depth))
            )
            if _stretched(case):
                yield _told_logs(found, several[-1])
        for power in found.powers:
            if power.case is case:
                yield _told_power(power, found)
    own = {case.law for case in CASES}
    without = [name for name in LAWS if name not in own]
    if without:
        yield f"No design here for: {', '.join(without)}."


def _told_along(case: LawCase, several: Sequence[Beside], seeds: int) -> str:
    held = [one for one in several if one.holds]
    sites, inside, near = (
        sum(getattr(one, part) for one in several) for part in ("sites", "inside", "near")
    )
    failing = [str(one.depth) for one in several if not one.holds]
    where = f" (not at {', '.join(failing)} layers)" if failing else ""
    begin = f"{case.title} holds at {len(held)} of {len(several)} depths{where}:"
    if law_of(case).strict:
        silent = all(band[0] == -math.inf for one in several for band in one.bands[1:])
        left = " The left end is 0: it says nothing here." if silent else ""
        last = several[-1]
        return (
            f"{begin} {near} of {sites} sites of {seeds} models a depth lie in their band. At "
            f"{last.depth} layers σ₁ is 10^{last.values[-1]:.2f}, where the product of 1 + |J − I| "
            f"allows 10^{last.bands[-1][1]:.2f}.{left}"
        )
    return (
        f"{begin} the mean of {seeds} seeds lies in the band at {near} of {sites} sites, with a "
        f"slack of {SLACK:g} standard errors; at {inside} without."
    )


def _told_logs(found: LawVerdicts, last: Beside) -> str:
    """Say how far one may trust a mean that a few large draws make."""
    means, errors = _mean_logs(at_depth(found.seen[last.case.title], last.depth))
    low, high = (math.log10(end) for end in last.bands[-1])
    mean, error = means[-1], errors[-1]
    inside = "inside of" if low <= mean <= high else "outside of"
    return (
        f"{last.case.title}: at {last.depth} layers the standard error is "
        f"{last.errors[-1] / last.values[-1]:.0%} of the mean, because a few draws are far above "
        f"the others. The mean of log10 m_L, which is never above log10 of the mean, is "
        f"{mean:.2f} ± {error:.2f}, {inside} {low:.2f} to {high:.2f}."
    )


def _told_power(power: Power, found: LawVerdicts) -> str:
    case, fit = power.case, power.fit
    if law_of(case).along == "depth":
        holds = "" if power.holds else "NOT "
        exact = _exact(found, case)
        beside = "" if exact is None else f" {_told_exact(found, case, exact)}"
        return (
            f"{case.title}: {power.what} ~ {fit.text}, {holds}within {TOLERANCE:g} of the law's "
            f"L^{power.least:g}.{beside}"
        )
    low, high, least, most = (f"{one:.2f}" for one in (*power.ends, power.least, power.most))
    holds = "inside of" if power.holds else "OUTSIDE of"
    return (
        f"{case.title}: {power.what} ~ {fit.text}. The ends of the band go as L^{low} and "
        f"L^{high}; the exponent is {holds} {least} to {most}, what a line between them may have."
    )


def _told_exact(found: LawVerdicts, case: LawCase, exact: Sequence[float]) -> str:
    several = found.seen[case.title]
    depths = sorted({one.depth for one in several})
    off = [
        mean_error([one.values[0] for one in at_depth(several, depth)])[0] / value - 1.0
        for depth, value in zip(depths, exact, strict=True)
    ]
    worst = max(off, key=abs)
    return f"Its size is off by at most {abs(worst):.1%} from what the law says."
