"""What the picture of an example shows: the line over depth in which sick and healthy part most."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from leadline.reading.diagnosis.examples.example import DepthCurve, Strip
from leadline.reading.diagnosis.panels import TokenPanel

if TYPE_CHECKING:
    from leadline.reading.diagnosis.case import Case
    from leadline.reading.diagnosis.rule import Rule
    from leadline.record.rows.finding import Finding

__all__ = ["example_curve", "layer_strip", "numbers_apart", "rounded", "token_strips"]

_GENERAL = (
    "update.norm",
    "stream.norm",
    "gradient.stream",
    "gradient.parameters",
    "tokens.relative_residual",
    "attention.entropy",
    "weights.rms",
)
"""Quantities that are tried where a rule needs none that is a line."""
_DECLARED_APART, _GENERAL_APART = math.log(1.05), math.log(1.3)
"""How far, as a logarithm, two lines must be apart somewhere for a picture to show it."""
_BEYOND = 30.0
"""How far a zero or a value that is not finite counts as being from a number."""

Lines = Mapping[tuple[str, str], Mapping[int, float]]


def rounded(value: float) -> float | None:
    """Four digits: more would differ from machine to machine. None for what is not finite."""
    return float(f"{value:.4g}") if math.isfinite(value) else None


def example_curve(
    sick: Case, healthy: Case | None, rule: Rule, finding: Finding, *, general: bool = False
) -> DepthCurve | None:
    """The line of a quantity that the rule needs, or of any with `general`; None for none."""
    if general:
        names, least = _GENERAL, _GENERAL_APART
    else:
        named = [finding.quantity] if finding.quantity else []
        names, least = (*named, *rule.needs), _DECLARED_APART
    best: tuple[float, DepthCurve] | None = None
    for name in names:
        lines = sick.lines(name)
        others: Lines = healthy.lines(name) if healthy is not None else sick.twin_lines(name)
        for key in _keys(lines, finding):
            line, other = lines[key], others.get(key, {})
            if len(line) < 3:
                continue
            apart = _apart(line, other, finding.layers)
            # The quantity that a finding names is what it looked at, whatever it looks like.
            enough = apart > least or (name == finding.quantity and not general)
            if enough and (best is None or apart > best[0]):
                best = apart, _curve(sick, name, key[1], line, other)
        if best is not None and not general:
            break
    return None if best is None else best[1]


def _keys(lines: Lines, finding: Finding) -> Iterable[tuple[str, str]]:
    """The lines that a finding may speak of: its tensor's, else its sublayer's, else its stack's."""
    stack = [key for key in lines if finding.stack in (None, key[0])]
    tensor = finding.parameter or ""
    for chosen in (
        [key for key in stack if tensor.endswith(f".{key[1]}")],
        [key for key in stack if finding.sublayer and key[1] == finding.sublayer],
    ):
        if chosen:
            return chosen
    return stack


def _apart(line: Mapping[int, float], other: Mapping[int, float], accused: Iterable[int]) -> float:
    layers = [at for at in accused if at in line] or list(line)
    return max((_distance(line[at], other.get(at)) for at in layers), default=0.0)


def _distance(value: float, other: float | None) -> float:
    if other is None or not math.isfinite(other):
        return 0.0
    if not math.isfinite(value):
        return _BEYOND
    if value == other:
        return 0.0
    if value * other <= 0:
        return _BEYOND if max(abs(value), abs(other)) > 1e-6 else 0.0
    return abs(math.log(value / other))


def _curve(
    case: Case, name: str, point: str, line: Mapping[int, float], other: Mapping[int, float]
) -> DepthCurve:
    quantity = case.quantities[name]
    layers = tuple(sorted(line))
    values = [v for one in (line, other) for v in one.values() if math.isfinite(v) and v > 0]
    wide = bool(values) and max(values) > 8 * min(values)
    return DepthCurve(
        quantity.title,
        "" if point == "stream" else point,
        layers,
        tuple(rounded(line[at]) for at in layers),
        tuple(rounded(other.get(at, math.nan)) for at in layers) if other else (),
        logarithmic=wide or quantity.scale == "log",
    )


def numbers_apart(finding: Finding) -> bool:
    """Whether some evidence is a number beside another number that was expected."""
    return any(_is_pair(one) for one in finding.evidence)


def _is_pair(one: Mapping[str, Any]) -> bool:
    value, expected = one.get("value"), one.get("expected")
    return all(isinstance(x, float | int) for x in (value, expected)) and value != expected


def token_strips(sick: Case, healthy: Case | None) -> tuple[str, tuple[Strip, ...]]:
    """Which tokens of the output move with one changed token; no strips where both are alike."""
    for row, words in (("middle", "one token in the middle"), ("last", "the last token"),
                       ("first", "the first token"), ("swap", "two tokens")):  # fmt: skip
        strips: list[Strip] = []
        for name, case in (("with the fault", sick), ("without it", healthy)):
            panel = next(iter((case.fact("token_panels") if case else None) or ()), None)
            output = None if panel is None else TokenPanel(panel).output
            if panel is None or output is None:
                return "", ()
            changed = tuple(panel["pair"]) if row == "swap" else (panel[row],)
            strips.append(Strip(name, output[row], changed))
        if strips[0].cells != strips[1].cells:
            verb = "change places" if row == "swap" else "is changed"
            return f"Which tokens of the output move when {words} {verb}", tuple(strips)
    return "", ()


def layer_strip(case: Case, finding: Finding) -> tuple[str, tuple[Strip, ...]]:
    """The layers of the stack, with those that the finding names."""
    stack = finding.stack or next(iter(case.stacks), None) or next(iter(case.fact("rows", {})), "")
    depth = case.depth(stack) if stack else 0
    if not depth or not finding.layers:
        return "", ()
    cells = "".join("1" if at in finding.layers else "0" for at in range(1, depth + 1))
    return f"Layers of the {stack} that the finding names", (Strip("with the fault", cells),)
