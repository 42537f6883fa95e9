"""W09: a buffer that is a constant of the design does not hold it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from leadline.reading.diagnosis.case import Case
from leadline.reading.diagnosis.rule import Evidence, Remedy, Rule, rule
from leadline.record.rows.finding import Finding

_OF_DESIGN = ("inv_freq", "embed_scale", "attention_scaling", "slopes", "sinusoid", "positions")
"""Buffers that follow from the configuration alone; others may be drawn at random."""


@rule(
    "W09",
    "buffer-wrong",
    severity="serious",
    basis="identity",
    needs=("buffers",),
    summary="A constant of the design (rotary frequencies, the scale of the embedding) is not what the "
    "configuration makes it.",
    why="Buffers that are not saved with the weights hold whatever memory held when a model was made "
    "without values and filled from a file.",
    is_not="Buffers that training changes, masks with -inf, frequencies scaled by the configuration.",
    false_alarms="Frequencies that were changed by hand for longer contexts, without the "
    "configuration.",
    remedy="Compute the buffer again from the configuration.",
    sources=(
        "https://github.com/huggingface/transformers/issues/48892",
        "https://github.com/huggingface/transformers/issues/34234",
    ),
    explains=(
        "positions-wrong", "positions-unused", "rotary-precision", "not-finite",
        "embedding-scale-wrong", "loss-worse-than-uniform", "loss-worse-than-unigram",
        "writes-drowned", "first-writes-too-large", "stream-exploding", "attention-saturated",
        "weights-layout-wrong", "gradient-exploding",
    ),
    example="frequencies-garbage",
)  # fmt: skip
def buffer_wrong(case: Case, rule: Rule) -> Iterator[Finding]:
    """Every buffer that is wrong, with what it should be."""
    for name, facts in case.fact("buffers", {}).items():
        fault = _fault(name, facts)
        if fault is None and facts.get("zero") and _switches_off(case, name):
            fault = (
                "is 0, and with it every write of its layer",
                [Evidence(f"rms of {name}", 0.0, "not 0", "weights that get no gradient")],
            )
        if fault is None:
            continue
        what, evidence = fault
        yield rule.finding(
            f"The buffer {name} {what}.",
            parameter=name,
            evidence=evidence,
            cause="a model built on the meta device or with to_empty() and filled from a file that "
            "does not hold its buffers; or a scale that was changed by hand",
            remedy=Remedy(
                f"Compute {name} again from the configuration, after loading.",
                edit={"edit": "copy-buffer", "buffer": name} if "equal" in facts else {},
            ),
        )


def _switches_off(case: Case, name: str) -> bool:
    """Whether a buffer that is 0 stands in a block none of whose matrices is, and yet gets no gradient."""
    stack, layer = case.place_of(name)
    if stack is None:
        return False
    zero = set(case.fact("gradients", {}).get("zero", ()))
    shapes = case.fact("tensors", {})
    paths = [
        case.parameter(one)
        for one, rms in case.values("weights.rms").items()
        if (one.stack, one.layer) == (stack, layer) and rms > 0
    ]
    matrices = [path for path in paths if len(shapes.get(path, {}).get("shape", ())) > 1]
    return bool(matrices) and all(path in zero for path in matrices)


def _fault(name: str, facts: dict[str, Any]) -> tuple[str, list[Evidence]] | None:
    if not facts["finite"]:
        return "is not finite", [Evidence(f"{name} is finite", "no", "yes", "any buffer")]
    # Partial rotation fills up with zeros: where the twin has the same, the design has them.
    if facts.get("frequencies") is False and not facts.get("equal"):
        zero = " (it is 0 throughout)" if facts.get("zero") else ""
        return (
            f"holds no rotary frequencies: they fall from 1 and stay above 0{zero}",
            [Evidence(f"rms of {name}", facts["rms"], facts.get("twin_rms") or "", "the twin")],
        )
    if facts.get("equal") is False and any(word in name for word in _OF_DESIGN):
        return (
            "is not what the configuration makes it",
            [Evidence(f"rms of {name}", facts["rms"], facts["twin_rms"], "the twin")],
        )
    return None
