"""R03: the skip is taken from the wrong point: from behind a norm, from before an update, from elsewhere."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from leadline.reading.diagnosis.case import Case
from leadline.reading.diagnosis.equations import (
    BlockEquation,
    WriteTerm,
    block_equations,
    branch_words,
    grouped_faults,
    is_declared,
    majority,
    missed_layers,
    place_words,
)
from leadline.reading.diagnosis.rule import Evidence, Remedy, Rule, rule
from leadline.reading.diagnosis.tensors import lost_branches
from leadline.record.rows.finding import Finding

NORMED_SKIP_BY_DESIGN = ("minimax", "minimax_m1")
"""Families whose stream goes through the norm on purpose (config postnorm), with scaled skips."""


@rule(
    "R03",
    "residual-from-wrong-point",
    severity="serious",
    basis="identity",
    needs=("anatomy",),
    summary=(
        "A skip that does not carry the stream: norm(x) + f(norm(x)), the stream before the last "
        "update, or another layer's stream."
    ),
    why=(
        "A skip behind a norm is no identity path: the stream is normed again in every layer and the "
        "gradient with it, as in post-norm, without its settling norm. A skip from before an update "
        "throws that update away."
    ),
    is_not=(
        "Not post-norm (the norm stands after the addition of every write), not parallel blocks "
        "(both branches read the same stream), not families that norm the stream on purpose."
    ),
    false_alarms="A new design that norms the stream once a layer on purpose.",
    remedy="Keep the un-normed stream: h = norm(x); x = x + f(h).",
    sources=(
        "Xiong et al. 2020, arXiv 2002.04745",
        "https://github.com/kyegomez/BitNet/issues/32",
    ),
    explains=("positions-unused", "writes-drowned", "loss-worse-than-uniform",
        "write-lost", "norm-missing", "norm-misplaced", "residual-weight-odd", "tokens-equal",
        "gradient-vanishing", "gradient-exploding", "stream-exploding", "depth-unused",
        "unlike-its-family", "not-as-intended", "parameters-unused", "first-writes-too-large",
        "loss-worse-than-unigram", "weights-scale-odd", "attention-uniform",
    ),
    example="skip-after-norm",
)  # fmt: skip
def residual_from_wrong_point(case: Case, rule: Rule) -> Iterator[Finding]:
    """Skips through norms, from before an update, or from another layer."""
    kind = case.design.get("model_type")
    meant = is_declared(case) and not missed_layers(case)
    if kind not in NORMED_SKIP_BY_DESIGN and not meant:
        for stack, blocks in block_equations(case).items():
            yield from _through_norms(case, rule, stack, blocks)
            yield from _reads_too_early(case, rule, stack, blocks)
    yield from _unexplained(case, rule)
    for faults in grouped_faults(case, ("skip-from-before",)):
        yield _from_before(case, rule, faults)
    for faults in grouped_faults(case, ("skip-from-elsewhere",)):
        yield _from_elsewhere(case, rule, faults)


def _unexplained(case: Case, rule: Rule) -> Iterator[Finding]:
    """Few blocks whose output is no sum of stream and updates, among blocks with the same modules."""
    for stack, reports in case.fact("block_survey", {}).items():
        odd = {
            one["layer"]
            for one in case.fact("block_faults", ())
            if one["kind"] == "unexplained"
            and one["stack"] == stack
            and (stack, one["layer"]) not in lost_branches(case)
        }
        for kind in {report["kind"] for report in reports if report["layer"] in odd}:
            alike = [report for report in reports if report["kind"] == kind]
            if majority((report["balances"] for report in alike), share=0.7) is not True:
                continue
            layers = sorted(odd & {report["layer"] for report in alike})
            module = case.module(stack, layers[0])
            yield rule.finding(
                f"What leaves {place_words(case, stack, layers)} is not the stream that enters and the "
                f"updates of {module}: in the other layers it is.",
                stack=stack,
                layers=layers,
                parameter=module,
                evidence=[
                    Evidence(f"output of {module}", "no sum of x and updates", "x + updates",
                             f"{len(alike) - len(layers)} other layers, exactly")
                ],
                ruled_out=["another kind of layer: the modules are those of the other layers"],
                cause="the forward of this layer changes the stream itself, or adds something else",
                remedy=Remedy("Compare its forward with that of the other layers: x = x + branch(x)."),
                confidence="likely",
            )  # fmt: skip


def _through_norms(
    case: Case, rule: Rule, stack: str, blocks: list[BlockEquation]
) -> Iterator[Finding]:
    groups: dict[tuple[str, str], list[tuple[BlockEquation, WriteTerm]]] = {}
    for block in blocks:
        if not block.surveyed:
            continue
        # RWKV norms the embedding inside of its first block; its branch has a norm of its own.
        first = block.writes[0] if block.writes else None
        bare = first is not None and first.norm is None and first.placement == "none"
        if (
            block.opening is not None
            and first is not None
            and (bare or first.norm == block.opening)
        ):
            groups.setdefault((block.opening, block.writes[0].name), []).append(
                (block, block.writes[0])
            )
        for write, after in itertools.pairwise(block.writes):
            # The norm after this addition is what the next branch reads, and its skip too.
            if (
                write.settle is not None
                and after.settle is None
                and after.placement in ("none", "output")
                and after.norm in (write.settle, None)
            ):
                groups.setdefault((write.settle, after.name), []).append((block, after))
    for (norm, _), hits in groups.items():
        block, write = hits[0]
        layers = [one.layer for one, _ in hits]
        who, place = branch_words(write.role, write.name), place_words(case, stack, layers)
        path = f"{block.module}.{norm}"
        yield rule.finding(
            f"The skip past {who} in {place} is taken behind the norm: "
            f"{norm}(x) + {write.name}({norm}(x)), where x + {write.name}({norm}(x)) keeps the stream.",
            stack=stack,
            layers=layers,
            sublayer=write.role,
            parameter=write.module,
            evidence=[
                Evidence("skip of this write", f"{norm}(x)", "x", "least squares, exact"),
                Evidence(
                    "layers that do so", len(hits), f"0 of {len(blocks)}", "the pre-norm design"
                ),
            ],
            ruled_out=["post-norm: no norm stands after this write's own addition"],
            cause=f"the forward overwrites the stream with {path}(x) before it adds the update",
            remedy=Remedy(f"Write h = {norm}(x); x = x + {write.name}(h)."),
        )


def _reads_too_early(
    case: Case, rule: Rule, stack: str, blocks: list[BlockEquation]
) -> Iterator[Finding]:
    """Branches of a few layers that read the block's input where others read what came after it."""
    columns: dict[tuple[int, str], list[tuple[BlockEquation, WriteTerm]]] = {}
    for block in blocks:
        if block.surveyed:
            for write in block.writes:
                columns.setdefault((block.kind, write.name), []).append((block, write))
    for (_, name), rows in columns.items():
        if majority((write.parallel for _, write in rows), share=0.7) is not False:
            continue
        hits = [(block, write) for block, write in rows if write.parallel]
        if not hits:
            continue
        layers = [block.layer for block, _ in hits]
        write = hits[0][1]
        who, place = branch_words(write.role, name), place_words(case, stack, layers)
        yield rule.finding(
            f"{who[:1].upper()}{who[1:]} in {place} reads the block's input, in the other layers the "
            "stream with the first update in it.",
            stack=stack,
            layers=layers,
            sublayer=write.role,
            parameter=write.module,
            evidence=[
                Evidence(f"gradient of {write.module} by the update before it", 0.0, "above 0",
                         "other layers")
            ],
            ruled_out=["a parallel design: the other layers run one branch after the other"],
            cause="the second branch is handed the residual in place of the stream",
            remedy=Remedy("Hand the stream with the first update in it to the second branch."),
        )  # fmt: skip


