"""N06: the gain of one norm is unlike that of the same norm in the layers around it.

Thresholds: a factor of 4 and 6 median deviations; in the first and the last layer, which trained
models use otherwise, a factor of 16. In the embedded pair no gain is further than 1.33 from its
neighbours, in MiniLM 1.12, in a small trained Llama 1.08.
"""

from __future__ import annotations

from collections.abc import Iterator

from leadline.reading.diagnosis.case import OUTSIDE, Case, CasePlace, Outlier, outliers
from leadline.reading.diagnosis.rule import Evidence, Remedy, Rule, rule
from leadline.reading.diagnosis.tensors import site_text
from leadline.record.rows.finding import Finding

FACTOR = 4.0
END_FACTOR = 16.0


@rule(
    "N06",
    "norm-gain-odd",
    severity="warning",
    basis="neighbours",
    needs=("norm.size",),
    summary="The gain of a norm is several times larger or smaller than in the layers around it.",
    why="The branch behind it reads, or the stream after it holds, values out of scale.",
    is_not="Gains that change smoothly with depth; first and last layers, which often differ.",
    false_alarms="A layer that training has nearly switched off.",
    remedy="Scale the gain back, or load it again.",
    sources=("https://github.com/NVIDIA-NeMo/Speech/issues/11951",),
    explains=(
        "attention-saturated", "attention-uniform", "writes-drowned", "stream-exploding",
        "write-dead", "gradient-exploding", "gradient-vanishing", "first-writes-too-large",
        "massive-activations", "residual-weight-odd", "attention-scale-wrong",
        "loss-worse-than-unigram", "loss-worse-than-uniform", "tokens-equal", "depth-unused",
        "weights-foreign", "bfloat16-write-loss",
    ),
    example="gain-times-8",
)  # fmt: skip
def norm_gain_odd(case: Case, rule: Rule) -> Iterator[Finding]:
    """Outliers of the size of gains over depth; in short stacks, beside the twin."""
    twins = case.twin_lines("norm.size")
    for (stack, point), line in case.lines("norm.size").items():
        if stack == OUTSIDE:
            continue
        twin = twins.get((stack, point))
        fresh = twin if twin and all(value > 0 for value in twin.values()) else None
        odd = outliers(line, factor=FACTOR, twin=fresh) or _beside_twin(line, fresh)
        for outlier in odd:
            at_end = outlier.layer in (min(line), max(line)) and case.at_initialisation is not True
            if at_end and 1 / END_FACTOR < outlier.factor < END_FACTOR:
                continue
            place = CasePlace(stack, outlier.layer, None, point)
            name = case.parameter(place)
            factor = outlier.factor
            size = f"{factor:.3g} times larger" if factor > 1 else f"{1 / factor:.3g} times smaller"
            yield rule.finding(
                f"The gain of {name} in {site_text(case, stack, [outlier.layer])} is {size} than "
                "in the layers around it.",
                stack=stack,
                layers=[outlier.layer],
                parameter=name,
                evidence=[
                    Evidence(f"rms of the gain of {name}", outlier.value, outlier.expected,
                             "the same norm in the layers around it"),
                ],
                cause="a gain that was scaled, or loaded from another place",
                remedy=Remedy(
                    f"Multiply {name}.weight by {1 / factor:.3g}, or load it again.",
                    edit={"edit": "scale-tensor", "parameter": f"{name}.weight",
                          "factor": 1 / factor},
                ),
                quantity="norm.size",
            )  # fmt: skip


def _beside_twin(line: dict[int, float], twin: dict[int, float] | None) -> list[Outlier]:
    """In stacks of two or three layers: one that is off its twin while the others are on it."""
    if twin is None or not 2 <= len(line) <= 3:
        return []
    ratios = {at: value / twin[at] for at, value in line.items() if value > 0 and at in twin}
    off = [at for at, ratio in ratios.items() if not 1 / FACTOR < ratio < FACTOR]
    usual = all(1 / 1.5 < ratio < 1.5 for at, ratio in ratios.items() if at not in off)
    return [Outlier(at, line[at], twin[at]) for at in off] if len(off) == 1 and usual else []
