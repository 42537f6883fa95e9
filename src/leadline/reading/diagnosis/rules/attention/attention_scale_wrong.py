"""A01: the products of queries and keys are multiplied by the wrong number."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

from leadline.reading.diagnosis.calls import every_call, twin_call
from leadline.reading.diagnosis.case import Case
from leadline.reading.diagnosis.panels import place_text
from leadline.reading.diagnosis.rule import Evidence, Rule, rule
from leadline.record.rows.finding import Finding

ROUNDING = 0.01
"""A scaling is a number in the code: it is the same or it is not. Half precision rounds to 0.4 %."""


@rule(
    "A01",
    "attention-scale-wrong",
    severity="serious",
    basis="identity",
    needs=("attention_calls", "intention"),
    summary="Compares what stands between the products of queries and keys and the logits with the "
    "twin, the other layers, and 1/sqrt(head width).",
    why="Logits that are too large by sqrt(head width) saturate the softmax and its gradient fades; too "
    "small ones make attention uniform.",
    is_not="Families that fold the scale into their weights (T5, GPT-Neo), scale by another number "
    "(Gemma, Granite) or normalise queries and keys: their twins do the same. 1/head width is that of "
    "muP and is a note.",
    false_alarms="A class of one's own that folds the scale into its weights.",
    remedy="Multiply by 1/sqrt(head width): `scale=None` in scaled_dot_product_attention.",
    sources=("https://arxiv.org/abs/1706.03762", "https://arxiv.org/abs/2203.03466"),
    explains=(
        "loss-worse-than-uniform",
        "loss-worse-than-unigram",
        "weights-foreign",
        "positions-unused",
        "tokens-equal",
        "attention-saturated",
        "attention-uniform",
        "unlike-its-family",
        "gradient-vanishing",
    ),
    example="scale-dropped",
)
def attention_scale_wrong(case: Case, rule: Rule) -> Iterator[Finding]:
    """Judge by the twin, then by the other layers, then by the law of the plain design."""
    groups: dict[tuple[str, float, float, str], list[dict[str, Any]]] = {}
    library = bool(case.fact("intention", {}).get("library"))
    usual = _usual(case)
    for one in every_call(case):
        verdict = _verdict(case, one, usual, library=library)
        if verdict is not None:
            groups.setdefault((one["stack"], *verdict), []).append(one)
    for (stack, value, expected, source), calls in groups.items():
        layers = sorted({one["layer"] for one in calls})
        first = calls[0]
        what, severity = _name(value, first)
        yield rule.finding(
            f"The attention logits of {place_text(case, stack, layers)} are scaled by {value:.4g}, not "
            f"{expected:.4g}{what} ({first['module']}).",
            stack=stack,
            layers=layers,
            sublayer="attention",
            parameter=first["module"],
            evidence=[
                Evidence("what multiplies queries times keys", value, expected, source),
                Evidence("head width", first["head_width"]),
            ],
            cause=what.removeprefix(": ") or "the scale is wrong",
            remedy=f"Scale by {expected:.4g} in {first['module']}.",
            severity=severity if source.startswith("1/sqrt") else None,
            confidence="likely" if source.startswith("1/sqrt") else "certain",
        )


def _verdict(
    case: Case, one: dict[str, Any], usual: dict[tuple[str, int], float], *, library: bool
) -> tuple[float, float, str] | None:
    """(value, expected, where that comes from), or None where nothing is wrong or known."""
    twin = twin_call(case, one)
    for name in ("scaling", "kernel_scaling"):
        mine = one[name]
        other = None if twin is None else twin[name]
        if mine == 0.0 and one["head_width"]:
            return 0.0, _rounded(other or one["head_width"] ** -0.5), "logits that choose"
        if mine and other:
            if _apart(mine, other):
                return _rounded(mine), _rounded(other), "twin of the same configuration"
            if library:
                return None
            break
    width, mine = one["head_width"], one["scaling"]
    if mine is None or width is None or library:
        return None
    expected = usual.get((one["stack"], width))
    if expected is not None and _apart(mine, expected):
        return _rounded(mine), _rounded(expected), "the other layers"
    law = width**-0.5
    return (_rounded(mine), _rounded(law), "1/sqrt(head width)") if _apart(mine, law) else None


def _usual(case: Case) -> dict[tuple[str, int], float]:
    """The scaling of most layers of a stack, by head width."""
    counts: dict[tuple[str, int], Counter[float]] = {}
    for one in every_call(case):
        if one["scaling"] is not None and one["head_width"] is not None:
            key = one["stack"], one["head_width"]
            counts.setdefault(key, Counter())[_rounded(one["scaling"])] += 1
    return {
        key: value
        for key, counter in counts.items()
        for value, count in counter.most_common(1)
        if count > sum(counter.values()) / 2
    }


def _apart(one: float, other: float) -> bool:
    return abs(one / other - 1) > ROUNDING


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def _name(value: float, one: dict[str, Any]) -> tuple[str, Any]:
    """What the number is, and how severe it is if only the law of the plain design speaks."""
    width, model_width = one["head_width"], one["width"]
    for number, words, severity in (
        (1.0, ": the scale is missing", "serious"),
        (1 / width, ": that is 1/head width, as in muP", "note"),
        (math.sqrt(width), ": multiplied instead of divided by sqrt(head width)", "serious"),
        ((model_width or 0) ** -0.5 if model_width else 0.0,
         ": that is 1/sqrt(model width), not of the head", "warning"),
    ):  # fmt: skip
        if number and not _apart(value, number):
            return words, severity
    return "", "warning"
