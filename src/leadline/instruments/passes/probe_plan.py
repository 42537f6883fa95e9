"""Merge what the probes need into the fewest passes: one forward, and one backward if needed.

Probes of linear maps come after them, block by block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from leadline.catalog import Choice, split_choices
from leadline.errors import ProbeError
from leadline.instruments.passes.probe import PROBES
from leadline.record import Quantity

__all__ = ["DEFAULT", "Plan", "plan"]

DEFAULT = ("stream", "tokens", "rank", "update", "gradient", "influence", "memory", "lanes")
"""Every probe that costs next to nothing beside one forward and one backward pass."""

_METHODS = (
    "stream",
    "update",
    "block",
    "gradient",
    "parameters",
    "attention",
    "heads",
    "perceptron",
    "linear",
    "chain",
    "product",
)
LINEAR = ("linear", "chain", "product")
"""Methods that see blocks as linear maps, after the passes."""


@dataclass(frozen=True)
class Plan:
    """Probes sorted by the method that they have."""

    choices: tuple[Choice, ...]
    probes: tuple[Any, ...]

    def having(self, method: str) -> list[Any]:
        return [probe for probe in self.probes if hasattr(probe, method)]

    @property
    def backward(self) -> bool:
        return bool(self.having("gradient") or self.having("parameters"))

    @property
    def branches(self) -> bool:
        """Whether the weights of the branches must be found."""
        return bool(self.having("heads") or self.having("perceptron"))

    @property
    def attention(self) -> bool:
        """Whether attention must be seen."""
        return bool(self.having("attention")) or self.branches

    @property
    def linear(self) -> list[Any]:
        """The probes that see blocks as linear maps."""
        return [probe for probe in self.probes if any(hasattr(probe, name) for name in LINEAR)]

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
        if not any(hasattr(probe, method) for method in _METHODS):
            raise ProbeError(
                f"The probe {choice.name!r} has none of the methods {', '.join(_METHODS)}, "
                "so it would measure nothing."
            )
    return Plan(tuple(choices), built)
