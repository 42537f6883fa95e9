"""The verdict on a design: one sentence, from what the rules of the diagnosis find.

The rules about depth look at the numbers of the playground; their thresholds decide, and this module
only says in fewer words what they found, where, and what a knob of the playground does about it.

    Post-norm, 48 layers: tokens become equal by layer 20; train with a warm-up, or place norms before.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from leadline.catalog import Choice
from leadline.reading.diagnosis.diagnosis import ask_rules
from leadline.reading.show.wording import number
from leadline.web.playground.gauge_record import gauge_record

if TYPE_CHECKING:
    from leadline.record.rows.finding import Finding
    from leadline.web.playground.curves import DesignCurves
    from leadline.web.playground.gauges import PlayGauges

__all__ = ["PlayVerdict", "verdict_on"]

Level = Literal["serious", "warning", "note", "healthy"]
FIRST = (
    "gradient-exploding", "stream-exploding", "tokens-equal", "gradient-vanishing", "post-norm-deep",
)  # fmt: skip
"""Which finding is said where several are equally severe: causes before what follows from them."""
SILENT = 1e-6
"""Branches that write less than this share of the stream, in every layer, are switched off."""

STEADY = 0.01
"""A gradient that changes by less on its way down passes as it is."""

_PLACEMENTS = {
    "pre": "Pre-norm",
    "post": "Post-norm",
    "none": "No norms around the branches",
    "parallel": "Attention and MLP side by side",
    "output": "Norms on the branches' outputs",
    "sandwich": "Norms before and after the branches",
    "layernorm_scaling": "Pre-norm, scaled by 1/sqrt(layer)",
    "hybrid": "Hybrid norms",
    "keel": "Keel's norms",
    "mix": "Post-norm below, pre-norm above",
    "normformer": "NormFormer's norms",
    "subln": "Sub-LN",
}


@dataclass(frozen=True)
class PlayVerdict:
    """How severe, in a sentence, and what the rules found."""

    level: Level
    sentence: str
    findings: tuple[Finding, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "level": self.level,
            "sentence": self.sentence,
            "findings": [
                {
                    "code": one.code,
                    "name": one.name,
                    "severity": one.severity,
                    "sentence": one.verdict,
                    "layers": list(one.layers),
                    "do": str(one.remedy.get("words", "")),
                }
                for one in self.findings
            ],
        }


def verdict_on(measured: DesignCurves, *, trained: bool = False) -> PlayVerdict:
    """Ask the rules about depth; `trained` says that the weights have moved since they were drawn."""
    subject = _subject(measured)
    if (broken := measured.facts.get("not_finite")) and (said := _overflow(broken)):
        return PlayVerdict("serious", f"{subject}: {said}")
    record = gauge_record(measured.gauges, measured.provenance, trained=trained)
    findings = ask_rules(record, select=("D",)).findings
    if not findings:
        level, said = _healthy(measured.gauges)
        return PlayVerdict(level, f"{subject}: {said}")
    order = {"serious": 0, "warning": 1, "note": 2}
    worst = min(
        findings,
        key=lambda one: (
            order[one.severity],
            FIRST.index(one.name) if one.name in FIRST else len(FIRST),
        ),
    )
    return PlayVerdict(
        worst.severity,
        f"{subject}: {_said(worst, measured, findings, trained=trained)}",
        tuple(findings),
    )


def _subject(measured: DesignCurves) -> str:
    """Placement or connection, and the depth: what the sentence is about."""
    design = measured.design
    placement = Choice.parse(design.placement).name
    words = _PLACEMENTS.get(placement, f"Placement {placement}")
    if design.norm == "none":
        words = "No norms"
    connection = Choice.parse(design.connection).name
    if connection == "none":
        words += ", no shortcut"
    elif connection != "identity":
        words += f", connection {connection}"
    return f"{words}, {design.depth} layers"


def _said(
    worst: Finding, measured: DesignCurves, findings: tuple[Finding, ...], *, trained: bool
) -> str:
    """What was found and what to do; of a trained model the rule itself says what to do."""
    design = measured.design
    shortcut = Choice.parse(design.connection).name != "none"
    post = "post" in Choice.parse(design.placement).name
    if worst.name == "tokens-equal" and not trained:
        first = min(worst.layers, default=1)
        what = f"tokens become equal by layer {first}"
        if any(one.name == "gradient-vanishing" for one in findings):
            what += ", and the gradient does not reach the first layers"
        if not shortcut:
            return f"{what}; add a shortcut around every branch."
        if post:
            return f"{what}; train with a warm-up, or place the norms before the branches."
        return f"{what}; make the branches smaller, or keep more of the stream."
    if worst.name == "gradient-vanishing" and not trained:
        # The rule's own number: a gradient may vanish by the stream, or by what reaches the weights.
        evidence = worst.evidence[0]
        share = number(float(evidence["value"]), digits=2)
        of_weights = str(evidence["what"]).startswith("gradient of the parameters")
        how = "in its weights" if of_weights else "size for size"
        what = (
            f"the gradient vanishes on its way down: layer {min(worst.layers)} gets {share} of the "
            f"last layer's, {how}"
        )
        if not shortcut:
            return f"{what}; add a shortcut around every branch."
        if post:
            return f"{what}; place the norms before the branches, or use the connection deepnorm."
        return f"{what}; let the shortcut keep the whole stream."
    if worst.name == "gradient-exploding" and not trained:
        share = _gradient_share(measured.gauges)
        what = f"the gradient explodes on its way down: layer 1 gets {share} times the last layer's, size for size"
        return f"{what}; place a norm before every branch, or turn the gain down."
    if worst.name == "stream-exploding" and not trained:
        norms = measured.gauges.stream_norm
        grown = norms[-1] / norms[1] if norms[1] > 0 else math.inf
        return (
            f"the stream grows {number(grown, digits=2)}-fold; place a norm before every branch, or turn the gain "
            "down."
        )
    if worst.name == "post-norm-deep" and not trained:
        return (
            "the last layers' gradient does not fall with depth; train with a warm-up, or place the "
            "norms before the branches."
        )
    # A rule that the playground has no shorter words for says it itself.
    remedy = str(worst.remedy.get("words", "")).rstrip(".")
    said = worst.verdict.rstrip(".")
    said = said[:1].lower() + said[1:]
    return f"{said}; {remedy[:1].lower()}{remedy[1:]}." if remedy else f"{said}."


def _gradient_share(gauges: PlayGauges) -> str:
    """|g| |x| of layer 1 over the last layer's, as the rules compare them."""
    free = [g * x for g, x in zip(gauges.gradient, gauges.stream_norm, strict=True)]
    return "none" if free[-1] == 0 else number(free[1] / free[-1], digits=2)


