"""A06: the order of the tokens does not matter, though it should."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from leadline.reading.diagnosis.case import Case
from leadline.reading.diagnosis.panels import Mixer, TokenPanel, by_stack, panels_of, place_text
from leadline.reading.diagnosis.rule import Evidence, Rule, rule
from leadline.record.rows.finding import Finding

MAJORITY = 0.75
"""At least so many layers of a stack tell the order: then the others should. Designs that leave
positions out of some layers do so in every fourth or more, and are settled by the twin."""


@rule(
    "A06",
    "positions-unused",
    severity="serious",
    basis="identity",
    needs=("token_panels", "positions"),
    summary="Lets two tokens change places and looks whether anything but these two places moves.",
    why="Without positions an encoder reads a bag of words, and a causal model knows the order only "
    "through its mask.",
    is_not="Causal models without positions by design (NoPE): they have no part that is named after "
    "positions, and the mask tells the order from the second layer on; models of sets.",
    false_alarms="An encoder of sets that takes token ids and has unused position parts.",
    remedy="Add the position of every token: check that the position ids run from 0 to n - 1 along the "
    "tokens, and that the table or the rotation really enters. Afterwards the swap moves other tokens.",
    sources=(
        "https://arxiv.org/abs/2203.16634",
        "https://github.com/DiffPoseTalk/DiffPoseTalk/issues/20",
    ),
    explains=("not-as-intended", "unlike-its-family", "buffer-wrong"),
    example="positions-all-equal",
)
def positions_unused(case: Case, rule: Rule) -> Iterator[Finding]:
    """Judge every input with tokens by the swap of two of them."""
    for panel in panels_of(case, with_rows=True):
        if panel.rows_differ:
            if panel.facts.get("order_told") is False:
                yield _by_example(rule, panel)
            continue
        lost = _layers_lost(case, panel)
        if lost:
            for stack, mixers in by_stack(lost).items():
                yield _in_layers(case, rule, stack, mixers)
        elif panel.output is not None and _unused(case, panel):
            yield _everywhere(case, rule, panel)


def _layers_lost(case: Case, panel: TokenPanel) -> list[Mixer]:
    """Attention that does not tell the order, though it turns its vectors, or the twin's or the other
    layers' does tell it."""
    mixing = [one for one in panel.mixers if panel.mixes(one)]
    silent = [
        one for one in mixing if not panel.tells_order(one) and not _by_place(case, panel, one)
    ]
    twin = panel.twin
    if twin is not None and not twin.rows_differ:
        return [
            one
            for one in silent
            if (other := twin.mixer(one.path)) is not None
            and twin.mixes(other)
            and twin.tells_order(other)
        ]
    if case.fact("intention", {}).get("library") or not silent:
        return []
    lost = [one for one in silent if _turned_alike(case, panel, one)]
    for stack, mixers in by_stack(silent).items():
        count = sum(one.stack == stack for one in mixing)
        if count > 2 and len(mixers) <= (1 - MAJORITY) * count:
            lost += [one for one in mixers if one not in lost]
    return lost


def _by_place(case: Case, panel: TokenPanel, one: Mixer) -> bool:
    """Whether queries and keys depend on their places, however little their logits make of it."""
    return any(panel.placed(call["module"]) == (True, True) for call in _calls(case, one))


def _turned_alike(case: Case, panel: TokenPanel, one: Mixer) -> bool:
    """Whether queries and keys are turned behind their projection, and every token by the same angles."""
    return any(
        all(call["turned"]) and panel.placed(call["module"]) == (False, False)
        for call in _calls(case, one)
    )


def _calls(case: Case, one: Mixer) -> list[Mapping[str, Any]]:
    """The attentions that ran in a mixer of tokens."""
    return [call for call in case.fact("attention_calls", ()) if call.get("mixer") == one.path]


def _first_tells(case: Case, panel: TokenPanel) -> bool:
    """Whether the order is told by the first layer that mixes tokens, or before it."""
    order = panel.facts.get("order")
    if order is None:
        return False
    stack, layer = case.place_of(order)
    layers = [one.layer for one in panel.mixers if one.stack == stack and panel.mixes(one)]
    return stack is None or not layers or layer <= min(layers)


