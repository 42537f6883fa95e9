"""N01: a branch reads the stream bare where its norm should stand, or the final norm is not there."""

from __future__ import annotations

from collections.abc import Iterator

from leadline.reading.diagnosis.case import Case
from leadline.reading.diagnosis.equations import (
    BlockEquation,
    WriteTerm,
    block_equations,
    branch_words,
    declared_placements,
    majority,
    place_words,
)
from leadline.reading.diagnosis.rule import Evidence, Remedy, Rule, rule
from leadline.record.rows.finding import Finding

READS_NORMED = ("pre", "sandwich", "pre-and-post")


@rule(
    "N01",
    "norm-missing",
    severity="serious",
    basis="identity",
    needs=("block_survey",),
    summary=(
        "A branch that reads the stream without the norm that the other layers have, a norm that "
        "exists and never runs, or a pre-norm stack without a final norm."
    ),
    why=(
        "The stream of a pre-norm model grows with depth; a branch without its norm gets inputs that "
        "are larger than those of its neighbours, and its attention saturates."
    ),
    is_not=(
        "Not post-norm, not norms on the output of a branch, not designs without any norm, not "
        "parallel blocks that share one norm."
    ),
    false_alarms="A design in which one kind of layer has no norm on purpose.",
    remedy="Call the norm: x = x + branch(norm(x)).",
    sources=(
        "Xiong et al. 2020, arXiv 2002.04745",
        "https://github.com/ml-explore/mlx/issues/1636",
    ),
    explains=(
        "parameters-unused", "attention-saturated", "first-writes-too-large", "stream-exploding",
        "gradient-exploding", "gradient-vanishing", "unlike-its-family", "not-as-intended",
        "norm-misplaced", "gradient-cut", "output-head-too-large", "logit-drift",
        "attention-scale-wrong", "norm-gain-odd", "positions-unused", "attention-uniform",
        "writes-drowned", "tokens-equal", "depth-unused", "loss-worse-than-unigram",
        "loss-worse-than-uniform", "weights-foreign",
    ),
    example="norm-missing-mlp",
)  # fmt: skip
def norm_missing(case: Case, rule: Rule) -> Iterator[Finding]:
    """Bare branches among normed ones, idle norms beside bare branches, no final norm."""
    for stack, blocks in block_equations(case).items():
        surveyed = [block for block in blocks if block.surveyed]
        yield from _bare(case, rule, stack, surveyed)
        yield from _unused(case, rule, stack, surveyed)
        yield from _no_final_norm(case, rule, stack, surveyed)


def _bare(case: Case, rule: Rule, stack: str, blocks: list[BlockEquation]) -> Iterator[Finding]:
    meant = declared_placements(case)
    columns: dict[tuple[int, str], list[tuple[BlockEquation, WriteTerm]]] = {}
    for block in blocks:
        for write in block.writes:
            columns.setdefault((block.kind, write.name), []).append((block, write))
    for (_, name), rows in columns.items():
        usual = majority(write.placement for _, write in rows)
        idle_usual = majority((bool(block.idle_norms) for block, _ in rows), share=0.6)
        bare = [(block, write) for block, write in rows if write.placement == "none"]
        known = "norm" in str(case.design.get("declared_norm") or "norm")
        promised = [(b, w) for b, w in bare if known and _is_promised(meant, stack, b, w)]
        if promised:
            hits = promised
        elif usual not in (None, "none"):
            # ModernBERT norms the embedding and spares the first block its norm.
            spared = _normed_entry(case, stack)
            hits = [(b, w) for b, w in bare if not (b.layer == 1 and spared and not b.idle_norms)]
        else:
            # Bare in all layers: only a norm that exists and never runs shows that it was meant.
            hits = [pair for pair in bare if pair[0].idle_norms] if idle_usual else []
            if len(hits) < len(rows):
                hits = [] if usual == "none" and not idle_usual else hits
        if hits:
            yield _finding(case, rule, stack, name, hits, usual)


