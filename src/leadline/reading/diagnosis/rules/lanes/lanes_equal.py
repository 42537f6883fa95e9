"""L02: the lanes of a trained model hold the same vector.

Threshold: a mean cosine of 1 to rounding (1e-6) after every block. As drawn all lanes are copies of the
embedding, by design; training must part them. Random weights part the lanes of one family by 2e-5 only.
"""

from __future__ import annotations

from collections.abc import Iterator

from leadline.reading.diagnosis.case import Case
from leadline.reading.diagnosis.profile import is_finite_line, line_of
from leadline.reading.diagnosis.rule import Evidence, Rule, rule
from leadline.record.rows.finding import Finding

COSINE = 1 - 1e-6


@rule(
    "L02",
    "lanes-equal",
    severity="warning",
    basis="law",
    needs=("lane.cosine", "weights.rms"),
    summary="All lanes of a trained model hold the same vector.",
    why="The extra lanes cost memory and carry nothing: the connection is a plain residual.",
    is_not="A model at initialisation, where lanes start as copies.",
    false_alarms="Without a twin the rule does not look, since nobody can say whether the model was "
    "trained.",
    remedy="Break the symmetry at the start: other read and write weights for every lane.",
    sources=("Zhu et al. 2024, arXiv 2409.19606", "Alimaskina et al. 2026, arXiv 2606.03483"),
)
def lanes_equal(case: Case, rule: Rule) -> Iterator[Finding]:
    """Look at the cosine between lanes after every block."""
    if case.at_initialisation is not False:
        return
    for stack in case.stacks:
        line = {at: v for at, v in line_of(case, "lane.cosine", stack).items() if at}
        if is_finite_line(line) and min(line.values()) > COSINE:
            yield rule.finding(
                f"All lanes of the {stack} hold the same vector in every layer.",
                stack=stack,
                layers=sorted(line),
                evidence=[
                    Evidence(
                        "smallest cosine between lanes",
                        min(line.values()),
                        "below 1",
                        "lanes that differ",
                    )
                ],
                cause="lanes that start alike and are read and written alike",
                remedy="Give every lane its own read and write weights at the start.",
                quantity="lane.cosine",
            )
