"""O04: all logits have drifted away from 0 together.

The softmax does not see a common offset, so that nothing stops it in training. Threshold: log Z further
from 0 than three times ln V, in a trained model; as drawn it is ln V.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from leadline.reading.diagnosis.case import Case
from leadline.reading.diagnosis.rule import Evidence, Rule, rule
from leadline.record.rows.finding import Finding

FACTOR = 3.0


@rule(
    "O04",
    "logit-drift",
    severity="note",
    basis="hint",
    needs=("output", "weights.rms"),
    summary="The mean logit and log Z of a trained model are far from 0.",
    why="Predictions do not change, but differences of large logits lose digits in half precision.",
    is_not="A model at initialisation, whose log Z is ln V.",
    false_alarms="It is a note: losses and predictions are right either way.",
    remedy="Subtract the mean row from the head (predictions stay the same), or train with a z-loss.",
    sources=(
        "Chowdhery et al. 2022, arXiv 2204.02311",
        "Stollenwerk et al. 2026, arXiv 2601.02031",
    ),
    example="",
)
def logit_drift(case: Case, rule: Rule) -> Iterator[Finding]:
    """Compare log Z with ln V."""
    output: dict[str, Any] = case.fact("output") or {}
    log_z, uniform = output.get("log_z"), output.get("uniform")
    if log_z is None or uniform is None or case.at_initialisation is not False:
        return
    if FACTOR * uniform < abs(log_z) < float("inf"):
        yield rule.finding(
            f"The logits have drifted: log Z is {log_z:.3g}, and the mean logit {output['mean_logit']:.3g}.",
            evidence=[Evidence("log Z", log_z, 0.0, "what a z-loss aims at")],
            cause="an offset that the softmax does not see",
            remedy="Subtract the mean row of the output head from all its rows.",
        )
