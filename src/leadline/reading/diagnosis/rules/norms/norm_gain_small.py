"""N04: the gain of a norm is zero, or was drawn around zero.

Thresholds: exactly 0, where the twin's or another layer's is not, or beside a bias; or an rms below 0.2 with both signs, a mean below half of the rms. Trained gains
keep their sign: in MiniLM the mean is at least 0.97 of the rms in all 13 norms. Where they do not, as
in the first norm of SmolLM2-135M, they are far from normal draws.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from leadline.reading.diagnosis.case import OUTSIDE, Case, CasePlace
from leadline.reading.diagnosis.rule import Evidence, Remedy, Rule, rule
from leadline.reading.diagnosis.tensors import shape_of, site_text, stack_layers
from leadline.record.rows.finding import Finding

SMALL = 0.2


@rule(
    "N04",
    "norm-gain-small",
    severity="serious",
    basis="identity",
    needs=("norm.gain",),
    summary="The gain of a norm is zero, or was drawn from a narrow distribution around zero, where it "
    "starts at one.",
    why="A norm with gain 0 shuts the branch behind it; gains drawn like weights shrink what the branch "
    "reads fifty-fold and flip the sign of half of its features.",
    is_not="Norms that store what is added to 1 (Gemma): the twin's are 0 as well. Small positive gains "
    "of trained models.",
    false_alarms="A design without a twin that starts some branches with gain 0.",
    remedy="Set the gains to 1: exclude norms from the initialisation of weights.",
    sources=("https://github.com/huggingface/transformers/issues/143",),
    explains=(
        "write-dead", "gradient-vanishing", "norm-gain-odd", "writes-drowned", "attention-uniform",
        "loss-worse-than-uniform", "loss-worse-than-unigram", "gradient-cut", "depth-unused",
        "tokens-equal", "weights-scale-odd", "norm-gain-shifted", "positions-unused",
        "past-unreached", "weights-foreign", "heads-equal", "write-lost",
    ),
    example="gain-drawn-small",
)  # fmt: skip
def norm_gain_small(case: Case, rule: Rule) -> Iterator[Finding]:
    """Norms with such a gain, gathered by stack and by whether they are 0 or drawn."""
    groups: defaultdict[str, list[CasePlace]] = defaultdict(list)
    for place, size in case.values("norm.size").items():
        twin = case.values("norm.size", "twin").get(place)
        if twin is not None and twin < 0.5:
            continue
        # Gain 0 beside a bias returns the bias whatever enters: no design starts a norm so.
        biased = case.values("norm.bias").get(place, 0.0) > 0
        if size == 0 and (twin is not None or biased or _others_live(case, place)):
            groups["are 0"].append(place)
        elif (
            0 < size < SMALL
            and abs(case.values("norm.gain")[place]) < 0.5 * size
            and _looks_drawn(case, place)
        ):
            groups["were drawn around 0"].append(place)
    for what, places in groups.items():
        for stack, numbers in stack_layers(places).items():
            layers = [layer for layer in numbers if layer]
            inside = [place for place in places if place.stack == stack]
            name = case.parameter(inside[0])
            at = site_text(case, stack, layers)
            yield rule.finding(
                f"The gains of norms in {at} {what}: {name}"
                f"{'' if len(inside) == 1 else f' and {len(inside) - 1} more'}.",
                stack=None if stack == OUTSIDE else stack,
                layers=layers,
                parameter=name,
                evidence=[
                    Evidence(f"rms of the gain of {name}", case.values("norm.size")[inside[0]],
                             case.values("norm.size", "twin").get(inside[0], 1.0),
                             "the twin" if case.has_twin else "a norm as it is drawn"),
                    Evidence(f"mean of the gain of {name}", case.values("norm.gain")[inside[0]]),
                ],
                ruled_out=["a gain that is added to 1: the twin's is not 0"] if case.has_twin else [],
                cause="norms were initialised like weights, or their gains were zeroed or not loaded",
                remedy=Remedy(
                    "Set these gains to 1, and leave norms out of the initialisation of weights.",
                    edit={"edit": "fill-tensors", "value": 1.0,
                          "parameters": [f"{case.parameter(place)}.weight" for place in inside]},
                ),
                quantity="norm.size",
            )  # fmt: skip


def _looks_drawn(case: Case, place: CasePlace) -> bool:
    """Whether a gain has the kurtosis of normal draws, within four sampling errors, or less.

    The first norm of SmolLM2-135M is trained to rms 0.04 with both signs, and has a kurtosis of 17.
    """
    weight = replace(place, point=f"{place.point}.weight")
    kurtosis = case.values("weights.kurtosis").get(weight)
    count = math.prod(shape_of(case, case.parameter(weight)))
    return kurtosis is None or count == 0 or kurtosis < 3 + 4 * math.sqrt(24 / count)


def _others_live(case: Case, place: CasePlace) -> bool:
    """Whether the same norm in another layer has a gain, where there is no twin to ask."""
    line = case.lines("norm.size").get((place.stack, place.point), {})
    return any(value > 0 for layer, value in line.items() if layer != place.layer)
