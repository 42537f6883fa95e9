"""A05: a token does not see itself, or sees less far back than it should."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from leadline.reading.diagnosis.calls import call_lines, twin_call
from leadline.reading.diagnosis.case import Case
from leadline.reading.diagnosis.panels import Mixer, encoder_input, panels_of, place_text
from leadline.reading.diagnosis.rule import Evidence, Rule, rule
from leadline.reading.diagnosis.rules.attention.attention_saturated import BEYOND
from leadline.record.rows.finding import Finding


@rule(
    "A05",
    "past-unreached",
    severity="serious",
    basis="identity",
    needs=("attention_calls", "intention"),
    summary="Looks whether every token sees itself and everything before it that it should.",
    why="What a mask hides by mistake is missing from every prediction: without itself a token is "
    "blind to what it continues, and behind a window that nobody asked for the text is forgotten.",
    is_not="Windows and chunks that the configuration names, or that a twin of the same configuration "
    "has too; tokens that the input pads.",
    false_alarms="A design of one's own whose window stands in no setting.",
    remedy="Mend the mask: a query sees the keys up to and with its own place (`tril` with "
    "diagonal=0, `is_causal=True`).",
    sources=("https://github.com/huggingface/transformers/pull/26792",),
    explains=("mask-row-empty", "unlike-its-family"),
    example="mask-without-self",
)
def past_unreached(case: Case, rule: Rule) -> Iterator[Finding]:
    """Compare what the masks let through with the twin, the settings and the other layers."""
    flagged = False
    for stack, calls in call_lines(case).items():
        blind = [one for one in calls if _blind(case, one)]
        short = [one for one in calls if one not in blind and _short(case, one, calls)]
        if blind:
            flagged = True
            layers = sorted({one["layer"] for one in blind})
            yield rule.finding(
                f"Tokens do not see themselves in the attention of {place_text(case, stack, layers)}: "
                "the mask hides the diagonal.",
                stack=stack,
                layers=layers,
                sublayer="attention",
                parameter=blind[0]["module"],
                evidence=[Evidence("queries that see their own key", "none", "all", "causal mask")],
                cause="the mask is one step too narrow: `diagonal=-1`, or `<` where `<=` belongs",
                remedy=f"Let the mask of {blind[0]['module']} include the diagonal.",
            )
        if short:
            flagged = True
            layers = sorted({one["layer"] for one in short})
            back: int = short[0]["visible"]["back"]
            expected = str(_expected_back(case, short[0], calls))
            yield rule.finding(
                f"The attention of {place_text(case, stack, layers)} sees {back} tokens back, not "
                f"{expected}.",
                stack=stack,
                layers=layers,
                sublayer="attention",
                parameter=short[0]["module"],
                evidence=[
                    Evidence(
                        "farthest key that a query may see", back, expected, _source(case, short[0])
                    )
                ],
                cause="a window in the mask that no setting names",
                remedy=f"Compare the mask of {short[0]['module']} with the setting of the window.",
                severity="warning",
                confidence="likely",
            )
    if not flagged:
        yield from _forgotten(case, rule)


def _blind(case: Case, one: dict[str, Any]) -> bool:
    """Whether no token sees itself, and the same class does so elsewhere or was not meant to."""
    if not one["visible"]["never_itself"]:
        return False
    twin = twin_call(case, one)
    theirs = None if twin is None else twin["visible"]
    library = bool(case.fact("intention", {}).get("library"))
    return not (library and theirs is not None and theirs["never_itself"])


def _short(case: Case, one: dict[str, Any], calls: list[dict[str, Any]]) -> bool:
    expected = _expected_back(case, one, calls)
    back: int = one["visible"]["back"]
    return expected is not None and 0 < back != expected and (back < expected or _has_window(case))


def _has_window(case: Case) -> bool:
    return any(value > 1 for value in case.fact("intention", {}).get("windows", {}).values())


def _expected_back(case: Case, one: dict[str, Any], calls: list[dict[str, Any]]) -> int | None:
    """How far back a query should see: as the twin; else to the beginning, unless a setting limits."""
    twin = twin_call(case, one)
    if twin is not None and twin["visible"] is not None:
        theirs: int = twin["visible"]["back"]
        if case.fact("intention", {}).get("library") or theirs != one["visible"]["back"]:
            return theirs
    if _has_window(case):
        return None
    return one["visible"]["tokens"] - 1 if one["visible"]["padding_free"] else None


def _source(case: Case, one: dict[str, Any]) -> str:
    twin = twin_call(case, one)
    return "no setting names a window" if twin is None else "twin of the same configuration"


def _forgotten(case: Case, rule: Rule) -> Iterator[Finding]:
    """Attention modules that reach no other token at all, though tokens are there."""
    for panel in panels_of(case):
        if encoder_input(case, panel):
            continue
        lone = [
            one
            for one in panel.mixers
            if not panel.mixes(one)
            and one.middle[panel.middle] == "1"  # what moves nothing at all writes nothing
            and one.path in _self_attention(case)
            and not _saturated(case, one)
            and (twin := panel.twin) is not None
            and (other := twin.mixer(one.path)) is not None
            and panel.mixes(other)
        ]
        if lone:
            layers = sorted({one.layer for one in lone})
            yield rule.finding(
                f"The attention of {place_text(case, lone[0].stack, layers)} reaches no other token.",
                stack=lone[0].stack,
                layers=layers,
                sublayer="attention",
                parameter=lone[0].path,
                evidence=[
                    Evidence(
                        "other tokens that a changed token moves", 0, "some", "the twin's attention"
                    )
                ],
                cause="every key but a token's own is hidden, or the values are lost",
                remedy=f"Check the mask and the values of {lone[0].path}.",
            )


def _saturated(case: Case, one: Mixer) -> bool:
    """Whether the mask shows other tokens, and only logits far apart leave them no weight."""
    shown = any(
        call["visible"]["back"] > 0
        for call in case.fact("attention_calls", ())
        if call["visible"] is not None and call.get("mixer") == one.path
    )
    spreads = case.lines("attention.logit_std").get((one.stack, "attention"), {})
    return shown and spreads.get(one.layer, 0.0) > BEYOND


def _self_attention(case: Case) -> set[str]:
    return {
        one.get("mixer", one["module"])
        for one in case.fact("attention_calls", ())
        if one["visible"] is not None
    }
