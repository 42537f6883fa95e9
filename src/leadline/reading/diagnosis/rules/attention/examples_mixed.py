"""A08: the output of one example depends on another."""

from __future__ import annotations

from collections.abc import Iterator

from leadline.reading.diagnosis.case import Case
from leadline.reading.diagnosis.rule import Evidence, Rule, rule
from leadline.record.rows.finding import Finding


@rule(
    "A08",
    "examples-mixed",
    severity="serious",
    basis="identity",
    needs=("isolation",),
    summary="Changes one token of one example and looks whether another example moves.",
    why="Predictions depend on what else is in the batch, and a model that attends to other examples "
    "does not attend to its own tokens.",
    is_not="Rounding: kernels may sum in another order, by a few units in the last place.",
    false_alarms="Experts with a capacity that the examples of a batch share.",
    remedy="Attend over the tokens: `batch_first=True` for torch's own modules, or exchange the axes; "
    "take norms over the features.",
    sources=("https://pytorch.org/docs/stable/generated/torch.nn.MultiheadAttention.html",),
    explains=(
        "past-unreached",
        "positions-unused",
        "heads-split-wrong",
        "not-as-intended",
        "future-leaks",
        "tokens-equal",
        "attention-uniform",
    ),
    example="attention-over-examples",
)
def examples_mixed(case: Case, rule: Rule) -> Iterator[Finding]:
    """Name the first module that mixes examples."""
    facts = case.fact("isolation", {})
    if not facts.get("mixed"):
        return
    path = facts.get("module") or ""
    exchanged = facts.get("positions") == "same"
    stack, layer = case.place_of(path)
    yield rule.finding(
        f"Examples are mixed: {path or 'the model'} lets one example of the batch change another"
        + (", at the same token: it mixes along the wrong axis." if exchanged else "."),
        stack=stack,
        layers=[layer] if layer else [],
        parameter=path or None,
        evidence=[
            Evidence(
                "change of the first example's output when a token of the second is exchanged",
                float(facts["mixed"]),
                0.0,
                "examples are independent",
            )
        ],
        ruled_out=["the same pass twice gives the same output"],
        cause="examples and tokens are exchanged, as with batch_first=False and inputs "
        "[example, token, width]"
        if exchanged
        else "statistics over the batch in evaluation (a batch norm without running statistics), or "
        "a reshape that joins examples",
        remedy="Set batch_first=True, or pass [token, example, width]."
        if exchanged
        else f"Let {path or 'the model'} compute every example by itself.",
    )