def _unused(case: Case, panel: TokenPanel) -> bool:
    """Whether positions do not enter: by the output, or by the first layer of a causal model."""
    assert panel.output is not None
    mixing = [one for one in panel.mixers if panel.mixes(one)]
    reached = (
        "1" in panel.output["middle"][: panel.middle] + panel.output["middle"][panel.middle + 1 :]
    )
    if not reached:
        return False
    if panel.facts.get("swapped") is False:
        return False  # places were told before the first attention, however faintly it hears them
    if any(_by_place(case, panel, one) for one in mixing):
        return False
    both_ways = panel.looks_ahead(panel.output)
    told = panel.tells_order(panel.output)
    if told and (both_ways or not mixing or _first_tells(case, panel)):
        return False
    facts = case.fact("intention", {})
    twin = panel.twin
    if twin is not None and twin.output is not None and not twin.rows_differ:
        twin_told = twin.facts.get("swapped") is False or (
            twin.tells_order(twin.output) and (both_ways or _first_tells(case, twin))
        )
        if not twin_told and facts.get("library"):
            return False
        if twin_told:
            return True
    parts = case.fact("positions", {}).get("parts")
    if facts.get("library") and not case.fact("positions", {}).get("tables"):
        return False  # a library's design without positions is meant
    return bool(parts) or (both_ways and not told and panel.facts["input"].endswith("ids"))


def _cause(case: Case) -> tuple[str, str | None]:
    facts = case.fact("positions", {})
    for path, rows in facts.get("tables", {}).items():
        if len(rows) > 1 and set(rows) == {-2}:
            return f"rows of {path} are equal: every position looks the same", path
        if len(rows) > 1 and len(set(rows)) == 1:
            return f"{path} gives row {rows[0]} to every token: the position ids are constant", path
    parts = facts.get("parts", ())
    if parts:
        return (
            f"{parts[0]} is there and has no effect: it is the same for every token or not used",
            parts[0],
        )
    return "nothing tells the model where a token stands", None


def _everywhere(case: Case, rule: Rule, panel: TokenPanel) -> Finding:
    cause, path = _cause(case)
    return rule.finding(
        "Positions are not used: tokens that change places change nothing but their own places"
        + (f" ({path})." if path else "."),
        parameter=path,
        evidence=[_evidence()],
        ruled_out=["a changed token does move the others"],
        cause=cause,
        remedy="Look up positions 0 to n - 1 along the tokens and add them to the embedding, or turn "
        "queries and keys by them.",
        severity=None if path else "warning",
    )


def _evidence() -> Evidence:
    return Evidence(
        "other tokens that move when two tokens change places", 0, "some", "the order of the text"
    )


def _in_layers(case: Case, rule: Rule, stack: str, mixers: list[Mixer]) -> Finding:
    layers = sorted({one.layer for one in mixers})
    return rule.finding(
        f"Positions do not enter the attention of {place_text(case, stack, layers)} "
        f"({mixers[0].path}).",
        stack=stack,
        layers=layers,
        sublayer="attention",
        parameter=mixers[0].path,
        evidence=[_evidence()],
        cause="queries and keys are not turned, or all by the same position; or the bias is left out",
        remedy=f"Turn queries and keys of {mixers[0].path} by the positions 0 to n - 1.",
    )


def _by_example(rule: Rule, panel: TokenPanel) -> Finding:
    return rule.finding(
        "Positions run along the examples, not the tokens: equal examples give different outputs by "
        "their place in the batch, and tokens that change places change nothing else.",
        evidence=[
            Evidence("equal examples in one batch", "different outputs", "equal outputs"),
            _evidence(),
        ],
        cause="the table of positions is cut by the first axis, `pe[: x.size(0)]`, which holds the "
        "examples here",
        remedy="Cut the table by the axis of the tokens: pe[: x.size(1)], as [1, token, width].",
    )