def _from_before(case: Case, rule: Rule, faults: list[Mapping[str, Any]]) -> Finding:
    first = faults[0]
    layers = [one["layer"] for one in faults]
    who = branch_words(first["role"], first["branch"])
    place = place_words(case, first["stack"], layers)
    reads = first["formula"].removeprefix("branch reads ")
    return rule.finding(
        f"The skip past {who} in {place} is taken from before '{first['source']}': the branch reads "
        f"{reads}, and its update is added to x, so the update of '{first['source']}' is lost.",
        stack=first["stack"],
        layers=layers,
        sublayer=first["role"],
        parameter=first["branch"],
        evidence=[
            Evidence(f"output of {first['module']}", first["output"], f"{reads} + ...",
                     "what the branch reads")
        ],
        ruled_out=["a parallel block: the branch reads the stream with the first update in it"],
        cause="the residual variable still holds the block's input where the second update is added",
        remedy=Remedy(
            f"Set the residual to the stream after '{first['source']}' before the next branch."
        ),
    )  # fmt: skip


def _from_elsewhere(case: Case, rule: Rule, faults: list[Mapping[str, Any]]) -> Finding:
    first = faults[0]
    layers = [one["layer"] for one in faults]
    place = place_words(case, first["stack"], layers)
    return rule.finding(
        f"The skip in {place} is not the stream that enters but {first['source']}.",
        stack=first["stack"],
        layers=layers,
        sublayer=first["role"],
        parameter=first["module"],
        evidence=[Evidence(f"output of {first['module']}", first["formula"], "x + ...",
                           "least squares, exact")],
        cause="an older tensor is used as the residual",
        remedy=Remedy("Add the update to the stream that entered this block."),
    )  # fmt: skip
