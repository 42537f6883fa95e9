"""R04: a branch is computed, and its update never reaches the stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from leadline.reading.diagnosis.case import Case
from leadline.reading.diagnosis.equations import (
    BlockEquation,
    block_equations,
    branch_words,
    grouped_faults,
    majority,
    place_words,
)
from leadline.reading.diagnosis.rule import Evidence, Remedy, Rule, rule
from leadline.reading.diagnosis.tensors import lost_branches, names_text
from leadline.record.rows.finding import Finding


@rule(
    "R04",
    "write-lost",
    severity="serious",
    basis="identity",
    needs=("block_faults",),
    summary="A branch that runs, and whose output nothing depends on.",
    why="The branch costs as much as any other and does nothing; its parameters never get a gradient.",
    is_not=(
        "Not a branch whose weights are zero (its output is used, and is zero), not a layer that was "
        "left out by design, whose branch does not run at all."
    ),
    false_alarms="A block that computes something for an auxiliary output only.",
    remedy="Add the update: x = x + branch(x).",
    sources=("https://github.com/strutive07/transformer-tensorflow2.0/issues/14",),
    explains=(
        "parameters-unused", "gradient-cut", "write-dead", "depth-unused", "unlike-its-family",
        "residual-weight-odd", "not-as-intended", "positions-unused", "past-unreached",
    ),
    example="write-lost-mlp",
)  # fmt: skip
def write_lost(case: Case, rule: Rule) -> Iterator[Finding]:
    """Branches that run and reach nothing, and blocks that return the stream as it entered."""
    for faults in grouped_faults(case, ("update-unread",)):
        yield _finding(case, rule, faults)
    groups = grouped_faults(case, ("nothing-written", "stream-scaled"), keep=_computes)
    for faults in groups:
        yield _finding(case, rule, faults)
    yield from _unread(case, rule)
    spoken = {(one["stack"], one["layer"]) for one in case.fact("block_faults", ())}
    spoken |= {*lost_branches(case)}
    for stack, blocks in block_equations(case).items():
        yield from _absent(case, rule, stack, [b for b in blocks if b.surveyed], spoken)


def _unread(case: Case, rule: Rule) -> Iterator[Finding]:
    """Branches that run in blocks which the survey could not read, and that no output depends on."""
    known = {
        (one["stack"], one["layer"])
        for one in case.fact("block_faults", ())
        if one["kind"] in ("update-unread", "nothing-written", "stream-scaled", "skip-from-before")
    }
    for (stack, layer), branches in lost_branches(case).items():
        if (stack, layer) in known:
            continue
        for role, names in branches.items():
            who, place = branch_words(role), place_words(case, stack, [layer])
            yield rule.finding(
                f"The update of {who} in {place} is lost: {names_text(names)} are used, and no output "
                "depends on them.",
                stack=stack,
                layers=[layer],
                sublayer=role,
                parameter=names[0].rpartition(".")[0] or names[0],
                evidence=[
                    Evidence("outputs that move when the branch is changed", 0.0, "above 0",
                             "one pass with other weights")
                ],
                ruled_out=["a branch that is not called: it runs"],
                cause="the forward does not add the result to the stream",
                remedy=Remedy("Add what the branch returns: x = x + branch(x)."),
            )  # fmt: skip


def _absent(
    case: Case, rule: Rule, stack: str, blocks: list[BlockEquation], spoken: set[tuple[str, int]]
) -> Iterator[Finding]:
    """Layers without a write that most layers with the same modules have."""
    for kind in {block.kind for block in blocks}:
        alike = [block for block in blocks if block.kind == kind]
        usual = majority((frozenset(w.name for w in b.writes) for b in alike), share=0.7)
        for block in alike:
            lost = [] if usual is None else sorted(usual - {w.name for w in block.writes})
            if len(lost) != 1 or len(block.writes) >= len(usual or ()):
                continue
            if (stack, block.layer) in spoken:
                continue
            path = f"{block.module}.{lost[0]}"
            role = next(w.role for b in alike for w in b.writes if w.name == lost[0])
            yield rule.finding(
                f"{branch_words(role, path).capitalize() if role != 'mlp' else 'The MLP'} of "
                f"{place_words(case, stack, [block.layer])} writes nothing: {path} is no part of "
                "what leaves the block.",
                stack=stack,
                layers=[block.layer],
                sublayer=role,
                parameter=path,
                evidence=[
                    Evidence(f"writes of {block.module}", len(block.writes), len(usual or ()),
                             "other layers with the same modules")
                ],
                cause="the branch is not called there, or something else is added in its place",
                remedy=Remedy("Add what the branch returns: x = x + branch(x)."),
            )  # fmt: skip


def _computes(fault: Mapping[str, Any]) -> bool:
    """Whether the branches of a block that writes nothing compute something, and no gate is shut."""
    return not fault["gates"] and (fault["largest_share"] or 0.0) > 1e-6


def _finding(case: Case, rule: Rule, faults: list[Mapping[str, Any]]) -> Finding:
    first = faults[0]
    layers = [one["layer"] for one in faults]
    place = place_words(case, first["stack"], layers)
    if first["branch"]:
        who = branch_words(first["role"], first["branch"])
        verdict = (
            f"The update of {who} in {place} is lost: {first['branch']} runs, and nothing that "
            "leaves the block depends on it."
        )
        evidence = Evidence(
            f"change of the output of {first['module']} when {first['branch']} is disturbed",
            0.0, "above 0", "one block run again",
        )  # fmt: skip
    else:
        verdict = (
            f"Nothing is written in {place}: {first['module']} returns {first['output']}, "
            "whatever its branches compute."
        )
        evidence = Evidence(
            f"output of {first['module']}", first["output"], "x + updates", "least squares, exact"
        )
    return rule.finding(
        verdict,
        stack=first["stack"],
        layers=layers,
        sublayer=first["role"],
        parameter=first["branch"] or first["module"],
        evidence=[evidence],
        ruled_out=["zero weights: the branch returns numbers that are not 0"],
        cause=f"the forward of {first['class']} does not add the result to the stream",
        remedy=Remedy(
            f"In the forward of {first['class']} add what the branch returns: x = x + branch(x).",
        ),
    )
