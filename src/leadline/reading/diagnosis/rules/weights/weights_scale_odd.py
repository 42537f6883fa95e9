"""W02: a tensor is much larger or smaller than the same tensor in the layers around it.

Thresholds: a factor of 4 and 6 median deviations of the logarithm. In the embedded pair of trained
models, in MiniLM and in a small trained Llama no matrix is further than 1.5 from its four neighbours;
vectors (biases) reach 2.8 there and are freer to move, so they need a factor of 30.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from statistics import median

from leadline.reading.diagnosis.case import OUTSIDE, Case, CasePlace, Outlier, outliers
from leadline.reading.diagnosis.rule import Evidence, Remedy, Rule, rule
from leadline.reading.diagnosis.tensors import (
    has_fresh_constants,
    is_matrix,
    kind_of,
    matrix_ratios,
    names_text,
    role_of,
    site_text,
    tensor_lines,
)
from leadline.record.rows.finding import Finding

FACTOR = 4.0
VECTOR_FACTOR = 30.0
TRAINED = 10.0
PART = 1.0
"""Deviation of the logarithm of norms: rows that differ by a factor of e and more."""


@rule(
    "W02",
    "weights-scale-odd",
    severity="warning",
    basis="neighbours",
    needs=("weights.rms",),
    summary="A weight tensor is several times larger or smaller than the same tensor in the layers "
    "around it.",
    why="One tensor that is out of scale saturates attention, drowns the stream or writes nothing, and "
    "its gradient is out of scale by the inverse factor.",
    is_not="Weights that change smoothly with depth, or a design whose twin has the same step.",
    false_alarms="The first or last layer of some trained models.",
    remedy="Scale the tensor back, or load it again.",
    sources=("https://github.com/unslothai/unsloth/pull/6978",),
    explains=("attention-saturated", "attention-uniform", "gradient-exploding", "gradient-vanishing",
        "stream-exploding", "writes-drowned", "float16-overflow", "massive-activations",
        "write-dead", "weights-foreign", "first-writes-too-large", "tokens-equal", "depth-unused",
        "bfloat16-write-loss", "loss-worse-than-uniform", "loss-worse-than-unigram",
        "attention-scale-wrong", "residual-weight-odd", "attention-sinks", "logit-drift",
        "heads-equal", "positions-unused", "unlike-its-family", "residual-scale-wrong",
    ),
    example="qkv-times-100",
)  # fmt: skip
def weights_scale_odd(case: Case, rule: Rule) -> Iterator[Finding]:
    """Outliers over depth, gathered by layer where most tensors of a layer are off."""
    by_layer: defaultdict[tuple[str, int], list[tuple[CasePlace, Outlier]]] = defaultdict(list)
    for place, outlier in _odd_tensors(case):
        by_layer[place.stack, place.layer].append((place, outlier))
    for (stack, layer), group in by_layer.items():
        matrices = [one for one in group if is_matrix(case, one[0])]
        every = [
            place
            for place in case.values("weights.rms")
            if place.stack == stack and place.layer == layer and is_matrix(case, place)
        ]
        if stack != OUTSIDE and len(matrices) > 2 and len(matrices) >= 0.75 * len(every):
            yield _layer_finding(case, rule, stack, layer, matrices)
        else:
            for place, outlier in matrices or group:
                yield _tensor_finding(case, rule, place, outlier)
    parts = {
        place: one for place, one in _odd_parts(case) if (place.stack, place.layer) not in by_layer
    }
    for place, outlier in parts.items():
        yield _part_finding(case, rule, place, outlier)


def _odd_tensors(case: Case) -> Iterator[tuple[CasePlace, Outlier]]:
    twins = case.twin_lines("weights.rms")
    drawn = bool(case.at_initialisation) and has_fresh_constants(case) is not False
    for (stack, point), line in tensor_lines(case, "weights.rms").items():
        first = CasePlace(stack, min(line), None, point)
        name = case.parameter(first)
        if kind_of(case, name) == "norm" or "lora" in point.lower():
            continue
        twin = twins.get((stack, point))
        matrix = is_matrix(case, first)
        factor = FACTOR if matrix else VECTOR_FACTOR
        fresh = twin if twin and all(value > 0 for value in twin.values()) else None
        odd = (_half_off_twin(line, fresh) if matrix and fresh else []) or outliers(
            line, factor=factor, twin=fresh
        )
        if not odd and matrix and fresh:
            odd = _beside_twin(line, fresh) or _off_twin(line, fresh, drawn=drawn)
        for outlier in odd:
            place = CasePlace(stack, outlier.layer, None, point)
            if matrix or not _is_negligible(case, place, outlier):
                yield place, outlier
        if not matrix and not odd:
            yield from _lone_vector(stack, point, line)
    yield from _outside(case)


def _is_negligible(case: Case, place: CasePlace, outlier: Outlier) -> bool:
    """Whether a bias is smaller than the entries of the matrix it is added to, here and elsewhere.

    Then it is no more than about 1 / sqrt(width) of the sum. The bias of keys is such a one: softmax
    does not see it, so that training leaves it at noise, and noise differs from layer to layer.
    """
    beside = replace(place, point=f"{place.point.rpartition('.')[0]}.weight")
    entries = case.values("weights.rms").get(beside, 0.0)
    return place.point.endswith("bias") and max(outlier.value, outlier.expected) < entries


def _odd_parts(case: Case) -> Iterator[tuple[CasePlace, Outlier]]:
    """Tensors of which some rows or columns alone are out of scale: one of several fused matrices.

    A third of the rows that is thirty times smaller makes the deviation of the logarithm of norms 1.6.
    Healthy hosts were seen at up to 0.43 (trained) and 0.56 (DeepNorm, which draws the parts of a fused
    matrix with two spreads), and within 1.7 of the median of their line.
    """
    for quantity in ("weights.row_spread", "weights.column_spread"):
        twins = case.twin_lines(quantity)
        for (stack, point), line in tensor_lines(case, quantity).items():
            if not is_matrix(case, CasePlace(stack, min(line), None, point)):
                continue
            twin = twins.get((stack, point), {})
            for outlier in outliers(line, factor=FACTOR, deviations=4.0):
                small = max(twin.get(outlier.layer, 0.0), outlier.expected)
                if outlier.value > PART and outlier.value > FACTOR * small:
                    yield CasePlace(stack, outlier.layer, None, point), outlier


def _beside_twin(line: dict[int, float], twin: dict[int, float]) -> list[Outlier]:
    """In stacks of two or three layers: one that is off its twin while the others are on it."""
    ratios = {at: value / twin[at] for at, value in line.items() if value > 0 and at in twin}
    if not 2 <= len(ratios) <= 3:
        return []
    off = {at: ratio for at, ratio in ratios.items() if not 1 / FACTOR < ratio < FACTOR}
    usual = all(1 / 1.5 < ratio < 1.5 for at, ratio in ratios.items() if at not in off)
    return [Outlier(at, line[at], twin[at]) for at in off] if len(off) == 1 and usual else []


def _half_off_twin(line: dict[int, float], twin: dict[int, float]) -> list[Outlier]:
    """Of two groups of layers that lie far apart, the one that is further from its twin.

    Neighbours cannot tell which of two halves is odd. Each group has at least two layers and keeps
    together within `FACTOR`; the other group is nearer to its twin: trained tensors were seen at 0.85
    to 10.7 times theirs.
    """
    logs = sorted(
        (math.log(value / twin[at]), at) for at, value in line.items() if value > 0 and at in twin
    )
    gaps = [
        (after[0] - before[0], index) for index, (before, after) in enumerate(pairwise(logs), 1)
    ]
    if len(logs) < 4 or len(logs) < len(line):
        return []
    gap, cut = max(gaps)
    groups = logs[:cut], logs[cut:]
    within = max(group[-1][0] - group[0][0] for group in groups)
    if gap < 2 * math.log(FACTOR) or within > math.log(FACTOR) or min(map(len, groups)) < 2:
        return []
    near, far = sorted(groups, key=lambda group: abs(median(log for log, _ in group)))
    usual = math.exp(median(log for log, _ in near))
    if not 1 / TRAINED < usual < 2 * TRAINED:
        return []
    return [
        Outlier(at, line[at], usual * twin[at]) for _, at in sorted(far, key=lambda one: one[1])
    ]


def _off_twin(line: dict[int, float], twin: dict[int, float], *, drawn: bool) -> list[Outlier]:
    """Layers far off their twin while others are on it, where they change smoothly with depth.

    All layers off by one factor are another rule's: a spread that is wrong throughout. Training
    moves the layers of one tensor apart too, by less than `TRAINED` in all that were seen (3).
    """
    ratios = {at: value / twin[at] for at, value in line.items() if value > 0 and at in twin}
    if drawn:
        usual = 1.0
    elif len(ratios) >= 4 and max(ratios.values()) > TRAINED * min(ratios.values()):
        usual = median(sorted(ratios.values())[: len(ratios) // 2])
    else:
        return []
    off = [at for at, ratio in ratios.items() if not 1 / FACTOR < ratio / usual < FACTOR]
    if len(off) == len(ratios):
        return []
    return [Outlier(at, line[at], usual * twin[at]) for at in off]


def _lone_vector(
    stack: str, point: str, line: dict[int, float]
) -> Iterator[tuple[CasePlace, Outlier]]:
    """A bias that is large in one layer and exactly 0 in all others."""
    live = [at for at, value in line.items() if value > 0]
    if len(live) == 1 and len(line) > 2 and line[live[0]] > 1.0:
        yield CasePlace(stack, live[0], None, point), Outlier(live[0], line[live[0]], 0.0)


def _outside(case: Case) -> Iterator[tuple[CasePlace, Outlier]]:
    """Tensors outside of blocks that are off their twin, in a model that is as it was drawn."""
    ratios = matrix_ratios(case)
    ends = set(case.fact("ends", {}).values())
    inside = [ratio for place, ratio in ratios.items() if place.stack != OUTSIDE]
    usual = bool(inside) and 1 / 1.5 < median(inside) < 1.5
    if not usual or not case.at_initialisation or has_fresh_constants(case) is False:
        return
    for place, ratio in ratios.items():
        if place.stack != OUTSIDE or place.point in ends or kind_of(case, place.point) == "norm":
            continue
        if not 1 / (2 * FACTOR) < ratio < 2 * FACTOR:
            value = case.values("weights.rms")[place]
            yield place, Outlier(0, value, value / ratio)


def _tensor_finding(case: Case, rule: Rule, place: CasePlace, outlier: Outlier) -> Finding:
    name = case.parameter(place)
    layers = [place.layer] if place.layer else []
    at = site_text(case, place.stack, layers)
    source = "the twin" if outlier.layer == 0 else "the same tensor in the layers around it"
    if outlier.expected == 0:
        verdict = f"{name} in {at} is large where it is 0 in every other layer."
        edit = {"edit": "scale-tensor", "parameter": name, "factor": 0.0}
    else:
        factor = outlier.factor
        size = f"{factor:.3g} times larger" if factor > 1 else f"{1 / factor:.3g} times smaller"
        against = "its twin" if outlier.layer == 0 else "in the layers around it"
        verdict = f"{name} in {at} is {size} than {against}."
        edit = {"edit": "scale-tensor", "parameter": name, "factor": 1 / factor}
    return rule.finding(
        verdict,
        stack=place.stack if layers else None,
        layers=layers,
        sublayer=role_of(case, place.stack, place.layer, name) if layers else None,
        parameter=name,
        evidence=[Evidence(f"rms of {name}", outlier.value, outlier.expected, source)],
        cause="a scale that was applied twice or left out, or another initialisation of this tensor",
        remedy=Remedy(f"Multiply {name} by {edit['factor']:.3g}, or load it again.", edit=edit),
        quantity="weights.rms",
    )


def _part_finding(case: Case, rule: Rule, place: CasePlace, outlier: Outlier) -> Finding:
    name = case.parameter(place)
    return rule.finding(
        f"A part of {name} in {site_text(case, place.stack, [place.layer])} is out of scale: some of its "
        "rows or columns are many times larger than the others, and not so in the layers around it.",
        stack=place.stack,
        layers=[place.layer],
        sublayer=role_of(case, place.stack, place.layer, name),
        parameter=name,
        evidence=[
            Evidence(f"deviation of the logarithm of norms in {name}", outlier.value,
                     outlier.expected, "the same tensor in the layers around it")
        ],
        cause="one of several matrices in one tensor was scaled, or drawn otherwise",
        remedy=Remedy(f"Scale that part of {name} back, or load it again."),
        quantity="weights.rms",
    )  # fmt: skip


def _layer_finding(
    case: Case, rule: Rule, stack: str, layer: int, group: list[tuple[CasePlace, Outlier]]
) -> Finding:
    names = [case.parameter(place) for place, _ in group]
    factor = median(outlier.factor for _, outlier in group)
    size = f"{factor:.3g} times larger" if factor > 1 else f"{1 / factor:.3g} times smaller"
    worst = group[0]
    return rule.finding(
        f"The weights of {stack} layer {layer} are {size} than those of the layers around it.",
        stack=stack,
        layers=[layer],
        parameter=case.module(stack, layer),
        evidence=[
            Evidence(
                f"rms of {names[0]}",
                worst[1].value,
                worst[1].expected,
                "the same tensor in the layers around it",
            ),
            Evidence("tensors that are off", names_text(names)),
        ],
        cause="a scale that was applied twice or left out, or another initialisation of this layer",
        remedy=Remedy(
            f"Multiply these tensors by {1 / factor:.3g}, or load the layer again.",
            edit={"edit": "scale-tensors", "parameters": names, "factor": 1 / factor},
        ),
        quantity="weights.rms",
    )
