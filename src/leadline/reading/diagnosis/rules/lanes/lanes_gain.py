"""L01: what mixes the lanes amplifies them from layer to layer.

Thresholds: all lanes together grow thirtyfold more than the twin's, or a thousandfold from block 1 to
the last. Hyper-connections as drawn grow by 1.06 over 24 layers.
"""

from __future__ import annotations

from collections.abc import Iterator

from leadline.reading.diagnosis.case import Case
from leadline.reading.diagnosis.profile import is_finite_line, line_of, twin_line_of
from leadline.reading.diagnosis.rule import Evidence, Rule, rule
from leadline.record.rows.finding import Finding

FACTOR, GROWTH = 30.0, 1e3


@rule(
    "L01",
    "lanes-gain",
    severity="warning",
    basis="law",
    needs=("lane.norm", "stream.norm"),
    summary="The lanes of a stream are amplified from layer to layer.",
    why="Products of mixing matrices whose gain is above 1 grow exponentially with depth, forward and "
    "backward.",
    is_not="Lanes that differ in size; growth like the square root of depth.",
    false_alarms="Without a twin, designs whose stream is meant to grow that much, such as deep ones "
    "without a final norm on the lanes.",
    remedy="Constrain the mixing to doubly stochastic matrices (manifold hyper-connections), keep its "
    "parameters in float32.",
    sources=("Zhu et al. 2024, arXiv 2409.19606", "Xie et al. 2025, arXiv 2512.24880"),
    explains=(
        "writes-drowned",
        "float16-overflow",
        "bfloat16-write-loss",
        "depth-unused",
        "stream-exploding",
        "gradient-exploding",
    ),
    example="lanes-doubled",
)
def lanes_gain(case: Case, rule: Rule) -> Iterator[Finding]:
    """Compare the growth of all lanes with the twin's."""
    for stack, facts in case.stacks.items():
        line = line_of(case, "stream.norm", stack)
        if (
            int(facts.get("lanes", 1)) < 2
            or not is_finite_line(line)
            or len(line) < 3
            or not line.get(1)
        ):
            continue
        growth = line[max(line)] / line[1]
        twin = twin_line_of(case, "stream.norm", stack)
        expected = twin[max(twin)] / twin[1] if twin.get(1) else 1.0
        if growth > FACTOR * max(expected, 1.0) or growth > GROWTH:
            yield rule.finding(
                f"The lanes of the {stack} grow {growth:.3g}-fold from layer 1 to layer {max(line)}.",
                stack=stack,
                layers=[at for at in line if at],
                evidence=[
                    Evidence("stream norm, last over first layer", growth, expected, "the twin")
                ],
                cause="mixing matrices whose gain is above 1",
                remedy="Normalise the rows and columns of the mixing, and keep it in float32.",
                quantity="stream.norm",
            )
