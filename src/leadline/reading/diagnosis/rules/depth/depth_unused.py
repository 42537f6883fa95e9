"""D07: the second half of a trained model hardly turns the stream.

Threshold: the median influence of the blocks of the second half, without the last, below a fiftieth of the
first half's, without the first; below a tenth it is a note. In the embedded pair and in SmolLM2 the
halves are within a factor of 2 of each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from leadline.reading.diagnosis.case import Case
from leadline.reading.diagnosis.profile import is_finite_line, line_of
from leadline.reading.diagnosis.rule import Evidence, Rule, rule
from leadline.record.rows.finding import Finding

NOTED, WARNED = 10.0, 50.0
LEAST_DEPTH = 6


@rule(
    "D07",
    "depth-unused",
    severity="warning",
    basis="law",
    needs=("block.influence", "weights.rms"),
    summary="In a trained model the second half of the layers hardly changes the stream.",
    why="Half of the compute does nothing: the layers could be left out.",
    is_not="A model at initialisation. A last layer that turns the stream for the head.",
    false_alarms="Early exits and models that were pruned or grown on purpose.",
    remedy="Check by leaving layers out (--ablate); train with LayerNorm scaling, or with fewer layers.",
    sources=("Sun et al. 2025, arXiv 2502.05795", "Gromov et al. 2024, arXiv 2403.17887"),
    example="upper-half-over-1000",
)
def depth_unused(case: Case, rule: Rule) -> Iterator[Finding]:
    """Compare the influence of the halves."""
    if case.at_initialisation is not False:
        return
    for stack in case.stacks:
        line = line_of(case, "block.influence", stack, "block")
        if not is_finite_line(line) or len(line) < LEAST_DEPTH:
            continue
        layers = sorted(line)
        half = len(layers) // 2
        early, late = layers[1:half], layers[half:-1]
        first, second = median(line[at] for at in early), median(line[at] for at in late)
        if not 0 < second < first / NOTED:
            continue
        yield rule.finding(
            f"The second half of the {stack} is hardly used: layers {late[0]} to {late[-1]} turn the "
            f"stream {first / second:.3g} times less than the first half.",
            stack=stack,
            layers=late,
            severity=None if second < first / WARNED else "note",
            evidence=[Evidence("influence of a block, median", second, first, "the first half")],
            cause="a stream that grows with depth, in which late writes weigh little",
            remedy="Leave these layers out one at a time (--ablate) and see whether anything is lost.",
            quantity="block.influence",
        )
