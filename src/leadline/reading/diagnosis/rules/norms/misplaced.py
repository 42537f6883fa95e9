"""N02: the norms of a few layers stand elsewhere than those of the others, or are exchanged."""

from __future__ import annotations

from collections.abc import Iterator

from leadline.reading.diagnosis.case import Case
from leadline.reading.diagnosis.equations import (
    BlockEquation,
    WriteTerm,
    block_equations,
    branch_words,
    declared_placements,
    is_declared,
    majority,
    place_words,
)
from leadline.reading.diagnosis.rule import Evidence, Remedy, Rule, rule
from leadline.record.rows.finding import Finding


@rule(
    "N02",
    "norm-misplaced",
    severity="warning",
    basis="identity",
    needs=("block_survey",),
    summary="A layer whose norm stands before, on or behind a branch where the other layers have it elsewhere.",
    why=(
        "A post-norm layer among pre-norm ones cuts the identity path there: what came before is "
        "normed away, and gradients below it shrink."
    ),
    is_not="Not hybrid stacks: only layers with the same modules are compared.",
    false_alarms="A design that changes the placement with depth on purpose (Mix-LN).",
    remedy="Put the norm where the other layers have it.",
    sources=("Xiong et al. 2020, arXiv 2002.04745", "Li et al. 2024 (Mix-LN), arXiv 2412.13795"),
    explains=(
        "first-writes-too-large", "depth-unused", "gradient-vanishing", "gradient-exploding",
        "unlike-its-family", "norm-gain-odd", "stream-exploding", "parameters-unused",
    ),
    example="norm-after-addition",
)  # fmt: skip
def norm_misplaced(case: Case, rule: Rule) -> Iterator[Finding]:
    """Placements, and norms by name, that few layers have and nearly all others do not."""
    meant = declared_placements(case)
    for stack, blocks in block_equations(case).items():
        columns: dict[tuple[int, str], list[tuple[BlockEquation, WriteTerm]]] = {}
        for block in blocks:
            if (stack, block.layer) in meant:
                continue  # Mix-LN and hybrid placements say so themselves
            if block.surveyed and not block.idle_norms:
                for write in block.writes:
                    columns.setdefault((block.kind, write.name), []).append((block, write))
        found: dict[tuple[str, str, tuple[int, ...]], list[tuple[str, list[WriteTerm]]]] = {}
        for block in blocks:
            for write, placement in _elsewhere(block, meant.get((stack, block.layer), [])):
                text = f"{write.placement}|{placement}"
                found.setdefault(("placement", text, (block.layer,)), []).append((text, [write]))
        for (_, _name), rows in columns.items():
            for what in ("placement", "norm"):
                usual = majority((getattr(write, what) for _, write in rows), share=0.7)
                hits = [(b, w) for b, w in rows if getattr(w, what) != usual]
                # Missing norms are N01's; R03 speaks of norms that the skip goes through.
                if usual is None or not hits or len(hits) > 0.3 * len(rows):
                    continue
                if any("none" in (usual, w.placement) for _, w in hits):
                    continue
                if what == "norm" and any(w.norm is None or w.settle for _, w in hits):
                    continue
                layers = tuple(b.layer for b, _ in hits)
                if what == "placement" and len(layers) > 1 and _at_an_end(layers, rows):
                    continue  # the first or last layers as a group: a design such as Mix-LN
                value = str(getattr(hits[0][1], what))
                key = (what, f"{value}|{usual}" if what == "placement" else what, layers)
                found.setdefault(key, []).append((f"{value}|{usual}", [w for _, w in hits]))
        for (what, _, layers), groups in found.items():
            yield _finding(case, rule, stack, what, layers, groups)
        yield from _mixed(case, rule, stack, blocks)


def _elsewhere(block: BlockEquation, declared: list[str]) -> Iterator[tuple[WriteTerm, str]]:
    """Writes whose norm stands elsewhere than the model declares, with where it should stand."""
    if not block.surveyed or len(declared) != len(block.writes):
        return
    for write, placement in zip(block.writes, declared, strict=True):
        # Missing norms are N01's.
        if write.placement != placement and "none" not in (write.placement, placement):
            yield write, placement


def _at_an_end(layers: tuple[int, ...], rows: list[tuple[BlockEquation, WriteTerm]]) -> bool:
    numbers = [block.layer for block, _ in rows]
    size = len(layers)
    return tuple(numbers[:size]) == layers or tuple(numbers[-size:]) == layers


def _mixed(case: Case, rule: Rule, stack: str, blocks: list[BlockEquation]) -> Iterator[Finding]:
    """Stacks in which one branch is pre-norm and another post-norm, in every layer.

    No family of the zoo is so; Conformers have a post norm behind a last branch that is pre-norm too.
    """
    surveyed = [block for block in blocks if block.surveyed]
    if len(surveyed) < 2 or is_declared(case):
        return
    if not all({w.placement for w in b.writes} == {"pre", "post"} for b in surveyed):
        return
    write = next(w for w in surveyed[0].writes if w.placement == "post")
    yield rule.finding(
        f"The norm of {branch_words(write.role, write.name)} in all {len(surveyed)} layers of the "
        f"{stack} stands behind the addition, that of the other branch before it.",
        stack=stack,
        layers=[block.layer for block in surveyed],
        sublayer=write.role,
        parameter=f"{surveyed[0].module}.{write.settle}",
        evidence=[
            Evidence(f"placement of {one.module}", one.placement, "the same for all branches",
                     "published designs")
            for one in surveyed[0].writes
        ],
        cause="one branch is written as pre-norm and the other as post-norm",
        remedy=Remedy(f"Norm what {write.name} reads: x = x + {write.name}({write.settle}(x))."),
        confidence="likely",
    )  # fmt: skip


def _finding(
    case: Case, rule: Rule, stack: str, what: str, layers: tuple[int, ...],
    groups: list[tuple[str, list[WriteTerm]]],
) -> Finding:  # fmt: skip
    place = place_words(case, stack, layers)
    writes = [group[0] for _, group in groups]
    who = " and ".join(branch_words(write.role, write.name) for write in writes)
    value, usual = groups[0][0].split("|")
    first = writes[0]
    if what == "placement":
        verdict = f"The norms around {who} in {place} are misplaced: {value}-norm, where the other layers are {usual}-norm."
        words = f"Make these layers {usual}-norm as the others are."
    else:
        verdict = f"The norms of {place} are exchanged: {who} reads the stream through '{value}', in the other layers through '{usual}'."
        words = f"Use '{usual}' for {who}."
    evidence = [
        Evidence(
            f"{what} of {write.module}", text.split("|")[0], text.split("|")[1], "other layers"
        )
        for (text, _), write in zip(groups, writes, strict=True)
    ]
    return rule.finding(
        verdict,
        stack=stack,
        layers=layers,
        sublayer=first.role if len(writes) == 1 else None,
        parameter=first.module,
        evidence=evidence[:3],
        ruled_out=["another kind of layer: the modules are those of the other layers"],
        cause="the forward of these layers differs from that of the others",
        remedy=Remedy(words),
    )
