"""X02: where a model first parts from a reference that is known to be right, and by what kind of change.

Numbers at equal places are compared: first those of tensors (they are the same on any inputs), then those
of streams, writes and attention, in the order of depth. Two measurements of one model agree to rounding;
a part per thousand is the threshold, and where the inputs are not the same ones only tensors are compared.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from leadline.reading.diagnosis.case import OUTSIDE, Case, CasePlace
from leadline.reading.diagnosis.rule import Evidence, Rule, rule
from leadline.record.provenance import text_at
from leadline.record.rows.finding import Finding

TOLERANCE = 1e-3
OF_TENSORS = ("weights.", "norm.", "buffer.")
OF_INPUTS = "norm.input"
"""A number of norms that the inputs make, not the tensors."""
OF_PASSES = ("stream.norm", "update.norm", "attention.entropy", "tokens.cosine")


@dataclass(frozen=True)
class _Parting:
    """One place where two records differ."""

    quantity: str
    place: CasePlace
    value: float
    expected: float

    @property
    def factor(self) -> float:
        """The value over the reference's."""
        return self.value / self.expected if self.expected else math.inf


@rule(
    "X02",
    "parts-from-reference",
    severity="serious",
    basis="identity",
    needs=("reference",),
    summary="The model differs from a reference that is known to be right.",
    why="A conversion or a port must give the same numbers.",
    is_not="Rounding: differences below a thousandth are left out.",
    false_alarms="Another precision, or dropout, in one of the two.",
    remedy="Look at the first place that is named: everything after it follows from it.",
    sources=("Jiang et al. 2025 (TTrace), arXiv 2506.09280",),
    example="epsilon-of-another-family",
)
def parts_from_reference(case: Case, rule: Rule) -> Iterator[Finding]:
    """Name the earliest place of tensors that differ; without any, the earliest of a pass."""
    reference = case.reference
    if reference is None:
        return
    tensors = _partings(case, reference, _quantities(case, reference, OF_TENSORS))
    same_inputs = text_at(case.provenance, "input", "digest") == text_at(
        reference.provenance, "input", "digest"
    )
    passes = (
        _partings(case, reference, _quantities(case, reference, OF_PASSES)) if same_inputs else []
    )
    if not tensors and not passes:
        return
    first = (tensors or passes)[0]
    place = first.place
    where = (
        place.point
        if place.stack == OUTSIDE
        else f"{place.stack} layer {place.layer}, {place.point}"
        if place.layer
        else f"what enters the {place.stack}"
    )
    kind = _kind(first, tensors)
    reach = (
        f"{len({one.place for one in tensors})} tensors differ" if tensors else "no tensor differs"
    )
    if not tensors and not case.has("weights.rms"):
        reach = "tensors were not compared"
    yield rule.finding(
        f"The model parts from the reference first at {where}: {kind}.",
        stack=None if place.stack == OUTSIDE else place.stack,
        layers=[place.layer] if place.layer else [],
        sublayer=None if tensors or place.point == "stream" else place.point,
        parameter=case.parameter(place)
        if tensors
        else case.branch(place.stack, place.layer, place.point) or None,
        evidence=[
            Evidence(f"{first.quantity} there", first.value, first.expected, "the reference")
        ],
        ruled_out=[reach] if not tensors else [],
        cause=kind if tensors else f"{reach}, so the code computes something else from here on",
        remedy="Compare the line of code that computes this place with the reference's."
        if not tensors
        else f"Load {case.parameter(place)} again from the reference.",
        quantity=first.quantity,
    )


def _quantities(case: Case, reference: Case, beginnings: tuple[str, ...]) -> list[str]:
    names = set(case.record.quantities) & set(reference.record.quantities)
    return sorted(name for name in names if name.startswith(beginnings) and name != OF_INPUTS)


def _partings(case: Case, reference: Case, names: list[str]) -> list[_Parting]:
    partings = [
        _Parting(name, place, value, expected)
        for name in names
        for place, value in case.values(name).items()
        if (expected := reference.values(name).get(place)) is not None and _differ(value, expected)
    ]
    # The stream after a write carries the number of the write; after the block it has none.
    return sorted(
        partings,
        key=lambda one: (
            one.place.layer,
            one.place.sublayer or 99,
            one.place.point == "stream",
            one.quantity,
            one.place.point,
            one.place.head or 0,
        ),
    )


def _differ(value: float, expected: float) -> bool:
    if math.isnan(value) or math.isnan(expected):
        return math.isnan(value) != math.isnan(expected)
    return abs(value - expected) > TOLERANCE * max(abs(value), abs(expected))


def _kind(first: _Parting, tensors: list[_Parting]) -> str:
    """What kind of change it is, in words."""
    here = {one.quantity: one for one in tensors if one.place == first.place}
    scale = here.get("weights.rms")
    if scale is not None and scale.value == 0:
        return "the tensor is 0 throughout"
    if scale is not None and math.isfinite(scale.factor):
        return f"the tensor is scaled by {scale.factor:.4g}"
    if tensors:
        return f"{first.quantity} is {first.value:.4g} instead of {first.expected:.4g}"
    return f"{first.quantity} is {first.factor:.4g} times the reference's"
