"""A10: a query that may see no key at all."""

from __future__ import annotations

from collections.abc import Iterator

from leadline.reading.diagnosis.calls import call_lines
from leadline.reading.diagnosis.case import Case
from leadline.reading.diagnosis.panels import place_text
from leadline.reading.diagnosis.rule import Evidence, Rule, rule
from leadline.record.rows.finding import Finding


@rule(
    "A10",
    "mask-row-empty",
    severity="serious",
    basis="identity",
    needs=("attention_calls",),
    summary="Looks for real tokens whose row of the mask hides every key.",
    why="The softmax of such a row is 0/0: not a number, or zero, or uniform over keys that were to be "
    "hidden, as the kernel has it.",
    is_not="Rows of padding, which may see nothing.",
    false_alarms="None known.",
    remedy="Let every query see at least its own key.",
    sources=(
        "https://github.com/pytorch/pytorch/issues/103749",
        "https://github.com/pytorch/pytorch/issues/131863",
    ),
    explains=("not-finite",),
    example="mask-row-empty",
)
def mask_row_empty(case: Case, rule: Rule) -> Iterator[Finding]:
    """Name the layers with empty rows."""
    for stack, calls in call_lines(case).items():
        empty = [one for one in calls if one["visible"]["empty"]]
        if not empty:
            continue
        layers = sorted({one["layer"] for one in empty})
        yield rule.finding(
            f"Some queries see no key at all in the attention of {place_text(case, stack, layers)}.",
            stack=stack,
            layers=layers,
            sublayer="attention",
            parameter=empty[0]["module"],
            evidence=[
                Evidence("rows of real tokens without a key", empty[0]["visible"]["empty"], 0)
            ],
            cause="the mask hides the diagonal, or two masks together hide everything",
            remedy=f"Let the mask of {empty[0]['module']} show every token its own key.",
        )
