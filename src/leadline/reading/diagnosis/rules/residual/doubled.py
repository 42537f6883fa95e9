"""R02: the stream, or an update, is added twice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from leadline.reading.diagnosis.case import Case
from leadline.reading.diagnosis.equations import (
    BlockEquation,
    WriteTerm,
    block_equations,
    branch_words,
    is_declared,
    place_words,
    skips_around,
)
from leadline.reading.diagnosis.rule import Evidence, Remedy, Rule, rule
from leadline.record.rows.finding import Finding

TOLERANCE = 1e-5
"""Coefficients are least-squares values that the balance holds to rounding."""


@rule(
    "R02",
    "residual-doubled",
    severity="serious",
    basis="identity",
    needs=("anatomy",),
    summary="A write that keeps the stream twice (x + x + f(x)) or adds its update twice.",
    why=(
        "A skip that is added twice doubles the stream: over L layers it grows 2^L-fold, and later "
        "writes drown in it. A doubled update makes one branch louder than it was trained or drawn for."
    ),
    is_not=(
        "Not DeepNorm and other designs that multiply the stream by a constant and norm it after the "
        "addition, nor coefficients that the model declares itself."
    ),
    false_alarms="A design that multiplies its stream by exactly 2 on purpose.",
    remedy="Take one of the two additions away; often a block adds the stream and its caller does too.",
    sources=("https://github.com/kyegomez/BitNet/issues/32",),
    explains=(
        "norm-missing", "norm-misplaced", "residual-from-wrong-point", "write-lost",
        "parameters-unused", "tokens-equal", "attention-uniform",
        "residual-weight-odd", "stream-exploding", "writes-drowned", "gradient-exploding",
        "depth-unused", "float16-overflow", "bfloat16-write-loss", "gradient-vanishing",
        "unlike-its-family", "not-as-intended", "loss-worse-than-unigram", "first-writes-too-large",
        "massive-activations", "attention-saturated",
    ),
    example="skip-doubled",
)  # fmt: skip
def residual_doubled(case: Case, rule: Rule) -> Iterator[Finding]:
    """Writes whose keep, or whose gain, is 2."""
    for stack, blocks in block_equations(case).items():
        groups: dict[tuple[str, str], list[tuple[BlockEquation, WriteTerm]]] = {}
        for block in blocks:
            for write in block.writes:
                for what, value in (("keep", write.keep), ("gain", write.gain)):
                    if isinstance(value, float) and abs(value - 2.0) < TOLERANCE:
                        groups.setdefault((what, write.name), []).append((block, write))
        for (what, name), hits in groups.items():
            # (x + u) times 2 before a norm is a scale that the norm takes away.
            if all(w.keep == w.gain and w.settle for _, w in hits):
                continue
            if len(hits) == len(blocks) and is_declared(case):
                continue  # a constant of the design
            if what == "gain" and len(hits) < len(blocks):
                continue  # one layer unlike the others is R05's
            yield _finding(case, rule, stack, what, name, hits, len(blocks))
        around = [(b, w) for b, w in skips_around(blocks) if w.keep == 1.0]
        if around:
            yield _finding(case, rule, stack, "keep", around[0][1].name, around, len(blocks))
    yield from _between(case, rule)


def _finding(
    case: Case, rule: Rule, stack: str, what: str, name: str,
    hits: list[tuple[BlockEquation, WriteTerm]], depth: int,
) -> Finding:  # fmt: skip
    layers = [block.layer for block, _ in hits]
    block, write = hits[0]
    who, place = branch_words(write.role, name), place_words(case, stack, layers)
    others = "1, as in the other layers" if len(hits) < depth else "1"
    if what == "keep":
        verdict = f"The skip past {who} in {place} is added twice: 2 x + {name}."
        words = f"Write x = x + {name}(...) with one x."
    else:
        verdict = f"The update of {who} in {place} is added twice: x + 2 {name}."
        words = f"Add what {name} returns once."
    return rule.finding(
        verdict,
        stack=stack,
        layers=layers,
        sublayer=write.role,
        parameter=write.module,
        evidence=[Evidence(f"{what} of {write.module}", 2.0, others, "least squares, exact")],
        ruled_out=["a learned gain: the coefficient is exactly 2"],
        cause=f"the forward of {block.module} adds it twice, or its caller adds it again",
        remedy=Remedy(
            words,
            edit=_edit(what, hits),
        ),
    )


def _edit(what: str, hits: list[tuple[BlockEquation, WriteTerm]]) -> dict[str, Any]:
    modules = [write.module for _, write in hits]
    if what == "gain":
        return {"edit": "scale-updates", "modules": modules, "factor": 0.5}
    reads = [f"{block.module}.{write.norm}" if write.norm else None for block, write in hits]
    return {"edit": "add-residuals", "modules": modules, "reads": reads, "factor": -1.0}


def _between(case: Case, rule: Rule) -> Iterator[Finding]:
    """Blocks that add the stream themselves, in a model that adds it again around them."""
    balanced = {
        (stack, block.layer) for stack, blocks in block_equations(case).items() for block in blocks
    }
    for stack, rows in case.fact("between_blocks", {}).items():
        layers = [
            row["layer"]
            for row in rows
            if row["keep"] is not None
            and abs(row["keep"] - 1.0) < TOLERANCE
            and abs((row["gain"] or 0.0) - 1.0) < TOLERANCE
            and (stack, row["layer"]) in balanced
        ]
        if not layers:
            continue
        yield rule.finding(
            f"The stream is added again behind {place_words(case, stack, layers)}: each block adds "
            "it, and the model adds it once more.",
            stack=stack,
            layers=layers,
            parameter=case.module(stack, layers[0]),
            evidence=[
                Evidence("input of the next block", "x + block(x)", "block(x)", "least squares")
            ],
            cause="the model writes x = x + block(x) with a block that has its own skip connections",
            remedy=Remedy("Write x = block(x) in the model's forward."),
        )
