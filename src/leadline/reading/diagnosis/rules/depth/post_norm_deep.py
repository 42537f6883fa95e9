"""D09: a deep post-norm model as it is drawn, with nothing that scales its branches.

The gradient at the last layers of a post-norm model does not fall with depth, as it does like
1/sqrt(depth) in a pre-norm model (Xiong et al. 2020): without a warm-up of the rate the first steps
are too large. 18 layers is where Liu et al. 2020 saw training diverge; 12 (BERT-base) train.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from leadline.reading.diagnosis.case import Case
from leadline.reading.diagnosis.profile import as_drawn, writes_of
from leadline.reading.diagnosis.rule import Evidence, Rule, rule
from leadline.record.rows.finding import Finding

LEAST_DEPTH = 18


@rule(
    "D09",
    "post-norm-deep",
    severity="warning",
    basis="law",
    needs=("gradient.parameters",),
    summary="A post-norm model of 18 layers and more is as it was drawn, and nothing scales its branches.",
    why="Its last layers get a gradient that does not fall with depth: without a warm-up it diverges.",
    is_not="DeepNorm, Admin and others that scale skip or branch; pre-norm; trained models.",
    false_alarms="A run that warms its rate up: then this is known and cared for.",
    remedy="Warm the rate up over some thousand steps, use pre-norm, or DeepNorm's scales.",
    sources=("Xiong et al. 2020, arXiv 2002.04745", "Liu et al. 2020, arXiv 2004.08249"),
)
def post_norm_deep(case: Case, rule: Rule) -> Iterator[Finding]:
    """Ask the anatomy for the placement and for the weights of skip and branch."""
    if not as_drawn(case):
        return
    for stack in case.stacks:
        depth = case.depth(stack)
        sublayers = [s for one in case.layers if one["stack"] == stack for s in one["sublayers"]]
        plain = all(_is_one(s.get("keep")) and _is_one(s.get("gain")) for s in sublayers)
        if depth < LEAST_DEPTH or case.placements(stack) != {"post"} or not plain:
            continue
        lines = writes_of(case, "gradient.parameters", stack)
        line = lines.get("mlp") or next(iter(lines.values()), dict[int, float]())
        if not line or not line[min(line)] > 0:
            continue
        share = line[max(line)] / line[min(line)]
        yield rule.finding(
            f"The {stack} has {depth} post-norm layers as drawn, and nothing scales their branches: the "
            "last layers' gradient does not fall with depth, so training needs a warm-up.",
            stack=stack,
            layers=range(1, depth + 1),
            evidence=[
                Evidence(
                    "gradient of the parameters, last over first layer",
                    share,
                    1 / math.sqrt(depth),
                    "the law of pre-norm layers",
                )
            ],
            cause="the norm after every addition keeps the gradient of the last layers large",
            remedy="Warm the rate up, put the norms before the branches, or use DeepNorm's scales.",
            quantity="gradient.parameters",
        )


def _is_one(weight: object) -> bool:
    return isinstance(weight, int | float) and abs(weight - 1) < 1e-3
