"""A02: logits of one layer far apart."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from leadline.reading.diagnosis.case import Case, outliers
from leadline.reading.diagnosis.panels import place_text
from leadline.reading.diagnosis.rule import Evidence, Rule, rule
from leadline.record.rows.finding import Finding

EVERYWHERE = 30.0
"""Logits of all layers that are spread so many times as wide as the twin's, of a model whose gains and
biases are as drawn. Seen before it was set: at most 1.4 in healthy models, 360 to 570 where queries and
keys were made 20 times larger. Training alone makes it 35 to 250, in narrow models."""
BEYOND = 32.0
"""Logits that are spread wider than this, in most layers, whatever the twin does: the best key is then
about 16 above the second, and the gradient through the softmax, e to the -16, is below the rounding of
float32. Seen before it was set: 0.4 to 6.5 in trained models, 180 to 5,400 where their queries and keys
were made 20 times larger."""
SINK = 0.5
"""A layer that gives more than this to the first key has a sink, which is no saturation."""

FACTOR = 12.0
"""Logits that are spread so many times more than those of the nearest layers: twice the 5.9 that was
seen in a healthy trained model before it was set, whose upper layers choose and whose lower ones do not."""


@rule(
    "A02",
    "attention-saturated",
    severity="warning",
    basis="neighbours",
    needs=("attention.logit_std",),
    summary="Looks for layers whose attention logits are spread much wider than those of their "
    "neighbours in depth.",
    why="A softmax of logits far apart picks one key: its gradient fades and the head stops learning.",
    is_not="Heads that look at one key on purpose, as trained models have: whole layers are compared; "
    "layers whose queries look at the first token, which is a sink.",
    false_alarms="A first or last layer that trained far apart from the rest.",
    remedy="Look at the weights of queries and keys and at the scale; normalise queries and keys.",
    sources=("https://arxiv.org/abs/2303.06296", "https://arxiv.org/abs/2410.16682"),
    explains=(
        "positions-unused",
        "gradient-exploding",
        "gradient-vanishing",
        "loss-worse-than-uniform",
        "loss-worse-than-unigram",
        "weights-foreign",
    ),
    example="queries-keys-times-20",
)
def attention_saturated(case: Case, rule: Rule) -> Iterator[Finding]:
    """Compare the spread of the logits with the twin, and with the neighbours in depth."""
    for (stack, point), line in case.lines("attention.logit_std").items():
        yield from _everywhere(case, rule, stack, point, line)
    twins = case.twin_lines("attention.logit_std")
    for (stack, point), line in case.lines("attention.logit_std").items():
        entropy = case.lines("attention.entropy").get((stack, point), {})
        sinks = case.lines("attention.sink_share").get((stack, point), {})
        for one in outliers(line, factor=FACTOR, twin=twins.get((stack, point))):
            others = [value for layer, value in entropy.items() if layer != one.layer]
            usual, mine = (median(others) if others else 0.0), entropy.get(one.layer, 0.0)
            narrow = mine < 0.5 * usual or not others
            if one.value < one.expected or not narrow or sinks.get(one.layer, 0.0) > SINK:
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


def _everywhere(
    case: Case, rule: Rule, stack: str, point: str, line: dict[int, float]
) -> Iterator[Finding]:
    """All layers of a model as drawn far wider than the twin, or wider than float32 can train."""
    twin = case.twin_lines("attention.logit_std").get((stack, point), {})
    entropy = case.lines("attention.entropy").get((stack, point), {})
    usual = case.twin_lines("attention.entropy").get((stack, point), {})
    ratios = {at: value / twin[at] for at, value in line.items() if twin.get(at, 0.0) > 0}
    if len(line) < 2 or not entropy:
        return
    spread, even = median(line.values()), median(usual.values()) if usual else 0.0
    if spread > BEYOND:
        expected, source = BEYOND, "e to the -16 is the rounding of float32"
        found, limit = spread, "below"
    elif (
        len(ratios) == len(line)
        and case.unmoved
        and median(ratios.values()) > EVERYWHERE
        and median(entropy.values()) < 0.5 * even
    ):
        expected, source = median(twin.values()), "twin of the same configuration"
        found, limit = spread, "about"
    else:
        return
    wide = sorted(line)
    yield rule.finding(
        f"The attention of {place_text(case, stack, wide)} is saturated: its logits are spread "
        f"{found:.3g} wide, where {limit} {expected:.3g} is expected.",
        stack=stack,
        layers=wide,
        sublayer=point,
        evidence=[
            Evidence("spread of the logits", spread, expected, source),
            Evidence("entropy of the weights", median(entropy.values()), even or "", "twin"),
        ],
        cause="weights of queries and keys are too large in all layers",
        remedy="Draw or load the weights of queries and keys again; normalise queries and keys.",
    )
