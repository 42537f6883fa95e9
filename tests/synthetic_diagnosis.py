"""Trial rules and findings made by hand, for the tests of what shows them: no model, no torch."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from leadline.reading.diagnosis.case import Case
from leadline.reading.diagnosis.rule import RULES, Evidence, Remedy, Rule, rule
from leadline.record import Finding, Quantity, Reading, Record, Site

NORMS = Quantity(
    "update.norm", "Norm of the update", "|u|", "|u|", lives_on="sublayer", scale="log"
)


def register_trial_rules() -> None:
    """Enter four rules: an identity, an outlier that it explains, a note, one that cannot look."""

    @rule(
        "Z01",
        "trial-dead",
        severity="serious",
        basis="identity",
        needs=("update.norm",),
        summary="A write that is zero.",
        why="It does nothing.",
        is_not="A design that starts at zero.",
        false_alarms="None is known.",
        remedy="Load the weights again.",
        sources=("A paper, 2024",),
        explains=("trial-odd",),
        example="dead-write",
    )
    def dead(case: Case, rule: Rule) -> Iterator[Finding]:
        for (stack, role), line in case.lines("update.norm").items():
            for layer, value in line.items():
                if value == 0:
                    yield rule.finding(
                        f"The {role} of {stack} layer {layer} writes nothing.",
                        stack=stack,
                        layers=[layer],
                        sublayer=role,
                        parameter=f"blocks.{layer - 1}.{role}",
                        evidence=[Evidence("norm of the update", 0.0, 2.0, "the nearest layers")],
                        ruled_out=["a design that starts at zero: other layers write"],
                        cause="Its weights are zero.",
                        remedy=Remedy(
                            "Load the weights again.",
                            edit={"edit": "redraw-tensor", "parameter": "w", "std": 0.02},
                        ),
                    )

    @rule(
        "Z02",
        "trial-odd",
        severity="warning",
        basis="neighbours",
        needs=("update.norm",),
        summary="A write unlike its neighbours.",
        why="It drowns the others.",
    )
    def odd(case: Case, rule: Rule) -> Iterator[Finding]:
        for (stack, role), line in case.lines("update.norm").items():
            for layer, value in line.items():
                if value == 0 or value > 50:
                    yield rule.finding(
                        f"The {role} of {stack} layer {layer} is unlike its neighbours.",
                        stack=stack,
                        layers=[layer],
                        sublayer=role,
                        cause="Its weights are large.",
                        remedy="Compare its weights with the checkpoint.",
                    )

    @rule(
        "Y01",
        "trial-note",
        severity="note",
        basis="hint",
        needs=("update.norm",),
        summary="Something worth knowing.",
        why="It may matter.",
    )
    def note(case: Case, rule: Rule) -> Iterator[Finding]:
        if max(case.values("update.norm").values()) > 3:
            yield rule.finding("Some update is larger than 3.")

    @rule(
        "Y02",
        "trial-blind",
        severity="serious",
        basis="twin",
        needs=("nothing.like_this",),
        summary="Something that no record shows.",
        why="Nobody knows.",
    )
    def blind(case: Case, rule: Rule) -> Iterator[Finding]:
        yield from ()


@pytest.fixture
def trial_rules(monkeypatch):
    """The catalog with the trial rules alone."""
    monkeypatch.setattr(RULES, "_loaded", True)
    monkeypatch.setattr(RULES, "_entries", {})
    register_trial_rules()


def record_of(*norms: float, name: str = "tiny") -> Record:
    """A record of one decoder whose MLPs write updates of these norms."""
    record = Record()
    record.describe(NORMS)
    record.append(
        Reading("update.norm", Site("decoder", layer, 1, "mlp"), "mean", norm)
        for layer, norm in enumerate(norms, start=1)
    )
    record.note("model", {"name": name, "class": "Tiny", "parameters": 10})
    return record
