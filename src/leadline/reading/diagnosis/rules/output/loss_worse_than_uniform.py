"""O01: the model predicts worse than a guess that gives every token the same chance.

Thresholds. On language, a trained model's loss is above ln V by 2 %. As drawn, log Z is above ln V by half the
variance of the logits; a nat more than twice the twin's excess is far beyond what two draws differ (0.02 to
0.3 nats in the zoo, and 30 against 27 in mT5, whose head is drawn with a spread of 1). Of inputs that are no language a trained model may be as wrong as it likes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from leadline.reading.diagnosis.case import Case
from leadline.reading.diagnosis.rule import Evidence, Rule, rule
from leadline.record.rows.finding import Finding

SHARE = 0.02
EXCESS = 1.0


@rule(
    "O01",
    "loss-worse-than-uniform",
    severity="serious",
    basis="outcome",
    needs=("output", "twin or natural text"),
    summary="The loss is above ln V, that of a uniform guess.",
    why="Whoever knows nothing does better: what the model computes does not fit its head or its inputs.",
    is_not="A trained model on random tokens; a model at initialisation whose twin does the same.",
    false_alarms="Another tokenizer than the model's own: the ids then mean something else.",
    remedy="Look for a fault of loading or conversion: tying of the head, order of rows, norms, positions, "
    "tokenizer.",
    sources=("https://github.com/paiml/aprender/issues/1606",),
    explains=("loss-worse-than-unigram", "logit-drift"),
    example="head-redrawn",
)
def loss_worse_than_uniform(case: Case, rule: Rule) -> Iterator[Finding]:
    """Compare with ln V on language; with the twin where the model is as it was drawn."""
    output: dict[str, Any] = case.fact("output") or {}
    loss, uniform = output.get("loss"), output.get("uniform")
    if loss is None or uniform is None or math.isnan(loss):
        return
    twin: dict[str, Any] = output.get("twin") or {}
    twin_log_z = twin.get("log_z")
    excess = output["log_z"] - uniform
    evidence = [Evidence("loss", loss, uniform, "ln V, a uniform guess")]
    if case.at_initialisation and twin_log_z is not None:
        if loss > (1 + SHARE) * uniform and excess > EXCESS + 2 * max(twin_log_z - uniform, 0.0):
            yield rule.finding(
                f"The model predicts worse than a uniform guess as it is drawn: a loss of {loss:.3g} "
                f"where ln V is {uniform:.3g}.",
                severity="warning",
                evidence=[
                    *evidence,
                    Evidence("log Z above ln V", excess, twin_log_z - uniform, "the twin"),
                ],
                cause="logits that are too large at the start: the head, the embedding it is tied to, or "
                "the last norm",
                remedy="Draw the head smaller, or norm and scale what enters it.",
            )
        return
    if not case.natural or not loss > (1 + SHARE) * uniform:
        return
    # Without a twin a model may be as it was drawn, where logits of spread s give ln V + s^2 / 2.
    if case.at_initialisation is None and loss - uniform < EXCESS:
        return
    yield rule.finding(
        f"The model predicts worse than a uniform guess: a loss of {loss:.3g} where ln V is {uniform:.3g}.",
        evidence=evidence,
        ruled_out=["random inputs: these ids have the frequencies of language"],
        cause="weights and code that do not belong together (head, tying, norms, positions), or a "
        "tokenizer that is not the model's",
        remedy="Compare with the model before its conversion (--reference), and check the tokenizer.",
    )
