"""A07: positions are used, and are not those of the tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from leadline.reading.diagnosis.calls import every_call, twin_call
from leadline.reading.diagnosis.case import Case
from leadline.reading.diagnosis.panels import panels_of, place_text
from leadline.reading.diagnosis.rule import Evidence, Rule, rule
from leadline.record.rows.finding import Finding


@rule(
    "A07",
    "positions-wrong",
    severity="serious",
    basis="identity",
    needs=("positions", "attention_calls"),
    summary="Compares the rows that tables of positions are asked for with those of the twin and with "
    "0, 1, 2, ...; looks whether queries and keys of a token are turned by the same angles, or not at "
    "all.",
    why="A table that was trained for other rows, or a rotation of one side only, makes distances "
    "meaningless.",
    is_not="Offsets by design: RoBERTa counts from 2, OPT shifts by 2; the twin has them too.",
    false_alarms="Positions in two dimensions, as of patches or boxes, in a class of one's own.",
    remedy="Ask the table for the rows 0 to n - 1 (plus the offset of the family), and turn queries and "
    "keys by the same angles.",
    sources=("https://arxiv.org/abs/2104.09864",),
    explains=("unlike-its-family", "positions-unused"),
    example="rotary-base-wrong",
)
def positions_wrong(case: Case, rule: Rule) -> Iterator[Finding]:
    """Look at tables, at rotations, and at outputs that depend on the place in the batch."""
    facts = case.fact("positions", {})
    library = case.fact("intention", {}).get("library")
    for path, rows in facts.get("tables", {}).items():
        if len(rows) < 2 or len(set(rows)) == 1 or min(rows) < 0:
            continue
        twin = facts.get("twin_tables", {}).get(path)
        in_order = all(later - earlier == 1 for earlier, later in pairwise(rows))
        if twin is not None and twin != rows:
            expected, source = twin, "twin of the same configuration"
        elif not in_order and not library and sorted(rows) != rows:
            expected, source = list(range(len(rows))), "the order of the tokens"
        else:
            continue
        stack, layer = case.place_of(path)
        shift = rows[0] - expected[0]
        shifted = [row - shift for row in rows] == expected
        how = f"shifted by {shift}" if shifted else "in another order"
        yield rule.finding(
            f"Positions are {how}: {path} is asked for the rows {_rows(rows)}.",
            stack=stack,
            layers=[layer] if layer else [],
            parameter=path,
            evidence=[Evidence(f"rows of {path}", _rows(rows), _rows(expected), source)],
            cause="position ids start at the wrong number" if shifted else "position ids are wrong",
            remedy=f"Ask {path} for the rows {_rows(expected)}.",
        )
    yield from _one_side(case, rule)
    yield from _apart(case, rule)
    if case.fact("isolation", {}).get("random"):
        return  # nothing is equal where passes are random
    for panel in panels_of(case, with_rows=True):
        if panel.rows_differ and panel.facts.get("order_told") is not False:
            yield rule.finding(
                "Equal examples give different outputs by their place in the batch: something is "
                "looked up by the example.",
                evidence=[
                    Evidence("equal examples in one batch", "different outputs", "equal outputs")
                ],
                cause="a table is cut by the first axis, which holds the examples here",
                remedy="Cut tables of positions by the axis of the tokens.",
            )
            break


def _one_side(case: Case, rule: Rule) -> Iterator[Finding]:
    """Queries turned and keys not, or the other way round."""
    library = bool(case.fact("intention", {}).get("library"))
    stacks: dict[str, list[tuple[int, str, str]]] = {}
    for one in every_call(case):
        sides = _sides(case, one)
        if sides is None or sides[0] == sides[1]:
            continue
        twin = twin_call(case, one)
        if library and twin is not None and tuple(twin["turned"]) == sides:
            continue
        side = "queries" if sides[0] else "keys"
        stacks.setdefault(one["stack"], []).append((one["layer"], one["module"], side))
    for stack, places in stacks.items():
        layers = sorted({layer for layer, _, _ in places})
        _, path, side = places[0]
        yield rule.finding(
            f"Only the {side} are turned by their positions in the attention of "
            f"{place_text(case, stack, layers)} ({path}).",
            stack=stack,
            layers=layers,
            sublayer="attention",
            parameter=path,
            evidence=[Evidence("turned by rotary positions", side, "queries and keys")],
            cause="the rotation is applied to one side, or its result is thrown away for the other",
            remedy=f"Turn queries and keys in {path} by the same angles.",
        )


def _apart(case: Case, rule: Rule) -> Iterator[Finding]:
    """Queries turned by other angles than keys, or values turned with them."""
    library = bool(case.fact("intention", {}).get("library"))
    stacks: dict[tuple[str, str], list[tuple[int, str]]] = {}
    for panel in panels_of(case):
        for one in every_call(case):
            what = panel.turned_apart(one["module"])
            twin = panel.twin
            meant = library and twin is not None and twin.turned_apart(one["module"]) == what
            if what and not meant:
                key = one["stack"], what
                stacks.setdefault(key, []).append((one["layer"], one["module"]))
    for (stack, what), calls in stacks.items():
        layers = sorted({layer for layer, _ in calls})
        path = calls[0][1]
        values = what == "values"
        how = (
            "Values are turned by positions too" if values else "Queries and keys are turned apart"
        )
        yield rule.finding(
            f"{how} in the attention of {place_text(case, stack, layers)} ({path}).",
            stack=stack,
            layers=layers,
            sublayer="attention",
            parameter=path,
            evidence=[
                Evidence("value of one token at two places", "turned", "the same")
                if values
                else Evidence(
                    "query times key of one token, at two places", "different", "the same"
                )
            ],
            cause="the rotation is applied to all three projections"
            if values
            else "the rotations of queries and keys have other signs, frequencies or positions",
            remedy=f"Turn queries and keys in {path} by the same angles, and nothing else.",
        )


def _sides(case: Case, one: Mapping[str, Any]) -> tuple[bool, bool] | None:
    """Whether queries and keys depend on the place of their token.

    A token that was moved to another place tells it exactly. Where none could be moved, vectors that
    were turned behind their projection are taken for it.
    """
    for panel in panels_of(case):
        if (sides := panel.placed(one["module"])) is not None:
            return sides
    query, key = one["turned"]
    return None if query is None or key is None else (query, key)


def _rows(rows: list[int]) -> str:
    listed = ", ".join(map(str, rows[:3]))
    return f"{listed}, ... {rows[-1]}" if len(rows) > 3 else listed
