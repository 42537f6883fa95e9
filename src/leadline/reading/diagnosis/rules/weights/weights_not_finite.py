"""W10: a weight is infinite or no number."""

from __future__ import annotations

from collections.abc import Iterator

from leadline.reading.diagnosis.case import Case
from leadline.reading.diagnosis.rule import Evidence, Remedy, Rule, rule
from leadline.reading.diagnosis.tensors import role_of, site_text
from leadline.record.rows.finding import Finding


@rule(
    "W10",
    "weights-not-finite",
    severity="serious",
    basis="identity",
    needs=("weights.rms",),
    summary="A weight tensor holds infinities or values that are no numbers.",
    why="Everything after it in the pass is not finite, and so is every gradient.",
    is_not="Masks, which are buffers and hold -inf by right.",
    false_alarms="None is known: a weight that is not finite is never meant.",
    remedy="Go back to a checkpoint from before, find the step whose gradient was not finite, and skip "
    "or clip it.",
    sources=(
        "https://github.com/karpathy/nanoGPT/issues/167",
        "https://github.com/kyutai-labs/pocket-tts/pull/262",
    ),
    explains=(
        "not-finite", "weights-foreign", "weights-scale-odd", "loss-worse-than-uniform",
        "loss-worse-than-unigram", "gradient-exploding", "stream-exploding", "float16-overflow",
        "gradient-cut", "mask-row-empty", "tokens-equal", "parameters-unused", "write-lost",
        "residual-missing", "residual-from-wrong-point", "random-in-evaluation", "examples-mixed",
        "future-leaks", "past-unreached",
    ),
    example="weight-nan",
)  # fmt: skip
def weights_not_finite(case: Case, rule: Rule) -> Iterator[Finding]:
    """Every tensor with such values."""
    for place, count in case.values("weights.not_finite").items():
        name = case.parameter(place)
        layers = [place.layer] if place.layer else []
        at = site_text(case, place.stack, layers)
        values = "1 value" if count == 1 else f"{count:.0f} values"
        verdict = f"{values} of {name} in {at} {'is' if count == 1 else 'are'} not finite."
        yield rule.finding(
            verdict,
            stack=place.stack if layers else None,
            layers=layers,
            sublayer=role_of(case, place.stack, place.layer, name) if layers else None,
            parameter=name,
            evidence=[Evidence(f"values of {name} that are not finite", count, 0.0, "any weight")],
            cause="a step with a gradient that was not finite, or an overflow in a cast",
            remedy=Remedy(f"Restore {name} from a checkpoint in which it is finite."),
            quantity="weights.not_finite",
        )
