"""W04: the embedding and the output head are one tensor where they should not be, or the reverse."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from leadline.reading.diagnosis.case import Case
from leadline.reading.diagnosis.rule import Evidence, Remedy, Rule, rule
from leadline.record.rows.finding import Finding


@rule(
    "W04",
    "tying-broken",
    severity="serious",
    basis="identity",
    needs=("tying",),
    summary="The output head is not the token embedding although the configuration ties them, or it is "
    "although the configuration does not.",
    why="A head that should be the embedding and is not was never trained, or parts from it with the "
    "first step.",
    is_not="Models whose class never ties the two, whatever the flag of the configuration says: the "
    "twin, built by the same class, decides.",
    false_alarms="A head that was untied on purpose after loading, without saying so in the "
    "configuration.",
    remedy="Tie them again: `model.tie_weights()`, or `head.weight = embedding.weight`.",
    sources=(
        "https://github.com/huggingface/transformers/issues/43429",
        "https://github.com/huggingface/transformers/issues/48154",
    ),
    explains=(
        "loss-worse-than-uniform", "loss-worse-than-unigram", "output-head-too-large",
        "weights-foreign", "logit-drift", "embedding-scale-wrong", "weights-scale-odd",
        "init-too-large",
    ),
    example="tying-broken",
)  # fmt: skip
def tying_broken(case: Case, rule: Rule) -> Iterator[Finding]:
    """Compare with the twin, else with what the configuration says."""
    facts: dict[str, Any] = case.fact("tying", {})
    if not facts:
        return
    intended = facts.get("twin_tied")
    source = "the twin, built from the same configuration"
    if intended is None:
        intended, source = facts.get("declared"), "tie_word_embeddings of the configuration"
    if intended is None or intended == facts["tied"]:
        return
    embedding, head = facts["embedding"], facts["head"]
    if intended:
        state = "equal copies" if facts["equal"] else "different tensors"
        verdict = (
            f"The output head is not tied to the embedding: {head} and {embedding} are {state}."
        )
        words = f"Tie them: let {head} be {embedding} (model.tie_weights() in transformers)."
        edit = {"edit": "tie", "parameter": head, "to": embedding}
    else:
        verdict = f"The output head is the embedding, {embedding}, where each should have its own."
        words = "Give the head its own weights and load them from the checkpoint."
        edit = {}
    yield rule.finding(
        verdict,
        parameter=head if intended else embedding,
        evidence=[
            Evidence(
                "head and embedding are one tensor", str(facts["tied"]), str(intended), source
            ),
            Evidence("head and embedding are equal", str(facts["equal"])),
        ],
        cause="the flag was lost in a nested configuration, or a part was replaced after the tying",
        remedy=Remedy(words, edit=edit),
        severity="warning" if intended and facts["equal"] else None,
    )
