"""P05: rotary phases that were computed or kept in half precision."""

from __future__ import annotations

from collections.abc import Iterator

from leadline.reading.diagnosis.case import Case
from leadline.reading.diagnosis.rule import Evidence, Remedy, Rule, rule
from leadline.record.provenance import text_at
from leadline.record.rows.finding import Finding

COSINE = 16 * 2.0**-7
"""Sixteen eps of bfloat16: rounded cosines are off by one eps, rounded phases by much more."""
TURN = 1.0
"""An error of one radian at the end of the context: places there cannot be told apart."""


@rule(
    "P05",
    "rotary-precision",
    severity="warning",
    basis="identity",
    needs=("rotary",),
    summary="Compares rotary frequencies and cosines with float64 up to the end of the context.",
    why="Integers above 256 are not exact in bfloat16, and a frequency that is off by 0.2 % is off by "
    "whole turns after some thousand positions: far tokens stand in the wrong place.",
    is_not="Cosines that are computed in float32 and rounded at the end; frequencies of scaled kinds.",
    false_alarms="A model in half precision that never sees long inputs: below one radian it is a note.",
    remedy="Keep the frequencies and compute the phases in float32, and cast the cosines.",
    sources=(
        "https://github.com/huggingface/candle/issues/3520",
        "https://github.com/huggingface/transformers/pull/29285",
    ),
    explains=("buffer-wrong",),
    example="phases-in-bfloat16",
)
def rotary_precision(case: Case, rule: Rule) -> Iterator[Finding]:
    """Name the first buffer that was rounded, or the module that rounds."""
    half = text_at(case.provenance, "model", "dtype") in ("bfloat16", "float16")
    for one in case.fact("rotary", ()):
        stack, layer = case.place_of(one["buffer"])
        layers = [layer] if layer else []
        cosine = one["cosine_error"]
        if one["rounded_to"]:
            yield rule.finding(
                f"The rotary frequencies are rounded to {one['rounded_to']}: {one['buffer']} is off by up "
                f"to {one['error']:.2g} radians at position {one['limit'] - 1}.",
                stack=stack,
                layers=layers,
                parameter=one["buffer"],
                evidence=[
                    Evidence(
                        "phase error at the end of the context, radians",
                        one["error"],
                        0.0,
                        "float64",
                    )
                ],
                cause="the model was cast as a whole, buffers included (`model.to(dtype)`, `.half()`)",
                remedy=Remedy(
                    f"Compute {one['buffer']} again in float32 after casting the model.", safe=True
                ),
                severity="note" if half and one["error"] < TURN else None,
            )
            return
        if cosine is not None and cosine > COSINE:
            yield rule.finding(
                f"Rotary phases are computed in half precision: the cosines of {one['module']} are off "
                f"by up to {cosine:.2g}.",
                stack=stack,
                layers=layers,
                parameter=one["module"],
                evidence=[Evidence("error of the cosine", cosine, COSINE, "16 eps of bfloat16")],
                cause="positions or phases are cast to half precision before the cosine",
                remedy=f"Compute positions times frequencies in float32 in {one['module']}.",
            )
            return
