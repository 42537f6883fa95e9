"""O02: a trained model predicts text worse than the frequencies of its own tokens do.

The entropy of the very ids, corrected for few samples, plus three standard errors, is what somebody
scores who knows how often each id occurs here, and nothing else. The embedded pair scores 1.4 where
that is 3.1, SmolLM2 3.3 where it is 4.3.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from leadline.reading.diagnosis.case import Case
from leadline.reading.diagnosis.rule import Evidence, Rule, rule
from leadline.record.rows.finding import Finding

ERRORS = 3.0
LEAST_TOKENS = 48


@rule(
    "O02",
    "loss-worse-than-unigram",
    severity="warning",
    basis="outcome",
    needs=("output", "unigram", "weights.rms"),
    summary="On language, a trained model's loss is above the entropy of the frequencies of the inputs.",
    why="A model that sees the context should beat a table of frequencies.",
    is_not="A model at initialisation; random tokens; a language that the model was not trained on.",
    false_alarms="Inputs far from the training data, and very short ones.",
    remedy="Look for a fault of loading or conversion: positions, order of rows, norms, one broken layer "
    "(--ablate, --reference).",
    sources=("https://github.com/ooples/AiDotNet/issues/2074",),
    example="vocabulary-shifted",
)
def loss_worse_than_unigram(case: Case, rule: Rule) -> Iterator[Finding]:
    """Compare the loss over the batch with the entropy of its ids."""
    unigram: dict[str, float] = case.fact("unigram") or {}
    output: dict[str, Any] = case.fact("output") or {}
    # The loss over the whole batch where it was measured: the small pass has few tokens.
    whole: dict[str, Any] = case.provenance.get("loss") or {}
    loss = (
        whole.get("value") if whole.get("kind") in ("next-token", "masked") else output.get("loss")
    )
    if loss is None or not case.natural or case.at_initialisation is not False:
        return
    limit = unigram["entropy"] + ERRORS * unigram["error"]
    if unigram["tokens"] < LEAST_TOKENS or not loss > limit:
        return
    yield rule.finding(
        f"The trained model predicts this text worse than the frequencies of its tokens do: a loss of "
        f"{loss:.3g} where they give {unigram['entropy']:.3g}.",
        evidence=[
            Evidence(
                "loss", loss, unigram["entropy"], "entropy of the frequencies of these very tokens"
            )
        ],
        ruled_out=["random inputs: these ids have the frequencies of language"],
        cause="a part of the model that does not work, or a text unlike all that it was trained on",
        remedy="Try another text; then compare with the model before its conversion (--reference), and "
        "leave writes out in turn (--ablate).",
        confidence="possible",
    )
