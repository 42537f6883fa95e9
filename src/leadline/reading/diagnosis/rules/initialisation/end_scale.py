"""I04, I05: the embedding or the output head of a fresh model is out of scale.

Threshold: a factor of 3 from the twin while the matrices of the blocks are within 1.3 of theirs. A
table of V times d values agrees with its twin to 1 / sqrt(2 V d), below 0.02 in the smallest model.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from leadline.reading.diagnosis.case import OUTSIDE, Case, CasePlace
from leadline.reading.diagnosis.rule import Evidence, Remedy, Rule, rule
from leadline.reading.diagnosis.tensors import (
    common_factor,
    has_fresh_constants,
    matrix_ratios,
    shape_of,
)
from leadline.record.rows.finding import Finding

FACTOR = 3.0


@rule(
    "I04",
    "embedding-scale-wrong",
    severity="warning",
    basis="twin",
    needs=("weights.rms", "ends", "twin"),
    summary="The token embedding of a fresh model is several times larger or smaller than its twin.",
    why="The stream starts out of scale: the first writes drown in it, or drown it.",
    is_not="A design that scales the embedding by sqrt(d) in its pass: the twin does so too.",
    false_alarms="An embedding that was loaded from elsewhere into a model that is otherwise as drawn.",
    remedy="Draw the embedding again, or undo the factor.",
    sources=("https://arxiv.org/abs/2312.16903",),
    explains=(
        "writes-drowned", "first-writes-too-large", "output-head-too-large", "stream-exploding",
        "bfloat16-write-loss", "loss-worse-than-uniform", "loss-worse-than-unigram", "logit-drift",
        "attention-saturated", "depth-unused", "gradient-vanishing", "gradient-exploding",
        "norm-eps-large", "positions-unused", "float16-overflow", "massive-activations",
    ),
    example="embedding-times-sqrt-width",
)  # fmt: skip
def embedding_scale_wrong(case: Case, rule: Rule) -> Iterator[Finding]:
    """Compare the table with its twin, in a model whose blocks are as they were drawn."""
    name = case.fact("ends", {}).get("embedding", "")
    ratio = _ratio(case, name)
    if ratio is None or 1 / FACTOR < ratio < FACTOR:
        return
    width = shape_of(case, name)[-1]
    root = math.sqrt(width)
    known = ", the root of the width" if 0.8 < max(ratio, 1 / ratio) / root < 1.25 else ""
    size = f"{ratio:.3g} times too large" if ratio > 1 else f"{1 / ratio:.3g} times too small"
    value = case.values("weights.rms")[CasePlace(OUTSIDE, 0, None, name)]
    cause = "a factor of the embedding that was applied twice, left out, or put into the weights"
    yield _off_twin(
        rule, f"The token embedding {name} is {size}{known}.", name, ratio, value, cause
    )


@rule(
    "I05",
    "output-head-too-large",
    severity="warning",
    basis="twin",
    needs=("weights.rms", "ends", "twin"),
    summary="The output head of a fresh model, or the norm before it, is several times larger than its "
    "twin.",
    why="The first losses are far above ln V, and the first steps only shrink the logits.",
    is_not="A head that is the embedding.",
    false_alarms="A head that was loaded from elsewhere, or tuned alone, on blocks that are as drawn.",
    remedy="Draw the head again.",
    sources=("https://arxiv.org/abs/2309.14322",),
    explains=(
        "loss-worse-than-uniform", "loss-worse-than-unigram", "logit-drift", "norm-gain-odd",
        "gradient-exploding", "weights-scale-odd",
    ),
    example="head-times-30",
)  # fmt: skip
def output_head_too_large(case: Case, rule: Rule) -> Iterator[Finding]:
    """Compare the head and the last norm with their twins."""
    name = case.fact("ends", {}).get("head", "")
    ratio = _ratio(case, name)
    if ratio is not None and ratio >= FACTOR and name != case.fact("ends", {}).get("embedding"):
        value = case.values("weights.rms")[CasePlace(OUTSIDE, 0, None, name)]
        yield _head_finding(rule, f"The output head {name}", name, ratio, value)
    twins, gains = case.values("norm.size", "twin"), case.values("norm.gain")
    for place, stored in case.values("norm.size").items():
        twin, size = twins.get(place), stored
        if twin == 0:
            # Gemma stores a gain less 1, and draws it as 0.
            twin, size = 1.0, abs(1.0 + gains.get(place, 0.0))
        if place.stack == OUTSIDE and twin and size / twin >= FACTOR and _fresh(case):
            gain = f"{place.point}.weight"
            yield _head_finding(
                rule,
                f"The gain of the norm before the head, {place.point},",
                gain,
                size / twin,
                size,
            )


def _head_finding(rule: Rule, what: str, name: str, ratio: float, value: float) -> Finding:
    cause = "another spread for the head, or a gain that was scaled"
    return _off_twin(rule, f"{what} is {ratio:.3g} times too large.", name, ratio, value, cause)


def _off_twin(
    rule: Rule, verdict: str, name: str, ratio: float, value: float, cause: str
) -> Finding:
    """One tensor at an end of the model that is `ratio` times its twin's."""
    return rule.finding(
        verdict,
        parameter=name,
        evidence=[Evidence(f"rms of {name}", value, value / ratio, "the twin")],
        ruled_out=["a larger spread of all weights: matrices of the blocks are as their twins"],
        cause=cause,
        remedy=Remedy(
            f"Multiply {name} by {1 / ratio:.3g}.",
            edit={"edit": "scale-tensor", "parameter": name, "factor": 1 / ratio},
        ),
        quantity="weights.rms",
    )


def _fresh(case: Case) -> bool:
    """Whether the matrices of the blocks are as the twin's."""
    inside = [r for place, r in matrix_ratios(case).items() if place.stack != OUTSIDE]
    factor = common_factor(inside, within=1.3)
    as_drawn = factor is not None and 1 / 1.3 < factor < 1.3
    return as_drawn and has_fresh_constants(case) is not False


def _ratio(case: Case, name: str) -> float | None:
    if not name or not _fresh(case):
        return None
    return matrix_ratios(case).get(CasePlace(OUTSIDE, 0, None, name))
