"""What an experiment returns, how it is shown and drawn, and the exponents over depth in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leadline.experiments.outcome.outcome import Outcome

__all__ = ["Outcome"]


def __getattr__(name: str) -> Any:
    if name == "Outcome":  # it needs numpy, and the catalog of experiments imports this file
        from leadline.experiments.outcome.outcome import Outcome

        return Outcome
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
