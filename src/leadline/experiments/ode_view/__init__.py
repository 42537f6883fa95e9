"""Residual networks as steps of a differential equation: what can be chosen."""

from __future__ import annotations

import math
from dataclasses import dataclass

from leadline.errors import InputError
from leadline.experiments.experiment import EXPERIMENTS, NETWORK, ExperimentOptions, option

__all__ = ["OdeViewOptions"]

MOST_ROWS = 2048
"""Eigenvalues of larger dense matrices would take minutes each."""


@EXPERIMENTS.register("ode-view")
@dataclass(frozen=True)
class OdeViewOptions(ExperimentOptions):
    """A residual network as an ordinary differential equation: convergence and stability.

    Depth is doubled and the step halved, with and without a norm after each step; eigenvalues of
    blocks stand beside the region of stability of explicit Euler.
    """

    group = NETWORK
    redoes = "the differential equation of the shortcuts note"
    work = "leadline.experiments.ode_view.experiment:ode_view"
    beginning = "Drawing the networks"

    width: int = option(16, "Features.", least=4)
    tokens: int = option(8, "Tokens.", least=1)
    time: float = option(1.0, "For how long the flow is followed.", metavar="T")
    seeds: int = option(3, "How many networks.", least=1)
    connection: str = option(
        "weighted(alpha=depth)",
        "Connection of the design whose spectrum stands beside plain pre-norm.",
    )
    placement: str = option("pre", "Its placement.")
    init: str = option("xavier", "Its init.")

    def check(self) -> None:
        """Refuse what cannot be followed, with what to change."""
        super().check()
        if self.width * self.tokens > MOST_ROWS:
            raise InputError(
                f"width x tokens is {self.width * self.tokens}, and eigenvalues are computed from "
                f"dense matrices of that many rows; stay at {MOST_ROWS} or below."
            )
        if not (self.time > 0 and math.isfinite(self.time)):
            raise InputError(f"time is {self.time}; give a number above 0.")
