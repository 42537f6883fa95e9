"""A04: outputs depend on later tokens, where they must not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from leadline.reading.diagnosis.case import Case
from leadline.reading.diagnosis.panels import (
    Mixer,
    TokenPanel,
    by_stack,
    encoder_input,
    panels_of,
    place_text,
)
from leadline.reading.diagnosis.rule import Evidence, Rule, rule
from leadline.record.rows.finding import Finding

_BOTH_WAYS = ("encoder", "bidirectional", "not causal", "non-causal")
MAJORITY = 0.5
"""More than so many of the layers that mix tokens are causal: then the others should be."""


@rule(
    "A04",
    "future-leaks",
    severity="serious",
    basis="identity",
    needs=("token_panels", "intention"),
    summary="Changes one token and looks whether anything before it moves.",
    why="A model that predicts the next token and can see it learns to copy it: the loss falls "
    "towards zero and nothing is learned that helps where the next token is not there.",
    is_not="Encoders, prefix models and others that are meant to look both ways: what a model is meant "
    "to be is taken from its class, its configuration, masks that it keeps, its twin and its other "
    "layers, never from its masks as they work.",
    false_alarms="A class that is called causal and is used as an encoder on purpose.",
    remedy="Give every attention the causal mask: `is_causal=True`, or a boolean mask that is False "
    "above the diagonal. Afterwards no output before the changed token moves.",
    sources=(
        "https://github.com/huggingface/transformers/issues/48745",
        "https://github.com/keras-team/keras/issues/23038",
    ),
    explains=(
        "not-as-intended",
        "positions-unused",
        "unlike-its-family",
        "attention-uniform",
        "past-unreached",
    ),
    example="mask-removed",
)
def future_leaks(case: Case, rule: Rule) -> Iterator[Finding]:
    """Name the layers that look ahead."""
    for panel in panels_of(case):
        if panel.output is None or encoder_input(case, panel):
            continue
        ahead = [
            one for one in panel.mixers if panel.looks_ahead(one) and not _by_empty_rows(case, one)
        ]
        leaks = panel.looks_ahead(panel.output)
        if not ahead and (not leaks or any(_by_empty_rows(case, one) for one in panel.mixers)):
            continue
        reasons = _reasons(case, panel, ahead)
        if not reasons:
            continue
        if not ahead:
            yield _outside(case, rule, panel, reasons)
            continue
        for stack, mixers in by_stack(ahead).items():
            yield _finding(case, rule, panel, stack, mixers, reasons)


def _reasons(case: Case, panel: TokenPanel, ahead: list[Mixer]) -> list[str]:
    """Why the model should be causal."""
    intended = str(case.fact("intended", "") or "").lower()
    if any(word in intended for word in _BOTH_WAYS):
        return []
    reasons: list[str] = list(case.fact("intention", {}).get("causal", ()))
    if "causal" in intended:
        reasons.append("it was said to be intended so")
    twin = panel.twin
    if twin is not None and twin.output is not None and not twin.rows_differ:
        # A twin whose attention starts at zero mixes nothing and says nothing.
        mixes = "1" in twin.output["middle"][panel.middle + 1 :]
        if mixes and not twin.looks_ahead(twin.output):
            reasons.append("a twin of the same configuration does not look ahead")
        elif not reasons:
            return []
    mixing = [one for one in panel.mixers if panel.mixes(one)]
    if not reasons and len(ahead) < (1 - MAJORITY) * len(mixing):
        reasons.append(f"{len(mixing) - len(ahead)} of its {len(mixing)} layers do not look ahead")
    return reasons


def _by_empty_rows(case: Case, one: Mixer) -> bool:
    """Whether only rows without any key look ahead: a softmax of nothing but masked logits is even."""
    return any(
        call["visible"] is not None and call["visible"]["empty"] and call["visible"]["ahead"] <= 0
        for call in case.fact("attention_calls", ())
        if call.get("mixer") == one.path
    )


def _evidence(panel: TokenPanel, moved: Any, reasons: list[str]) -> list[Evidence]:
    bits: str = moved.middle if isinstance(moved, Mixer) else moved["middle"]
    count = bits[: panel.middle].count("1")
    return [
        Evidence(
            f"outputs before token {panel.middle + 1} that move when only this token changes",
            f"{count} of {panel.middle}",
            f"0 of {panel.middle}",
            f"causal, because {'; '.join(reasons)}",
        )
    ]


def _finding(
    case: Case,
    rule: Rule,
    panel: TokenPanel,
    stack: str,
    mixers: list[Mixer],
    reasons: list[str],
) -> Finding:
    layers = sorted({one.layer for one in mixers})
    first = mixers[0]
    one_ahead = all(_one_ahead(panel, one) for one in mixers)
    how = "one token ahead" if one_ahead else "at later tokens"
    return rule.finding(
        f"The future leaks: the attention of {place_text(case, stack, layers)} looks {how} "
        f"({first.path}).",
        stack=stack,
        layers=layers,
        sublayer="attention",
        parameter=first.path,
        evidence=_evidence(panel, first, reasons),
        ruled_out=["every layer was given the same input, so no other layer is the source"],
        cause="the mask is one step too wide (`diagonal=1` or `<=` where `<` belongs)"
        if one_ahead
        else "the causal mask is lost, or is added with the wrong sign or to the wrong axis",
        remedy=f"Pass is_causal=True, or a mask that hides every key after its query, in {first.path}.",
    )


def _one_ahead(panel: TokenPanel, one: Mixer) -> bool:
    return "1" not in one.middle[: panel.middle - 1] and "1" not in one.last[: panel.last - 1]


def _outside(case: Case, rule: Rule, panel: TokenPanel, reasons: list[str]) -> Finding:
    assert panel.output is not None
    path = panel.facts.get("leak") or ""
    stack, layer = case.place_of(path)
    return rule.finding(
        f"The future leaks through {path or 'the model outside of its modules'}: outputs before a "
        "changed token move, and nothing that entered it did.",
        stack=stack,
        layers=[layer] if layer else [],
        parameter=path or None,
        evidence=_evidence(panel, panel.output, reasons),
        ruled_out=["the attention modules keep to the past"] if panel.mixers else [],
        cause="something mixes tokens both ways: a norm over the tokens, a convolution that is "
        "padded on both sides, a shift in the wrong direction",
        remedy=f"Let {path or 'the model'} read only the tokens up to its own.",
    )
