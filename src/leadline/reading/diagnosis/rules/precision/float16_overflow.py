"""P01: values come within a factor of 2 of the largest number of float16, or beyond it."""

from __future__ import annotations

from collections.abc import Iterator

from leadline.reading.diagnosis.case import Case
from leadline.reading.diagnosis.rule import Evidence, Remedy, Rule, rule
from leadline.record.provenance import text_at
from leadline.record.rows.finding import Finding

FLOAT16_MAX = 65504.0


@rule(
    "P01",
    "float16-overflow",
    severity="warning",
    basis="law",
    needs=("stream.largest",),
    summary="The stream or a write comes within a factor of 2 of 65,504, the largest number of float16.",
    why="One larger token, and the sum is infinite; the next norm makes NaN of it.",
    is_not="Large values in bfloat16 or float32, which reach 3.4e38: for them this is said of a cast to "
    "float16 that somebody may do.",
    false_alarms="A model that never runs in float16.",
    remedy="Run in bfloat16, or keep the stream in float32.",
    sources=("https://github.com/microsoft/onnxruntime-genai/issues/2444", "https://github.com/huggingface/transformers/issues/36822"),
    explains=("massive-activations",),
    example="stream-beyond-float16",
)  # fmt: skip
def float16_overflow(case: Case, rule: Rule) -> Iterator[Finding]:
    """Name the first site of every stack that is too large."""
    dtype = text_at(case.provenance, "model", "dtype")
    places = [*case.values("stream.largest").items(), *case.values("update.largest").items()]
    for stack in case.stacks:
        large = [
            (p, v) for p, v in places if p.stack == stack and FLOAT16_MAX / 2 < v < float("inf")
        ]
        if not large:
            continue
        first, _ = min(large, key=lambda one: (one[0].layer, one[0].sublayer or 99))
        value = max(v for _, v in large)
        what = "The stream" if first.point == "stream" else f"What the {first.point} writes"
        runs = dtype == "float16"
        beyond = "overflows" if runs else "would overflow"
        if value <= FLOAT16_MAX:
            beyond = "nearly overflows" if runs else "would nearly overflow"
        yield rule.finding(
            f"{what} {beyond} in float16 from {stack} layer {first.layer} on: its largest value is "
            f"{value:.4g}.",
            stack=stack,
            layers=sorted({place.layer for place, _ in large if place.layer}),
            sublayer=None if first.point == "stream" else first.point,
            severity="serious" if runs else None,
            evidence=[
                Evidence("largest value", value, FLOAT16_MAX, "the largest number of float16")
            ],
            cause="a stream that grows with depth, or massive activations",
            remedy=Remedy(
                "Run the model in bfloat16.", safe=True, edit={"edit": "cast", "dtype": "bfloat16"}
            ),
            confidence="certain",
            quantity="stream.largest",
        )
