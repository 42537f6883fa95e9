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
from leadline.web.playground.verdict_words import PLACES, Phrase, sentence_of

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


@dataclass(frozen=True)
class PlayVerdict:
    """How severe, in a sentence, and what the rules found.

    `about` and `said` are the phrases of the sentence; `said` is empty where a rule's own words stand
    in it.
    """

    level: Level
    sentence: str
    findings: tuple[Finding, ...] = ()
    about: tuple[Phrase, ...] = ()
    said: tuple[Phrase, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "level": self.level,
            "sentence": self.sentence,
            "about": [one.to_json() for one in self.about],
            "said": [one.to_json() for one in self.said],
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
    about = _about(measured)
    if (broken := measured.facts.get("not_finite")) and (said := _overflow(broken)):
        return PlayVerdict("serious", sentence_of(about, said), (), about, said)
    record = gauge_record(measured.gauges, measured.provenance, trained=trained)
    findings = tuple(ask_rules(record, select=("D",)).findings)
    if not findings:
        level, said = _healthy(measured.gauges)
        return PlayVerdict(level, sentence_of(about, said), (), about, said)
    order = {"serious": 0, "warning": 1, "note": 2}
    worst = min(
        findings,
        key=lambda one: (
            order[one.severity],
            FIRST.index(one.name) if one.name in FIRST else len(FIRST),
        ),
    )
    said = _said_trained(worst, measured) if trained else _said(worst, measured, findings)
    sentence = sentence_of(about, said) if said else f"{sentence_of(about, ())[:-1]}{_own(worst)}"
    return PlayVerdict(worst.severity, sentence, findings, about, said)


def _about(measured: DesignCurves) -> tuple[Phrase, ...]:
    """Placement or connection, and the depth: what the sentence is about."""
    design = measured.design
    name = Choice.parse(design.placement).name
    place = Phrase(f"place.{name}") if name in PLACES else Phrase("place", {"name": name})
    phrases = [Phrase("no-norms") if design.norm == "none" else place]
    connection = Choice.parse(design.connection).name
    if connection == "none":
        phrases.append(Phrase("no-shortcut"))
    elif connection != "identity":
        phrases.append(Phrase("connection", {"name": connection}))
    return (*phrases, Phrase("layers", {"n": design.depth}))


def _said(
    worst: Finding, measured: DesignCurves, findings: tuple[Finding, ...]
) -> tuple[Phrase, ...]:
    """What was found and what to do; nothing where a rule has no shorter words."""
    design = measured.design
    shortcut = Choice.parse(design.connection).name != "none"
    post = "post" in Choice.parse(design.placement).name
    if worst.name == "tokens-equal":
        starved = any(one.name == "gradient-vanishing" for one in findings)
        what = Phrase(
            "equal-starved" if starved else "equal", {"layer": min(worst.layers, default=1)}
        )
        remedy = "warm-up-or-before" if post else "smaller-branches"
        return what, Phrase(remedy if shortcut else "add-shortcut")
    if worst.name == "gradient-vanishing":
        # The rule's own number: a gradient may vanish by the stream, or by what reaches the weights.
        evidence = worst.evidence[0]
        in_weights = str(evidence["what"]).startswith("gradient of the parameters")
        what = Phrase(
            "vanishes-in-weights" if in_weights else "vanishes",
            {"layer": min(worst.layers), "share": number(float(evidence["value"]), digits=2)},
        )
        remedy = "before-or-deepnorm" if post else "keep-stream"
        return what, Phrase(remedy if shortcut else "add-shortcut")
    if worst.name == "gradient-exploding":
        share = _gradient_share(measured.gauges)
        return Phrase("explodes", {"share": share}), Phrase("norm-or-gain")
    if worst.name == "stream-exploding":
        norms = measured.gauges.stream_norm
        grown = norms[-1] / norms[1] if norms[1] > 0 else math.inf
        times = number(grown, digits=2)
        return Phrase("stream-grows", {"times": times}), Phrase("norm-or-gain")
    if worst.name == "post-norm-deep":
        return Phrase("post-deep"), Phrase("warm-up-or-before")
    return ()


def _said_trained(worst: Finding, measured: DesignCurves) -> tuple[Phrase, ...]:
    """The one thing that training often does here; of others the rule itself says what to do."""
    if worst.name != "tokens-equal":
        return ()
    shortcut = Choice.parse(measured.design.connection).name != "none"
    equal = Phrase("equal", {"layer": min(worst.layers, default=1)})
    return equal, Phrase("start-again" if shortcut else "add-shortcut")


def _own(worst: Finding) -> str:
    """A finding in its rule's own words, for the end of a sentence."""
    remedy = str(worst.remedy.get("words", "")).rstrip(".")
    said = worst.verdict.rstrip(".")
    said = said[:1].lower() + said[1:]
    return f"{said}; {remedy[:1].lower()}{remedy[1:]}." if remedy else f"{said}."


def _gradient_share(gauges: PlayGauges) -> str:
    """|g| |x| of layer 1 over the last layer's, as the rules compare them."""
    free = [g * x for g, x in zip(gauges.gradient, gauges.stream_norm, strict=True)]
    return "none" if free[-1] == 0 else number(free[1] / free[-1], digits=2)


def _overflow(broken: dict[str, int]) -> tuple[Phrase, ...]:
    """Numbers that left float32; a curve that is only not defined says nothing here."""
    for quantity, key in (
        ("stream.norm", "stream-overflows"),
        ("gradient.stream", "gradient-overflows"),
    ):
        if quantity in broken:
            return Phrase(key, {"layer": broken[quantity]}), Phrase("norm-or-gain")
    return ()


def _healthy(gauges: PlayGauges) -> tuple[Level, tuple[Phrase, ...]]:
    """What is worth knowing where no rule found anything."""
    top = gauges.gradient[-1]
    share = gauges.gradient[1] / top if top > 0 else math.nan
    written = number(share, digits=2)
    shares = [value for line in gauges.update_ratio for value in line.values]
    if all(value < SILENT for value in shares if math.isfinite(value)):
        if abs(share - 1) < STEADY:
            return "healthy", (Phrase("healthy"), Phrase("silent-passes"))
        return "note", (Phrase("silent"), Phrase("silent-leaves", {"share": written}))
    left = f"{10 ** gauges.residual.log10[-1]:.0%}"
    return "healthy", (Phrase("healthy"), Phrase("passes", {"share": written, "left": left}))
