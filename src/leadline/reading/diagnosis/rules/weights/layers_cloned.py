"""W03: layers hold copies of the same weights."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from leadline.reading.diagnosis.case import Case
from leadline.reading.diagnosis.rule import Evidence, Remedy, Rule, rule
from leadline.reading.diagnosis.tensors import names_text, role_of, shape_of, site_text
from leadline.record.rows.finding import Finding


@rule(
    "W03",
    "layers-cloned",
    severity="serious",
    basis="identity",
    needs=("clones", "weights.rms"),
    summary="Weights of several layers are equal to the last bit, in separate tensors.",
    why="Layers that start equal get nearly equal gradients and stay alike; in a trained model one "
    "layer's weights have overwritten another's.",
    is_not="Layers that share one tensor (that is modules-shared, or a design such as ALBERT), fresh "
    "gains and biases, which are constants.",
    false_alarms="A model that was grown by copying layers and not yet trained on.",
    remedy="Draw every layer on its own, or load the layers again.",
    sources=("https://github.com/pytorch/pytorch/issues/86274",),
    explains=("heads-equal", "weights-foreign", "depth-unused", "loss-worse-than-unigram"),
    example="layer-cloned",
)
def layers_cloned(case: Case, rule: Rule) -> Iterator[Finding]:
    """One finding for each set of layers that are equal in some tensor."""
    groups: defaultdict[tuple[str, tuple[int, ...]], list[dict[str, Any]]] = defaultdict(list)
    for clone in case.fact("clones", []):
        if clone["twin"]:
            continue
        groups[clone["stack"], tuple(clone["layers"])].append(clone)
    for (stack, layers), clones in groups.items():
        points = [clone["point"] for clone in clones]
        values = sum(clone["values"] for clone in clones)
        if clones[0]["twin"] is None and values < 0.5 * _values(case, stack, layers[0]):
            continue  # without a twin, a few equal tensors may be drawn without chance
        first = clones[0]["names"]
        at = site_text(case, stack, list(layers))
        roles = {role_of(case, stack, layers[0], clone["names"][0]) for clone in clones}
        roles.discard(None)
        yield rule.finding(
            f"The weights of {at} are copies of each other: {names_text(points)} "
            f"{'are' if len(points) > 1 else 'is'} equal to the last bit.",
            stack=stack,
            layers=layers,
            sublayer=roles.pop() if len(roles) == 1 else None,
            parameter=first[1],
            evidence=[
                Evidence("values that are equal", float(values), 0.0, "independent draws"),
                Evidence("tensors that are equal", names_text(points)),
            ],
            ruled_out=["one shared tensor: they are separate in memory"],
            cause="one layer was deep-copied, or loaded into several places",
            remedy=Remedy(
                f"Draw or load {'these layers' if len(layers) > 2 else 'one of them'} again, each "
                "with its own weights."
            ),
        )


def _values(case: Case, stack: str, layer: int) -> int:
    """How many values the tensors of a layer have."""
    return sum(
        math.prod(shape_of(case, case.parameter(place)))
        for place in case.values("weights.rms")
        if place.stack == stack and place.layer == layer
    )