def _overflow(broken: dict[str, int]) -> str:
    """Numbers that left float32; a curve that is only not defined says nothing here."""
    for quantity, what in (
        ("stream.norm", "the stream leaves the range of float32 in layer {}"),
        ("gradient.stream", "the gradient leaves the range of float32 at layer {}"),
    ):
        if quantity in broken:
            where = what.format(broken[quantity])
            return f"{where}; place a norm before every branch, or turn the gain down."
    return ""


def _healthy(gauges: PlayGauges) -> tuple[Level, str]:
    """What is worth knowing where no rule found anything."""
    top = gauges.gradient[-1]
    share = gauges.gradient[1] / top if top > 0 else math.nan
    shares = [value for line in gauges.update_ratio for value in line.values]
    if all(value < SILENT for value in shares if math.isfinite(value)):
        silent = "every branch is silent at the start, so each block is the shortcut alone"
        if abs(share - 1) < STEADY:
            return "healthy", f"healthy; {silent} and the gradient passes as it is."
        return (
            "note",
            f"{silent}; it leaves layer 1 with {number(share, digits=2)} of the last layer's gradient.",
        )
    left = 10 ** gauges.residual.log10[-1]
    return "healthy", (
        f"healthy; layer 1 gets {number(share, digits=2)} times the last layer's gradient, and tokens still differ "
        f"by {left:.0%} of their size at the top."
    )