def _unused(case: Case, rule: Rule, stack: str, blocks: list[BlockEquation]) -> Iterator[Finding]:
    """Norms that run in most layers and not in a few, whose branches read through another norm."""
    if majority((not block.idle_norms for block in blocks), share=0.6) is not True:
        return
    for block in blocks:
        if not block.idle_norms or any(write.placement == "none" for write in block.writes):
            continue
        elsewhere = {name for other in blocks if other is not block for name in other.norms or ()}
        norm = next((name for name in block.idle_norms if name in elsewhere), None)
        if norm is None:
            continue  # built in this layer alone: nobody meant it to run (parameters-unused)
        path = f"{block.module}.{norm}"
        yield rule.finding(
            f"The norm {path} of {place_words(case, stack, [block.layer])} never runs: in the other "
            "layers it does.",
            stack=stack,
            layers=[block.layer],
            parameter=path,
            evidence=[Evidence("norms that do not run", path, "none", "other layers")],
            ruled_out=["a branch without any norm: its branches read the stream through another"],
            cause="another norm is called in its place",
            remedy=Remedy(f"Call {norm} where the other layers do."),
        )


def _is_promised(
    meant: dict[tuple[str, int], list[str]], stack: str, block: BlockEquation, write: WriteTerm
) -> bool:
    """Whether the model declares norms around a write that has none."""
    declared = meant.get((stack, block.layer), [])
    at = block.writes.index(write)
    return len(declared) == len(block.writes) and declared[at] != "none"


def _normed_entry(case: Case, stack: str) -> bool:
    return bool(case.design.get("entry_norm", {}).get(stack))


def _finding(
    case: Case, rule: Rule, stack: str, name: str,
    hits: list[tuple[BlockEquation, WriteTerm]], usual: str | None,
) -> Finding:  # fmt: skip
    block, write = hits[0]
    layers = [one.layer for one, _ in hits]
    who, place = branch_words(write.role, name), place_words(case, stack, layers)
    idle = [f"{block.module}.{norm}" for norm in block.idle_norms]
    expected = f"{usual}-norm" if usual not in (None, "none") else "a norm that runs"
    verdict = f"The norm of {who} in {place} is missing: the branch reads the stream bare"
    verdict += f", and {idle[0]} never runs." if idle else "."
    evidence = [
        Evidence(
            f"placement of norms around {write.module}", "none", expected,
            "other layers" if usual not in (None, "none") else "a norm that nothing calls",
        )
    ]  # fmt: skip
    if idle:
        evidence.append(Evidence("norms that do not run", ", ".join(idle), "none", "one pass"))
    return rule.finding(
        verdict,
        stack=stack,
        layers=layers,
        sublayer=write.role,
        parameter=idle[0] if idle else write.module,
        evidence=evidence,
        ruled_out=["post-norm: no norm stands behind the addition either"],
        cause="the forward hands the stream to the branch without its norm, or the norm was "
        "replaced by an identity",
        remedy=Remedy(
            f"Call the norm: x = x + {name}({block.idle_norms[0] if idle else 'norm'}(x)).",
            edit={
                "edit": "add-norms",
                "modules": [one.module for _, one in hits],
                "norms": [f"{one.module}.{one.idle_norms[0]}" for one, _ in hits],
            }
            if all(one.idle_norms for one, _ in hits)
            else {},
        ),
    )


def _no_final_norm(
    case: Case, rule: Rule, stack: str, blocks: list[BlockEquation]
) -> Iterator[Finding]:
    """A causal pre-norm stack that feeds logits, and no norm between its last block and them."""
    writes = [write for block in blocks for write in block.writes]
    known = case.fact("final_norm", {})
    design = case.design
    if len(blocks) < 2 or stack not in known or known[stack] is not None:
        return
    if not writes or not all(write.placement in ("pre", "sandwich") for write in writes):
        return
    if not (case.stacks.get(stack) or {}).get("causal") or not design.get("output_head"):
        return
    idle = design.get("idle_norms", [])
    yield rule.finding(
        f"The final norm behind the {stack} is missing: the head reads the stream as it grew.",
        stack=stack,
        parameter=idle[0] if idle else None,
        evidence=[
            Evidence("norms between the last block and the output", 0, 1,
                     "every published pre-norm decoder")
        ],
        ruled_out=["post-norm: the blocks norm what their branches read"],
        cause="the norm behind the blocks is not called, or was replaced by an identity",
        remedy=Remedy("Norm the stream before the head: logits = head(norm(x))."),
        severity="warning",
        confidence="likely",
    )  # fmt: skip
