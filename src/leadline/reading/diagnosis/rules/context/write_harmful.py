"""X05: a trained model predicts better without one of its writes.

Threshold: the loss falls by 1 % when the write is left out. In the embedded pair every write lowers the
loss by 0.3 nats and more on text; with the rows of one layer shuffled its MLP raises it by 6 %.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from leadline.reading.diagnosis.case import Case
from leadline.reading.diagnosis.rule import Evidence, Rule, rule
from leadline.record.rows.finding import Finding

SHARE = 0.01


@rule(
    "X05",
    "write-harmful",
    severity="warning",
    basis="outcome",
    needs=("ablation.sublayer", "weights.rms"),
    summary="On language, a trained model predicts better when one of its writes is left out.",
    why="Training would have removed a write that harms: these weights are not what was trained.",
    is_not="A model at initialisation, or random tokens, where writes do neither good nor harm.",
    false_alarms="Inputs far from the training data, and very short ones.",
    remedy="Load the weights of this sublayer again, and compare it with the original.",
    sources=("Men et al. 2024, arXiv 2403.03853",),
    explains=("loss-worse-than-unigram",),
    example="layers-swapped",
)
def write_harmful(case: Case, rule: Rule) -> Iterator[Finding]:
    """Name the write without which the loss falls most."""
    facts: dict[str, Any] = case.provenance.get("loss") or {}
    loss = facts.get("value")
    if (
        not case.natural
        or case.at_initialisation is not False
        or not loss
        or not loss < float("inf")
    ):
        return
    changes = case.values("ablation.sublayer")
    harmful = sorted((value, place) for place, value in changes.items() if value < -SHARE * loss)
    if not harmful:
        return
    value, place = harmful[0]
    module = case.branch(place.stack, place.layer, place.point)
    others = f" So is that of {len(harmful) - 1} other writes." if len(harmful) > 1 else ""
    yield rule.finding(
        f"The {place.point} of {place.stack} layer {place.layer} does harm: without what it writes the loss "
        f"falls from {loss:.3g} to {loss + value:.3g}.{others}",
        stack=place.stack,
        layers=[place.layer],
        sublayer=place.point,
        parameter=module or None,
        evidence=[Evidence("loss without this write", loss + value, loss, "the whole model")],
        cause="weights that are not those that were trained: swapped, shuffled, of another layer or model",
        remedy=f"Load the weights of {module or 'this sublayer'} again.",
        quantity="ablation.sublayer",
    )
