"""M01: experts of a mixture that get no token, or one that gets nearly all.

With n choices among E experts that were alike, an expert stays empty by chance with (1 - 1/E)^n; it is
named only where that is below one in a thousand for all of them together.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from leadline.reading.diagnosis.case import Case
from leadline.reading.diagnosis.rule import Evidence, Rule, rule
from leadline.record.rows.finding import Finding

CHANCE = 1e-3


@rule(
    "M01",
    "experts-unused",
    severity="note",
    basis="outcome",
    needs=("experts",),
    summary="Some experts of a mixture get no token of these inputs.",
    why="Experts without tokens do not learn, and those with all of them are the only model there is.",
    is_not="A small batch, in which some experts are empty by chance.",
    false_alarms="Experts for languages or subjects that these inputs have nothing of.",
    remedy="Measure more, and more various, text; balance the load (a bias per expert, or a loss).",
    sources=(
        "Wang et al. 2024, arXiv 2408.15664",
        "https://github.com/pytorch/torchtitan/issues/1246",
    ),
)
def experts_unused(case: Case, rule: Rule) -> Iterator[Finding]:
    """Count the empty experts of every router."""
    rows: list[dict[str, Any]] = case.fact("experts") or []
    named: list[tuple[dict[str, Any], int]] = []
    for row in rows:
        tokens = row["tokens"]
        total, number = sum(tokens), len(tokens)
        empty = sum(not count for count in tokens)
        if number > 1 and empty and number * (1 - 1 / number) ** total < CHANCE:
            named.append((row, empty))
    if not named:
        return
    worst, empty = max(named, key=lambda one: one[1])
    total = sum(worst["tokens"])
    layers = sorted({row["layer"] for row, _ in named if "layer" in row})
    yield rule.finding(
        f"{empty} of {len(worst['tokens'])} experts of {worst['module']} get none of {total} choices"
        f"{f', and {len(named) - 1} more routers leave some empty' if len(named) > 1 else ''}.",
        stack=worst.get("stack"),
        layers=layers,
        parameter=worst["module"],
        evidence=[
            Evidence(
                "largest load of one expert",
                max(worst["tokens"]) / total,
                1 / len(worst["tokens"]),
                "an even load",
            )
        ],
        cause="a router without balance, or inputs of one kind",
        remedy="Measure with more various text; if they stay empty, balance the load in training.",
    )
