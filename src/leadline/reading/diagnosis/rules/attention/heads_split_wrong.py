"""A11: heads are cut from the features, or joined again, without the transpose."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from leadline.reading.diagnosis.case import Case
from leadline.reading.diagnosis.panels import TokenPanel, panels_of, place_text
from leadline.reading.diagnosis.rule import Evidence, Rule, rule
from leadline.record.rows.finding import Finding

_RIGHT = "[example, head, token, feature]"
_HEADS_LAST = "[example, token, head, feature]"
_WORDS = {
    "view": (
        "cuts the heads from the row of numbers without a transpose, so that a head's tokens are "
        "pieces of other tokens",
        "`view(batch, heads, tokens, width)` where `view(batch, tokens, heads, width)` and "
        "`transpose(1, 2)` belong",
        "Split with view(batch, tokens, heads, width).transpose(1, 2)",
    ),
    "merge": (
        "joins the heads without a transpose, so that a token gets pieces of other tokens",
        "`reshape(batch, tokens, heads * width)` without `transpose(1, 2)` before it",
        "Join with transpose(1, 2).reshape(batch, tokens, heads * width)",
    ),
    "heads": (
        "attends over the heads of a token instead of over the tokens",
        "the axes of heads and tokens were not exchanged before the product",
        "Bring queries, keys and values to [example, head, token, feature] with transpose(1, 2)",
    ),
}


@rule(
    "A11",
    "heads-split-wrong",
    severity="serious",
    basis="identity",
    needs=("token_panels",),
    summary="Changes one token at the input of every attention and looks in which cells of queries, "
    "keys and values it arrives; compares what the heads return with what is made of it.",
    why="Tokens are mixed before or after attention, whatever the mask says: masks and positions mean "
    "nothing, and a causal model sees the future.",
    is_not="Convolutions over the tokens before attention, or attention over blocks of tokens: only the "
    "exact pattern of a reshape is named.",
    false_alarms="None known.",
    remedy="Split with `view(b, n, h, d).transpose(1, 2)` and join with "
    "`transpose(1, 2).reshape(b, n, h * d)`.",
    sources=("https://github.com/reczoo/FuxiCTR/issues/30",),
    explains=(
        "future-leaks",
        "past-unreached",
        "positions-unused",
        "positions-wrong",
        "not-as-intended",
        "attention-uniform",
        "examples-mixed",
    ),
    example="heads-split-without-transpose",
)
def heads_split_wrong(case: Case, rule: Rule) -> Iterator[Finding]:
    """Name the attention modules whose heads are reshaped wrongly."""
    done: set[str] = set()
    for panel in panels_of(case, with_rows=True):
        kinds: dict[tuple[str, str], list[tuple[int, str]]] = {}
        for path, entry in panel.facts.get("mixers", {}).items():
            kind = entry.get("split") or ("heads" if _over_heads(panel, entry) else "")
            if kind and path not in done:
                done.add(path)
                key = kind, entry["stack"]
                kinds.setdefault(key, []).append((entry["layer"], path))
        for (kind, stack), places in kinds.items():
            verdict, cause, remedy = _WORDS[kind]
            layers = sorted({layer for layer, _ in places if layer})
            path = places[0][1]
            layout = _HEADS_LAST if kind == "heads" else f"that of a {kind} without transpose"
            yield rule.finding(
                f"The attention of {place_text(case, stack, layers)} {verdict} ({path}).",
                stack=stack,
                layers=layers,
                sublayer="attention",
                parameter=path,
                evidence=[
                    Evidence("layout of the heads", layout, _RIGHT, "bits of one pass"),
                ],
                cause=cause,
                remedy=f"{remedy} in {path}.",
            )


def _over_heads(panel: TokenPanel, entry: dict[str, Any]) -> bool:
    """Whether the axis that attention runs over is that of the heads."""
    if not {"query_shape", "key_shape", "first"} <= entry.keys():
        return False
    shape: list[int] = entry["query_shape"]
    over_tokens = shape[0] == panel.tokens != shape[1] and shape[:2] == entry["key_shape"][:2]
    return over_tokens and entry["middle"].count("1") <= 1 and entry["first"].count("1") <= 1
