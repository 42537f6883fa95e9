"""W08: a matrix has far fewer directions than its size allows.

Threshold: half of full rank. Trained matrices had 0.98 and more in every tensor of the embedded pair,
of MiniLM and of a small trained Llama; thin products have exactly their inner width. Some designs of
the zoo have tensors of low rank by themselves, and so have their twins.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from statistics import median

from leadline.reading.diagnosis.case import OUTSIDE, Case, CasePlace
from leadline.reading.diagnosis.rule import Evidence, Remedy, Rule, rule
from leadline.reading.diagnosis.tensors import (
    exact_share,
    is_matrix,
    names_text,
    role_of,
    site_text,
)
from leadline.record.rows.finding import Finding

LEAST = 0.5


@rule(
    "W08",
    "weights-low-rank",
    severity="warning",
    basis="neighbours",
    needs=("weights.rank",),
    summary="A weight matrix has less than half of full rank where its twin or its neighbours have full "
    "rank.",
    why="What lies outside of these few directions cannot pass: the layer uses a part of its width.",
    is_not="Matrices with rows of zeros (weights-zero), adapters, tables outside of blocks.",
    false_alarms="A model that was compressed by low-rank factors on purpose and multiplied out.",
    remedy="Load the tensor again.",
    sources=("Sharma et al. 2023, arXiv 2312.13558",),
    explains=("weights-foreign",),
    example="low-rank-tensor",
)
def weights_low_rank(case: Case, rule: Rule) -> Iterator[Finding]:
    """Tensors inside blocks; one finding per layer."""
    by_layer: defaultdict[tuple[str, int], list[CasePlace]] = defaultdict(list)
    for place, share in case.values("weights.rank").items():
        if place.stack == OUTSIDE or share >= LEAST or not is_matrix(case, place):
            continue
        if "lora" in place.point.lower() or _has_zeros(case, place):
            continue
        if _expected(case, place) >= 2 * LEAST - 0.1:
            by_layer[place.stack, place.layer].append(place)
    for (stack, layer), places in by_layer.items():
        names = [case.parameter(place) for place in places]
        share = case.values("weights.rank")[places[0]]
        at = site_text(case, stack, [layer])
        yield rule.finding(
            f"{names_text(names)} in {at} {'have' if len(names) > 1 else 'has'} only {share:.0%} "
            "of full rank.",
            stack=stack,
            layers=[layer],
            sublayer=role_of(case, stack, layer, names[0]) if len(names) == 1 else None,
            parameter=names[0],
            evidence=[
                Evidence(
                    f"rank of {names[0]} over full rank",
                    share,
                    _expected(case, places[0]),
                    "the twin" if case.has_twin else "the same tensor in other layers",
                )
            ],
            ruled_out=["rows or columns of zeros: there are none"],
            cause="the tensor was rebuilt from thin factors, or rows of it were copied",
            remedy=Remedy(f"Load {names_text(names)} again."),
            quantity="weights.rank",
        )


def _has_zeros(case: Case, place: CasePlace) -> bool:
    return any(exact_share(case, f"weights.zero_{axis}", place) > 0 for axis in ("rows", "columns"))


def _expected(case: Case, place: CasePlace) -> float:
    twin = case.values("weights.rank", "twin").get(place)
    if twin is not None:
        return twin
    line = case.lines("weights.rank").get((place.stack, place.point), {})
    others = [value for layer, value in line.items() if layer != place.layer]
    return median(others) if others else 0.0
