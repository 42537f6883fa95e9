"""P03: a few entries of the stream are thousands of times larger than the median.

Thresholds of Sun et al. 2024: larger than 100, and more than 1000 times the median.
"""

from __future__ import annotations

from collections.abc import Iterator

from leadline.reading.diagnosis.case import Case
from leadline.reading.diagnosis.profile import line_of
from leadline.reading.diagnosis.rule import Evidence, Rule, rule
from leadline.record.rows.finding import Finding

SIZE, RATIO = 100.0, 1000.0


@rule(
    "P03",
    "massive-activations",
    severity="note",
    basis="hint",
    needs=("stream.largest", "stream.massive"),
    summary="Single entries of the stream are more than 1000 times larger than the median.",
    why="Usually benign: trained models use them as biases, mostly at the first token. They eat the range "
    "of number formats with few bits, and quantisation with one scale loses everything else.",
    is_not="A stream that is large everywhere.",
    false_alarms="It is a note: nearly every large trained model has them.",
    remedy="None is needed. For quantisation keep these features in a higher precision.",
    sources=("Sun et al. 2024, arXiv 2402.17762", "Dettmers et al. 2022, arXiv 2208.07339"),
    example="stream-near-float16",
)
def massive_activations(case: Case, rule: Rule) -> Iterator[Finding]:
    """Name layers, token and feature of the largest entry of every stack."""
    for stack in case.stacks:
        ratios, sizes = (
            line_of(case, "stream.massive", stack),
            line_of(case, "stream.largest", stack),
        )
        layers = [
            at for at, r in ratios.items() if RATIO < r < float("inf") and sizes.get(at, 0) > SIZE
        ]
        if not layers:
            continue
        worst = max(layers, key=lambda at: sizes[at])
        token = line_of(case, "stream.largest", stack, statistic="token").get(worst)
        feature = line_of(case, "stream.largest", stack, statistic="feature").get(worst)
        where = f", at token {token:.0f}, feature {feature:.0f}" if token and feature else ""
        yield rule.finding(
            f"The {stack} has massive activations from layer {min(layers)} to {max(layers)}: up to "
            f"{sizes[worst]:.4g}, {ratios[worst]:.0f} times the median{where}.",
            stack=stack,
            layers=[at for at in layers if at],
            evidence=[
                Evidence("largest value over median", ratios[worst], RATIO, "Sun et al. 2024")
            ],
            remedy="None is needed; mind them when you quantise.",
            quantity="stream.massive",
        )
