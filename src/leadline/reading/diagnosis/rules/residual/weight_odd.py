"""R05: one layer keeps the stream, or adds its update, with another factor than the others."""

from __future__ import annotations

from collections.abc import Iterator

from leadline.reading.diagnosis.case import Case
from leadline.reading.diagnosis.equations import (
    BlockEquation,
    WriteTerm,
    block_equations,
    branch_words,
    is_declared,
    majority,
    place_words,
    skips_around,
)
from leadline.reading.diagnosis.rule import Evidence, Remedy, Rule, rule
from leadline.record.rows.finding import Finding

DIGITS = 5
"""Factors are compared to so many digits: the fit rounds them to seven."""
SAME = 1e-3
"""Factors that differ by less are one: the fit of an update that is 1e-4 of the stream (LayerScale as it
is drawn) is right to about eps / 1e-4 = 1e-3 in float32, and was seen 1e-5 off. No slip is so small."""


@rule(
    "R05",
    "residual-weight-odd",
    severity="warning",
    basis="identity",
    needs=("anatomy",),
    summary="A layer whose factor on the stream or on its update differs from that of nearly all others.",
    why="A constant of a design is the same in every layer; a single other one is a slip of code.",
    is_not=(
        "Not learned gains (they differ in every layer), not designs whose factor follows depth, not "
        "blocks of another kind among the others."
    ),
    false_alarms="A first or last layer that is scaled on purpose.",
    remedy="Use the factor of the other layers.",
    sources=("Wang et al. 2022, arXiv 2203.00555",),
    explains=(
        "first-writes-too-large", "depth-unused", "stream-exploding", "writes-drowned",
        "write-harmful", "unlike-its-family", "tokens-equal", "attention-uniform",
        "loss-worse-than-unigram", "loss-worse-than-uniform",
    ),
    example="stream-halved",
)  # fmt: skip
def residual_weight_odd(case: Case, rule: Rule) -> Iterator[Finding]:
    """Coefficients of a few layers that differ from a value that most layers share exactly."""
    for stack, blocks in block_equations(case).items():
        columns: dict[tuple[int, str], list[tuple[BlockEquation, WriteTerm]]] = {}
        for block in blocks:
            for write in block.writes:
                columns.setdefault((block.kind, write.name), []).append((block, write))
        for (_, name), rows in columns.items():
            for what in ("keep", "gain"):
                yield from _odd(case, rule, stack, name, what, rows)
        yield from _taken_away(case, rule, stack, blocks)


def _taken_away(
    case: Case, rule: Rule, stack: str, blocks: list[BlockEquation]
) -> Iterator[Finding]:
    """Blocks behind which the stream is added or taken away once more, with any factor but 1."""
    for block, write in skips_around(blocks):
        if not isinstance(write.keep, float) or write.keep == 1.0:
            continue
        place = place_words(case, stack, [block.layer])
        yield rule.finding(
            f"Behind {write.name} in {place} {write.keep:g} x the stream is added, in the other layers "
            "nothing: it has the stream in it already.",
            stack=stack,
            layers=[block.layer],
            sublayer=write.role,
            parameter=write.module,
            evidence=[
                Evidence(f"output of {block.module}", f"{write.keep:g} x + {write.name}(...)",
                         f"{write.name}(...)", "the other layers, exactly")
            ],
            cause="the forward of this layer adds the stream to what already holds it",
            remedy=Remedy(f"Return what {write.name} returns."),
        )  # fmt: skip


def _odd(
    case: Case, rule: Rule, stack: str, name: str, what: str,
    rows: list[tuple[BlockEquation, WriteTerm]],
) -> Iterator[Finding]:  # fmt: skip
    values = {block.layer: _value(write, what) for block, write in rows}
    usual = majority((v for v in values.values() if v is not None), share=0.7)
    if usual is None:
        return
    if usual < 0 and set(values.values()) == {usual} and not is_declared(case):
        yield _subtracted(case, rule, stack, name, what, rows, usual)
    groups: dict[float, list[tuple[BlockEquation, WriteTerm]]] = {}
    for block, write in rows:
        value = values[block.layer]
        if value is None or abs(value - usual) <= SAME * abs(usual):
            continue
        if what == "keep" and value == 2.0:
            continue
        groups.setdefault(value, []).append((block, write))
    if len(groups) > 2:
        return  # factors of their own in many layers are learned, or follow depth
    for value, hits in groups.items():
        layers = [block.layer for block, _ in hits]
        write = hits[0][1]
        who, place = branch_words(write.role, name), place_words(case, stack, layers)
        does = (
            f"keeps {value:g} x the stream past {who}"
            if what == "keep"
            else f"adds {value:g} x the update of {who}"
        )
        verb = does if len(layers) == 1 else does.replace("keeps", "keep").replace("adds", "add")
        yield rule.finding(
            f"{place[:1].upper()}{place[1:]} {verb}, the other layers {usual:g} x.",
            stack=stack,
            layers=layers,
            sublayer=write.role,
            parameter=write.module,
            evidence=[
                Evidence(f"{what} of {write.module}", value, usual,
                         f"{len(rows) - len(hits)} other layers, exactly")
            ],
            ruled_out=["a learned gain: the other layers share one value exactly"],
            cause="a constant in the forward of these layers differs",
            remedy=Remedy(
                f"Multiply by {usual:g} as the other layers do.",
                edit={"edit": "scale-updates", "modules": [one.module for _, one in hits],
                      "factor": usual / value} if what == "gain" and value else {},
            ),
        )  # fmt: skip


def _subtracted(
    case: Case, rule: Rule, stack: str, name: str, what: str,
    rows: list[tuple[BlockEquation, WriteTerm]], value: float,
) -> Finding:  # fmt: skip
    layers = [block.layer for block, _ in rows]
    write = rows[0][1]
    who, place = branch_words(write.role, name), place_words(case, stack, layers)
    thing = "The stream" if what == "keep" else f"The update of {who}"
    return rule.finding(
        f"{thing} is subtracted in {place}: its factor is {value:g}.",
        stack=stack,
        layers=layers,
        sublayer=write.role,
        parameter=write.module,
        evidence=[Evidence(f"{what} of {write.module}", value, 1.0, "x + f(x)")],
        cause="a minus where a plus should stand",
        remedy=Remedy(
            "Add the update.",
            edit={"edit": "scale-updates", "modules": [one.module for _, one in rows],
                  "factor": 1.0 / value} if what == "gain" else {},
        ),
    )  # fmt: skip


def _value(write: WriteTerm, what: str) -> float | None:
    value = write.keep if what == "keep" else write.gain
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else None
