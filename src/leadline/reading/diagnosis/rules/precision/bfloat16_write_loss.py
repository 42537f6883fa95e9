"""P02: a bfloat16 stream rounds away most of what is written to it.

Threshold: half of a write is lost (the update is under half a unit in the last place of most features) in
at least half of the writes. Writes of ReZero and LayerScale are lost at the start by their design and
grow; they are left out where the twin loses them, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from leadline.reading.diagnosis.case import Case
from leadline.reading.diagnosis.profile import writes_of
from leadline.reading.diagnosis.rule import Evidence, Rule, rule
from leadline.reading.diagnosis.words import layers_text
from leadline.record.provenance import text_at
from leadline.record.rows.finding import Finding

LOST = 0.5


@rule(
    "P02",
    "bfloat16-write-loss",
    severity="warning",
    basis="law",
    needs=("update.bf16_loss",),
    summary="Most of what the layers write is lost when the stream is kept in bfloat16.",
    why="bfloat16 has 8 bits: beside a large stream a small write is rounded to nothing.",
    is_not="A model in float32: there it is a note about a cast that may come. Writes that are 0.",
    false_alarms="Layers that are switched off at the start and grow during training.",
    remedy="Keep the residual stream in float32 and cast inside of the branches.",
    sources=("Kalamkar et al. 2019, arXiv 1905.12322",),
    example="stream-large-in-bfloat16",
)
def bfloat16_write_loss(case: Case, rule: Rule) -> Iterator[Finding]:
    """Count the writes that are lost by half."""
    runs = text_at(case.provenance, "model", "dtype") == "bfloat16"
    for stack in case.stacks:
        lines = writes_of(case, "update.bf16_loss", stack)
        twins = writes_of(case, "update.bf16_loss", stack, twin=True)
        losses = {
            (role, at): value
            for role, line in lines.items()
            for at, value in line.items()
            if value == value and not twins.get(role, {}).get(at, 0.0) > LOST
        }
        lost = {place: value for place, value in losses.items() if value > LOST}
        writes = sum(len(line) for line in lines.values())
        if not writes or len(lost) < 0.5 * writes or not (runs or case.has_twin):
            continue
        layers = sorted({at for _, at in lost})
        share = median(lost.values())
        yield rule.finding(
            f"A bfloat16 stream {'loses' if runs else 'would lose'} {share:.0%} of what "
            f"{layers_text(layers, case.depth(stack))} of the {stack} write.",
            stack=stack,
            layers=layers,
            severity=None if runs and case.has_twin else "note",
            evidence=[
                Evidence(
                    "share of a write lost by rounding, median",
                    share,
                    0.02,
                    "a write of a tenth of the stream",
                )
            ],
            cause="writes that are under half a unit in the last place of the stream",
            remedy="Keep the residual stream in float32.",
            confidence="certain" if runs else "likely",
            quantity="update.bf16_loss",
        )
