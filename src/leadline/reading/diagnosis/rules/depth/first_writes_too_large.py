"""D08: the first writes are far larger than what the embedding put into the stream.

Thresholds. Beside the twin: a factor of 5 and more than the stream itself; two draws of one model are
within 1.1. By the law alone it is a note: more than 10 times the stream. Published designs do that
at the start (a Llama of width 4096 with the usual spread of 0.02 writes about 60 times its
embedding), and their authors warm the rate up.
"""

from __future__ import annotations

from collections.abc import Iterator

from leadline.reading.diagnosis.case import Case
from leadline.reading.diagnosis.profile import writes_of
from leadline.reading.diagnosis.rule import Evidence, Rule, rule
from leadline.record.rows.finding import Finding

FACTOR = 5.0
NOTED = 10.0


@rule(
    "D08",
    "first-writes-too-large",
    severity="warning",
    basis="twin",
    needs=("update.ratio", "weights.rms"),
    summary="At initialisation the first block writes far more than the embedding brought.",
    why="What the tokens are is overwritten in the first block, and the gradient of the embedding is "
    "larger by the same factor: a known cause of spikes.",
    is_not="Designs that norm what a branch returns (OLMo-2, Gemma), which write a fixed size.",
    false_alarms="Designs whose first block is meant to replace the embedding, such as one that "
    "projects it to another space: they get a note unless their twin writes less.",
    remedy="Scale the embedding up (by sqrt(width), or by an embedding norm), or draw the first branches "
    "smaller.",
    sources=("Takase et al. 2023, arXiv 2312.16903",),
    example="first-layer-times-30",
)
def first_writes_too_large(case: Case, rule: Rule) -> Iterator[Finding]:
    """Look at block 1 of every stack."""
    if not case.at_initialisation:
        return
    for stack in case.stacks:
        if not case.placements(stack) <= {"pre", "parallel", "none"}:
            continue
        twins = writes_of(case, "update.ratio", stack, twin=True)
        shares = {
            role: line[1]
            for role, line in writes_of(case, "update.ratio", stack).items()
            if 1 in line
        }
        if not shares:
            continue
        role = max(shares, key=lambda one: shares[one])
        share, expected = shares[role], twins.get(role, {}).get(1)
        beyond_twin = bool(expected) and share > 1.0 and share > FACTOR * expected
        if not beyond_twin and not share > NOTED:
            continue
        module = case.branch(stack, 1, role)
        yield rule.finding(
            f"The {role} of {stack} layer 1 writes {share:.3g} times the stream that enters it: the "
            "embedding is overwritten.",
            stack=stack,
            layers=[1],
            sublayer=role,
            parameter=module or None,
            severity=None if beyond_twin else "note",
            evidence=[
                Evidence(
                    "update over stream in layer 1",
                    share,
                    expected if expected is not None and beyond_twin else 1.0,
                    "the twin" if beyond_twin else "large skip, small writes",
                )
            ],
            cause="an embedding that is drawn too small, or branches that are drawn too large",
            remedy="Scale the embedding by sqrt(width), or draw the weights of the branches smaller.",
            quantity="update.ratio",
        )
