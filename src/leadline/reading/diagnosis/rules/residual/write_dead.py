"""D04: a sublayer writes exactly nothing, while its neighbours do."""

from __future__ import annotations

from collections.abc import Iterator

from leadline.reading.diagnosis.case import Case
from leadline.reading.diagnosis.equations import branch_words, place_words
from leadline.reading.diagnosis.rule import Evidence, Remedy, Rule, rule
from leadline.reading.diagnosis.tensors import is_untrained
from leadline.record.rows.finding import Finding


@rule(
    "D04",
    "write-dead",
    severity="serious",
    basis="identity",
    needs=("anatomy",),
    summary="A sublayer whose update is exactly 0 for every token.",
    why="The layer does nothing and, if its last projection is 0 among trained ones, was lost on the way.",
    is_not=(
        "Not designs that start with zero writes (ReZero, zero-initialised projections, LayerScale "
        "of 0, adapters): there all layers of a role are silent, or the twin is silent too."
    ),
    false_alarms="A layer that was pruned by zeroing its weights on purpose.",
    remedy="Load or draw the weights of this sublayer again.",
    sources=("Bachlechner et al. 2020 (ReZero), arXiv 2003.04887",),
    explains=(
        "depth-unused", "gradient-vanishing", "gradient-cut", "heads-equal", "attention-uniform",
        "writes-drowned", "weights-scale-odd",
    ),
    example="rectifier-dead",
)  # fmt: skip
def write_dead(case: Case, rule: Rule) -> Iterator[Finding]:
    """Updates that are exactly zero where other layers, or the twin, have some."""
    anatomy = case.anatomy
    silent = {
        (one["stack"], one["layer"], one["sublayer"])
        for one in anatomy.get("balance_zero_updates", ())
    }
    if not silent:
        return
    columns: dict[tuple[str, str], list[tuple[int, int, str]]] = {}
    for layer in case.layers:
        for write in layer["sublayers"]:
            key = (layer["stack"], write["role"])
            columns.setdefault(key, []).append((layer["layer"], write["sublayer"], write["module"]))
    # A branch that depends on nothing has no role of its own; its name says what the others are.
    twin = _twin_norms(case)
    for (stack, role), rows in columns.items():
        # Where the stream itself has vanished, a write of nothing is no news.
        stream = case.lines("stream.norm").get((stack, "stream"), {})
        dead = [
            row for row in rows if (stack, row[0], row[1]) in silent and stream.get(row[0], 1.0) > 0
        ]
        if not dead:
            continue
        twin_dead = [row for row in dead if twin.get((stack, row[0], row[1])) == 0.0]
        if len(twin_dead) == len(dead):
            continue  # drawn so
        speaking = [row for row in rows if row not in dead]
        twin_speaks = any(twin.get((stack, row[0], row[1]), 0.0) > 0 for row in dead)
        if not speaking and (not twin_speaks or _starts_at_zero(case, stack)):
            continue  # all layers alike: a zero-initialised design
        dead = [row for row in dead if row not in twin_dead]
        layers = [row[0] for row in dead]
        who, place = branch_words(role, dead[0][2]), place_words(case, stack, layers)
        others = [
            value
            for (name, layer, sublayer), value in _norms(case).items()
            if name == stack and (layer, sublayer) in {(r[0], r[1]) for r in speaking}
        ]
        evidence = [
            Evidence(
                f"norm of what {dead[0][2]} adds", 0.0,
                sorted(others)[len(others) // 2] if others else "above 0",
                "median of the other layers" if others else "the twin with random weights",
            )
        ]  # fmt: skip
        yield rule.finding(
            f"{who[:1].upper()}{who[1:]} of {place} writes nothing: its update is exactly 0 for "
            "every token.",
            stack=stack,
            layers=layers,
            sublayer=role,
            parameter=dead[0][2],
            evidence=evidence,
            ruled_out=["a design that starts at zero: other layers, or the twin, write there"],
            cause="the weights of its last projection, or the gain behind it, are 0",
            remedy=Remedy("Load the weights of this sublayer again, or draw them anew."),
        )


def _norms(case: Case) -> dict[tuple[str, int, int | None], float]:
    return {
        (place.stack, place.layer, place.sublayer): value
        for place, value in case.values("update.norm").items()
    }


def _starts_at_zero(case: Case, stack: str) -> bool:
    """Whether an untrained model has a matrix that is 0 in every layer of a stack."""
    return is_untrained(case) and any(
        set(line.values()) == {1.0} and len(line) == case.depth(stack)
        for (name, _), line in case.lines("weights.zeros").items()
        if name == stack
    )


def _twin_norms(case: Case) -> dict[tuple[str, int, int | None], float]:
    if "update.norm" not in case.record.quantities:
        return {}
    headline = case.record.quantities["update.norm"].headline
    statistic = "twin" if headline == "value" else f"twin_{headline}"
    return {
        (place.stack, place.layer, place.sublayer): value
        for place, value in case.values("update.norm", statistic).items()
    }
