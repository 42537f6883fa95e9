"""I01, I02: all weights were drawn several times too large, or too small.

Two expectations. The twin: nearly all matrices of the blocks are the same factor away from it, which
training does not do, and gains and biases are the constants that they are drawn as, which training
changes at once. The class: the configuration asks for another spread than its class has by
itself, and the weights follow it. Thresholds: a factor of 3 from either; common means within 1.3 for
8 of 10 matrices. Ratios to the twin range over 0.9 to 1.3 in the embedded pair, 1.4 to 4.7 in a small trained Llama,
1.9 to 4.8 in MiniLM.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import median

from leadline.reading.diagnosis.case import OUTSIDE, Case, CasePlace
from leadline.reading.diagnosis.rule import Evidence, Remedy, Rule, rule
from leadline.reading.diagnosis.tensors import (
    common_factor,
    has_fresh_constants,
    inputs_of,
    is_matrix,
    kind_of,
    matrix_ratios,
)
from leadline.record.rows.finding import Finding

FACTOR = 3.0
USUAL = 1.4
"""Root mean square of what a matrix makes of inputs of size 1, drawn as usual, is at most this."""
GAIN = 2.5
"""The same, where it is too much without any other sign."""

_FOLLOW = (
    "stream-exploding", "gradient-exploding", "gradient-vanishing", "attention-saturated",
    "attention-uniform", "writes-drowned", "first-writes-too-large", "tokens-equal",
    "loss-worse-than-uniform", "loss-worse-than-unigram", "output-head-too-large",
    "embedding-scale-wrong", "float16-overflow", "bfloat16-write-loss", "depth-unused",
    "write-dead", "logit-drift", "weights-scale-odd", "norm-eps-large", "massive-activations",
    "depth-scale-missing", "positions-unused", "unlike-its-family",
    "weights-foreign", "heads-equal",
)  # fmt: skip


@rule(
    "I01",
    "init-too-large",
    severity="serious",
    basis="twin",
    needs=("weights.rms",),
    summary="All weights are several times larger than they are drawn.",
    why="Attention saturates at the first step, the stream grows with every write, and gradients "
    "explode or vanish.",
    is_not="Trained weights, which grow by different factors; a design with another spread by itself.",
    false_alarms="A class of one's own whose default spread was chosen anew in the configuration.",
    remedy="Draw the weights again with the spread that the class has by itself.",
    sources=("https://arxiv.org/abs/1901.09321",),
    explains=_FOLLOW,
    example="init-times-10",
)
def init_too_large(case: Case, rule: Rule) -> Iterator[Finding]:
    """The common factor, where it is large."""
    yield from _findings(case, rule, large=True)


@rule(
    "I02",
    "init-too-small",
    severity="warning",
    basis="twin",
    needs=("weights.rms", "twin"),
    summary="All weights are several times smaller than they are drawn.",
    why="Branches write next to nothing and learning starts on a plateau.",
    is_not="Weights that decay made small one by one; a design that scales them by depth.",
    false_alarms="A class of one's own whose default spread was chosen anew in the configuration.",
    remedy="Draw the weights again with the spread that the class has by itself.",
    sources=("https://arxiv.org/abs/1901.09321",),
    explains=_FOLLOW,
    example="init-over-10",
)
def init_too_small(case: Case, rule: Rule) -> Iterator[Finding]:
    """The common factor, where it is small."""
    yield from _findings(case, rule, large=False)


def _findings(case: Case, rule: Rule, *, large: bool) -> Iterator[Finding]:
    every = {p: r for p, r in matrix_ratios(case).items() if p.stack != OUTSIDE}
    stacks = sorted({place.stack for place in every})
    if len(stacks) > 1 and common_factor(every.values(), within=1.3) is None:
        for stack in stacks:
            group = {place: ratio for place, ratio in every.items() if place.stack == stack}
            yield from _of_group(case, rule, group, large=large, stack=stack)
    else:
        yield from _of_group(case, rule, every, large=large)


def _of_group(
    case: Case, rule: Rule, inside: dict[CasePlace, float], *, large: bool, stack: str | None = None
) -> Iterator[Finding]:
    """The factor that all matrices of the model, or of one stack of several, share."""
    ratios = matrix_ratios(case) if stack is None else inside
    factor = against_twin = common_factor(inside.values(), within=1.3)
    source, expected = "the twin, drawn anew", ""
    setting: dict[str, object] = {}
    init = case.fact("initializer", {})
    if factor is not None and 1 / 1.3 < factor < 1.3 and init.get("usual"):
        # The twin follows the same configuration: ask what its class draws by itself.
        factor *= init["value"] / init["usual"]
        source = f"{init['name']} of the class by itself, {init['usual']}"
        expected = f" ({init['name']} is {init['value']:g})"
        setting = {"name": init["name"], "value": init["usual"]}
    elif factor is None and not inside:
        factor, source = _by_law(case), "weights that keep the size of their input"
    if factor is None or not (factor >= FACTOR if large else factor <= 1 / FACTOR):
        return
    fresh = has_fresh_constants(case)
    if fresh is False or (fresh is None and large and _enlargement(case) < USUAL):
        return
    example = next(iter(inside), None) or next(
        (p for p in case.values("weights.rms") if p.stack != OUTSIDE and is_matrix(case, p)), None
    )
    if example is None:
        return
    value = case.values("weights.rms")[example]
    name = case.parameter(example)
    size = f"{factor:.3g} times too large" if large else f"{1 / factor:.3g} times too small"
    yield rule.finding(
        f"All weights{f' of the {stack}' if stack else ''} were drawn {size}{expected}.",
        stack=stack,
        parameter=name,
        evidence=[
            Evidence(f"rms of {name}", value, value / factor, source),
            Evidence("matrices that are off by this factor", float(len(inside))),
        ],
        ruled_out=["training: it changes the size of matrices by different factors"],
        cause="a wrong spread in the initialisation",
        remedy=Remedy(
            f"Draw all weights again with a spread {max(factor, 1 / factor):.3g} times "
            f"{'smaller' if large else 'larger'}.",
            edit={"edit": "rescale-initialisation" if setting else "scale-tensors",
                  **setting, "factor": 1 / factor,
                  "parameters": [
                      case.parameter(place)
                      for place, ratio in ratios.items()
                      # Embeddings and heads that were drawn with the others are off with them.
                      if place in inside or 1 / 1.3 < ratio / (against_twin or 1.0) < 1.3
                  ]},
        ),
        quantity="weights.rms",
    )  # fmt: skip


def _by_law(case: Case) -> float | None:
    """Without a twin: how much the matrices of a fresh model enlarge inputs, where it is too much.

    Only weights whose rows differ as independent draws do are fresh.
    """
    spreads = case.values("weights.row_spread")
    for place in _linear(case):
        columns = case.fact("tensors")[case.parameter(place)]["shape"][-1]
        if spreads.get(place, 1.0) > 1.3 / math.sqrt(2 * columns):
            return None
    middle = _enlargement(case)
    return middle if middle > GAIN else None


def _linear(case: Case) -> list[CasePlace]:
    kinds = "linear", "conv1d"
    return [
        place
        for place in case.values("weights.rms")
        if place.stack != OUTSIDE and kind_of(case, case.parameter(place)) in kinds
        and is_matrix(case, place)
    ]  # fmt: skip


def _enlargement(case: Case) -> float:
    """The size of what the matrices of blocks make of inputs of size 1, the median."""
    sizes = case.values("weights.rms")
    gains = [sizes[p] * math.sqrt(inputs_of(case, case.parameter(p))) for p in _linear(case)]
    return median(gains) if gains else 0.0
