"""A02: logits of one layer far apart."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from leadline.reading.diagnosis.case import Case, outliers
from leadline.reading.diagnosis.panels import place_text
from leadline.reading.diagnosis.rule import Evidence, Rule, rule
from leadline.record.rows.finding import Finding

FACTOR = 3.0
"""Logits that are spread so many times more than those of the nearest layers: a choice, not measured."""


@rule(
    "A02",
    "attention-saturated",
    severity="warning",
    basis="neighbours",
    needs=("attention.logit_std",),
    summary="Looks for layers whose attention logits are spread much wider than those of their "
    "neighbours in depth.",
    why="A softmax of logits far apart picks one key: its gradient fades and the head stops learning.",
    is_not="Heads that look at one key on purpose, as trained models have: whole layers are compared.",
    false_alarms="A first or last layer that trained far apart from the rest.",
    remedy="Look at the weights of queries and keys and at the scale; normalise queries and keys.",
    sources=("https://arxiv.org/abs/2303.06296", "https://arxiv.org/abs/2410.16682"),
    explains=("positions-unused",),
    example="queries-keys-times-20",
)
def attention_saturated(case: Case, rule: Rule) -> Iterator[Finding]:
    """Compare the spread of the logits with the neighbours in depth, less what the twin does."""
    twins = case.twin_lines("attention.logit_std")
    for (stack, point), line in case.lines("attention.logit_std").items():
        entropy = case.lines("attention.entropy").get((stack, point), {})
        for one in outliers(line, factor=FACTOR, twin=twins.get((stack, point))):
            others = [value for layer, value in entropy.items() if layer != one.layer]
            usual, mine = (median(others) if others else 0.0), entropy.get(one.layer, 0.0)
            narrow = mine < 0.5 * usual or not others
            if one.value < one.expected or not narrow:
                continue
            yield rule.finding(
                f"The attention of {place_text(case, stack, [one.layer])} is saturated: its logits are "
                f"spread {one.factor:.3g} times as wide as in the layers around it.",
                stack=stack,
                layers=[one.layer],
                sublayer=point,
                parameter=case.branch(stack, one.layer, point) or None,
                evidence=[
                    Evidence(
                        "spread of the logits", one.value, one.expected, "neighbours in depth"
                    ),
                    Evidence("entropy of the weights", mine, usual, "the other layers"),
                ],
                cause="weights of queries or keys are too large, or the scale is missing in this layer",
                remedy="Compare the query and key weights of this layer with its neighbours.",
            )
