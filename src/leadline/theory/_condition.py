"""An assumption of a theorem, checked on the facts at hand."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Condition", "assume"]


@dataclass(frozen=True, slots=True)
class Condition:
    """One assumption of a theorem, and whether it holds for the facts at hand.

    `because` says what was found where it does not hold: "the mask is causal".
    """

    assumption: str
    holds: bool
    because: str = ""


def assume(assumption: str, holds: bool, otherwise: str) -> Condition:
    """State an assumption; `otherwise` says what was found if it does not hold."""
    return Condition(assumption, holds, "" if holds else otherwise)
