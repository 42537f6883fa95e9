"""L01: what mixes the lanes amplifies them from layer to layer.

Thresholds: all lanes together grow thirtyfold more than the twin's, or a thousandfold from block 1 to
the last. Hyper-connections as drawn grow by 1.06 over 24 layers. One layer is odd where its mixing is larger
than a constant that all others and the twin have to six digits.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from leadline.reading.diagnosis.case import Case
from leadline.reading.diagnosis.equations import majority
from leadline.reading.diagnosis.profile import is_finite_line, line_of, twin_line_of
from leadline.reading.diagnosis.rule import Evidence, Remedy, Rule, rule
from leadline.reading.diagnosis.tensors import kind_of
from leadline.record.rows.finding import Finding

FACTOR, GROWTH = 30.0, 1e3
EXACT = 1e-3


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
        else:
            yield from _odd_layers(case, rule, stack)


def _odd_layers(case: Case, rule: Rule, stack: str) -> Iterator[Finding]:
    """Layers whose mixing is not the constant that all others, and the twin, start with."""
    twins = case.twin_lines("weights.rms")
    odd: defaultdict[int, list[tuple[str, float, float]]] = defaultdict(list)
    for (name, point), line in case.lines("weights.rms").items():
        twin = twins.get((name, point), {})
        parameter = f"{case.module(stack, min(line))}.{point}"
        if name != stack or twin.keys() != line.keys() or kind_of(case, parameter) == "norm":
            continue
        usual = majority(f"{value:.6g}" for value in line.values())
        if usual is None or {f"{value:.6g}" for value in twin.values()} != {usual}:
            continue
        for layer, value in line.items():
            if value > twin[layer] * (1 + EXACT) > 0:
                odd[layer].append((f"{case.module(stack, layer)}.{point}", value, twin[layer]))
    for layer, tensors in odd.items():
        name, value, expected = tensors[0]
        yield rule.finding(
            f"The lanes of the {stack} are amplified in layer {layer}: {name} is {value / expected:.3g} "
            "times as large as in all other layers.",
            stack=stack,
            layers=[layer],
            parameter=name,
            evidence=[
                Evidence(
                    f"rms of {one}", size, usual_size, "all other layers and the twin, exactly"
                )
                for one, size, usual_size in tensors[:3]
            ],
            ruled_out=["training: the other layers are as they were drawn"],
            cause="a mixing matrix that was scaled, or drawn with another constant",
            remedy=Remedy(
                f"Divide {name} by {value / expected:.3g}.",
                edit={"edit": "scale-tensor", "parameter": name, "factor": expected / value},
            ),
            quantity="weights.rms",
        )
