"""W01: a matrix, or whole rows or columns of it, is exactly zero."""

from __future__ import annotations

from collections.abc import Iterator

from leadline.reading.diagnosis.case import OUTSIDE, Case, CasePlace
from leadline.reading.diagnosis.rule import Evidence, Remedy, Rule, rule
from leadline.reading.diagnosis.tensors import (
    exact_share,
    is_matrix,
    is_untrained,
    role_of,
    site_text,
)
from leadline.record.rows.finding import Finding


@rule(
    "W01",
    "weights-zero",
    severity="serious",
    basis="identity",
    needs=("weights.rms",),
    summary="A weight matrix, or whole rows or columns of one, is exactly zero where its twin or its "
    "neighbours in depth are not.",
    why="What goes through a zero matrix is lost: the sublayer writes nothing, and the weights before "
    "it get no gradient.",
    is_not="A design that starts with zero output projections in all layers (the twin has them too, or "
    "all layers do), the second factor of a fresh LoRA adapter, a padding row of an embedding.",
    false_alarms="A model from which heads or neurons were pruned by writing zeros.",
    remedy="Load the tensor again, or draw it again as its neighbours were drawn.",
    sources=("https://github.com/NVIDIA-NeMo/Speech/issues/11951",),
    explains=(
        "write-dead", "weights-low-rank", "weights-foreign", "gradient-cut", "weights-scale-odd",
        "attention-uniform", "heads-equal", "adapter-cannot-learn", "loss-worse-than-uniform",
        "loss-worse-than-unigram", "tokens-equal", "gradient-vanishing", "depth-unused",
        "positions-unused", "past-unreached", "output-head-too-large", "write-lost",
        "residual-weight-odd", "logit-drift", "weights-layout-wrong", "unlike-its-family",
    ),
    example="mlp-zero",
)  # fmt: skip
def weights_zero(case: Case, rule: Rule) -> Iterator[Finding]:
    """Zero tensors first; then zero rows and columns of matrices inside blocks."""
    for place, share in case.values("weights.zeros").items():
        if not is_matrix(case, place) or "lora" in place.point.lower():
            continue
        if share == 1.0:
            if not _by_design(case, place, "weights.zeros", 1.0):
                yield _finding(case, rule, place, "is 0 throughout", 1.0)
            continue
        for axis in ("rows", "columns"):
            part = exact_share(case, f"weights.zero_{axis}", place)
            if (
                place.stack != OUTSIDE
                and part > 0
                and not _by_design(case, place, f"weights.zero_{axis}", part)
            ):
                yield _finding(case, rule, place, f"has {part:.0%} of its {axis} at 0", part)


def _by_design(case: Case, place: CasePlace, quantity: str, part: float) -> bool:
    """Whether the twin, or every other layer where there is no twin, has as many zeros.

    A tensor that is 0 in all layers of an untrained model is a start, whatever the twin does: output
    weights of zero (ReZero, muP, zero-init residuals) are set after the weights are drawn.
    """
    line = case.lines("weights.zeros").get((place.stack, place.point), {})
    start = len(line) > 1 and set(line.values()) == {1.0} and is_untrained(case)
    if part == 1.0 and place.stack != OUTSIDE and start:
        return True
    if place in case.values("weights.rms", "twin"):
        return exact_share(case, quantity, place, "twin") >= part
    if place.stack == OUTSIDE:
        return True
    others = [
        exact_share(case, quantity, CasePlace(place.stack, layer, None, place.point))
        for layer in case.lines("weights.rms").get((place.stack, place.point), {})
        if layer != place.layer
    ]
    return all(other >= part for other in others)


def _finding(case: Case, rule: Rule, place: CasePlace, what: str, part: float) -> Finding:
    name = case.parameter(place)
    layers = [place.layer] if place.layer else []
    at = site_text(case, place.stack, layers)
    role = role_of(case, place.stack, place.layer, name) if layers else None
    twin = case.values("weights.rms", "twin").get(place)
    verdict = f"A weight of {at} is dead: {name} {what}."
    if part == 1.0 and role:
        verdict = f"The {role} of {at} is cut off: {name} {what}."
    return rule.finding(
        verdict,
        stack=place.stack if layers else None,
        layers=layers,
        sublayer=role,
        parameter=name,
        evidence=[
            Evidence(f"share of {name} that is exactly 0", part, 0.0,
                     "the twin" if twin else "the same tensor in other layers"),
        ],
        ruled_out=["zero by design: " + ("the twin's is not 0" if twin else "other layers' are not")],
        cause="the tensor was zeroed, or never loaded after it was allocated",
        remedy=Remedy(
            f"Load {name} again, or draw it as its neighbours are drawn.",
            edit={"edit": "redraw-tensor", "parameter": name, "std": twin} if twin else {},
        ),
        quantity="weights.zeros",
    )  # fmt: skip
