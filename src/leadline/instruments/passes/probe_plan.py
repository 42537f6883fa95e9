"""Merge what the probes need into the fewest passes: one forward, and one backward if needed.

Probes of linear maps come after them, block by block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from leadline.catalog import Choice, split_choices
from leadline.errors import ProbeError
from leadline.instruments.passes.probe import LINEAR, PROBES, SIGHTS, Sight
from leadline.record import Quantity

__all__ = ["DEFAULT", "Plan", "plan"]

DEFAULT = ("stream", "tokens", "rank", "update", "gradient", "influence", "memory", "lanes")
"""Every probe that costs next to nothing beside one forward and one backward pass."""


@dataclass(frozen=True)
class Plan:
    """Probes sorted by what they see."""

    choices: tuple[Choice, ...]
    probes: tuple[Any, ...]

    def seeing(self, sight: Sight) -> list[Any]:
        return [probe for probe in self.probes if sight in probe.sees]

    @property
    def backward(self) -> bool:
        return bool(self.seeing("gradient") or self.seeing("parameters"))

    @property
    def branches(self) -> bool:
        """Whether the weights of the branches must be found."""
        return bool(self.seeing("heads") or self.seeing("perceptron"))

    @property
    def attention(self) -> bool:
        """Whether attention must be seen."""
        return bool(self.seeing("attention")) or self.branches

    @property
    def linear(self) -> list[Any]:
        """The probes that see blocks as linear maps."""
        return [probe for probe in self.probes if set(LINEAR) & set(probe.sees)]

    @property
    def quantities(self) -> list[Quantity]:
        return [quantity for probe in self.probes for quantity in probe.quantities]


def plan(
    probes: str | Sequence[str | Choice | Mapping[str, Any]] | None = None,
) -> Plan:
    """The plan for the named probes; None means the default set, "all" every probe there is.

    The name "default" stands for the default set: "default,attention" adds one to it.
    """
    if probes is None:
        choices = [Choice(name) for name in DEFAULT]
    elif isinstance(probes, str):
        choices = split_choices(probes) if probes.strip() else []
    elif isinstance(probes, Sequence):
        choices = [Choice.parse(probe) for probe in probes]
    else:
        raise ProbeError(
            f"Probes are named by a text or a list of names, not by a {type(probes).__name__}."
        )
    if [c.name for c in choices] == ["all"]:
        choices = [Choice(name) for name in PROBES.names()]
    choices = [
        one
        for choice in choices
        for one in ([Choice(name) for name in DEFAULT] if choice == Choice("default") else [choice])
    ]
    if not choices:
        raise ProbeError(f"No probe was asked for. Known: {', '.join(PROBES.names())}.")
    names = [choice.name for choice in choices]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ProbeError(f"The probe {twice[0]!r} was asked for twice; name each probe once.")
    built = tuple(PROBES.build(choice) for choice in choices)
    for choice, probe in zip(choices, built, strict=True):
        _check_sights(choice.name, probe)
    return Plan(tuple(choices), built)


def _check_sights(name: str, probe: object) -> None:
    """Refuse a probe that does not say what it sees, or has no method for it."""
    methods = [sight for sight in SIGHTS if callable(getattr(probe, sight, None))]
    if not methods:
        raise ProbeError(
            f"The probe {name!r} has none of the methods {', '.join(SIGHTS)}, "
            "so it would measure nothing."
        )
    quantities = getattr(probe, "quantities", None)
    if not isinstance(quantities, tuple) or not all(isinstance(q, Quantity) for q in quantities):
        raise ProbeError(
            f"The probe {name!r} does not say what it measures: write `quantities = (...,)` with "
            "its leadline.Quantity definitions into its class."
        )
    missing = [one for one in ("steps", "gives") if not callable(getattr(probe, one, None))]
    if missing and set(LINEAR) & set(methods):
        raise ProbeError(
            f"The probe {name!r} sees blocks as linear maps and has no {' and no '.join(missing)}: "
            "derive its class from leadline.instruments.passes.probe.LinearProbe and write them."
        )
    sees = getattr(probe, "sees", None)
    if isinstance(sees, tuple) and sees and set(sees) <= set(methods):
        return
    declared = f"sees = ({', '.join(map(repr, methods))},)"
    said = "does not say what it sees" if sees is None else f"says that it sees {sees!r}"
    raise ProbeError(
        f"The probe {name!r} {said}, and it has the methods {', '.join(methods)}: "
        f"write `{declared}` into its class."
    )
