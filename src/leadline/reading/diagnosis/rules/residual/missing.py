"""R01: the output of a branch takes the place of the stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from leadline.reading.diagnosis.case import Case
from leadline.reading.diagnosis.equations import (
    branch_words,
    grouped_faults,
    missed_layers,
    place_words,
)
from leadline.reading.diagnosis.rule import Evidence, Remedy, Rule, rule
from leadline.reading.diagnosis.tensors import lost_branches
from leadline.record.rows.finding import Finding


@rule(
    "R01",
    "residual-missing",
    severity="serious",
    basis="identity",
    needs=("block_faults",),
    summary="A branch whose output replaces the stream, because the addition of the stream is missing.",
    why=(
        "Without the skip a layer keeps nothing of what came before it. Tokens become equal doubly "
        "exponentially with depth, and the gradient of earlier layers goes through every weight."
    ),
    is_not=(
        "Not a design that adds the stream outside of its blocks, and not a block whose branch adds "
        "the stream inside: both are seen and left alone."
    ),
    false_alarms="A Transformer that is meant to have no skip connections gets this finding by right.",
    remedy="Write `x = x + branch(x)`. The remedy adds the input of the branch's block to its output.",
    sources=(
        "Dong, Cordonnier, Loukas 2021, arXiv 2103.03404",
        "He et al. 2015, arXiv 1512.03385",
        "https://github.com/kyegomez/BitNet/issues/32",
    ),
    explains=("positions-unused", "past-unreached", "future-leaks", "positions-wrong",
        "residual-doubled", "residual-from-wrong-point", "write-lost", "residual-weight-odd",
        "norm-missing", "norm-misplaced", "tokens-equal", "gradient-vanishing", "gradient-exploding",
        "stream-exploding", "writes-drowned", "first-writes-too-large", "depth-unused", "write-dead",
        "loss-worse-than-uniform", "loss-worse-than-unigram", "unlike-its-family",
        "not-as-intended", "attention-uniform", "init-too-small",
    ),
    example="skip-missing-mlp",
)  # fmt: skip
def residual_missing(case: Case, rule: Rule) -> Iterator[Finding]:
    """Blocks that do not balance and whose output is a sum without the stream."""
    missed = missed_layers(case)
    proved = {(one["stack"], one["layer"]) for one in case.layers if one["sublayers"]}

    def is_fault(fault: Mapping[str, Any]) -> bool:
        # A module that is named after the residual adds it inside.
        inside = "resid" in fault["branch"].removeprefix(fault["module"])
        place = fault["stack"], fault["layer"]
        # A block whose update is lost hands on what came before it: that is no branch's output.
        lost = not fault["certain"] and place in lost_branches(case)
        return place not in proved and not inside and not lost

    for faults in grouped_faults(case, ("skip-missing", "skip-multiplied"), keep=is_fault):
        first = faults[0]
        stack, layers = first["stack"], [one["layer"] for one in faults]
        who = branch_words(first["role"], first["branch"])
        place = place_words(case, stack, layers)
        eps = missed.get((stack, first["layer"]))
        evidence = [
            Evidence(f"output of {first['module']}", first["output"], "x + ...", "least squares")
        ]
        if eps is not None:
            evidence.append(
                Evidence("miss of x + updates, in eps", eps, "at most 4", "rounding of the stream")
            )
        product = first["kind"] == "skip-multiplied"
        sign = "`x *` stands where `x +` should" if product else "`x +` is missing"
        does = "is multiplied with the stream" if product else "replaces the stream"
        yield rule.finding(
            f"The output of {who} in {place} {does}: {sign} ({first['branch']}).",
            stack=stack,
            layers=layers,
            sublayer=first["role"],
            parameter=first["branch"],
            evidence=evidence,
            ruled_out=[
                "randomness: two runs of the block on the same input give the same output",
                "the stream added outside: what leaves the block is what enters the next",
            ],
            cause=f"the forward of {first['class']} does not add its input to what "
            f"'{first['branch']}' returns",
            remedy=Remedy(
                f"In the forward of {first['class']} write x = x + {_short(first)}(...).",
                edit={
                    "edit": "add-residuals",
                    "modules": [one["branch"] for one in faults],
                    "reads": [one["reads"] or None for one in faults],
                }
                if not product
                else {},
            ),
            confidence="certain" if first["certain"] else "likely",
        )


def _short(fault: Mapping[str, Any]) -> str:
    branch, module = fault["branch"], fault["module"]
    return f"self.{branch.removeprefix(f'{module}.')}"
