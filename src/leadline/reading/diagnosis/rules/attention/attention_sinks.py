"""A09: most attention goes to the first token; usually benign."""

from __future__ import annotations

from collections.abc import Iterator

from leadline.reading.diagnosis.case import Case
from leadline.reading.diagnosis.panels import place_text
from leadline.reading.diagnosis.rule import Evidence, Rule, rule
from leadline.record.rows.finding import Finding

SHARE = 0.5
"""More than half of the weight of a layer; uniform causal attention over 12 tokens gives 0.19."""


@rule(
    "A09",
    "attention-sinks",
    severity="note",
    basis="outcome",
    needs=("attention.sink_share",),
    summary="Looks for layers whose queries give most of their weight to the first key.",
    why="It is how trained models with a softmax attend to nothing. Worth knowing before a cache is cut "
    "or weights are quantised: the first token must stay, and its values are large.",
    is_not="A fault: most trained decoders have sinks.",
    false_alarms="Short inputs, where the first key gets much anyway.",
    remedy="None needed. Keep the first tokens in a sliding cache.",
    sources=("https://arxiv.org/abs/2309.17453", "https://arxiv.org/abs/2410.10781"),
)
def attention_sinks(case: Case, rule: Rule) -> Iterator[Finding]:
    """Name the layers whose share of the first key is above one half and above the twin's by far."""
    twins = case.twin_lines("attention.sink_share")
    for (stack, point), line in case.lines("attention.sink_share").items():
        twin = twins.get((stack, point), {})
        layers = [at for at, share in line.items() if share > max(SHARE, 2 * twin.get(at, 0.0))]
        if not layers:
            continue
        worst = max(layers, key=lambda at: line[at])
        yield rule.finding(
            f"The first token is an attention sink in {place_text(case, stack, layers)}: usually benign.",
            stack=stack,
            layers=layers,
            sublayer=point,
            evidence=[
                Evidence(
                    "share of the first key",
                    line[worst],
                    twin.get(worst, ""),
                    "twin" if twin else "",
                )
            ],
            cause="a softmax must give its weight to something",
            remedy="None needed; keep the first tokens in a sliding cache.",
        )
