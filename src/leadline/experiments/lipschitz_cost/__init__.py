"""What a large Lipschitz constant of the MLPs costs: what can be chosen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leadline.errors import Progress
from leadline.experiments.experiment import EXPERIMENTS, ExperimentOptions

if TYPE_CHECKING:
    from leadline.experiments.lipschitz_cost.experiment import lipschitz_cost
    from leadline.experiments.outcome.outcome import Outcome

__all__ = ["LipschitzCostOptions", "lipschitz_cost"]


@EXPERIMENTS.register("lipschitz-cost")
@dataclass(frozen=True)
class LipschitzCostOptions(ExperimentOptions):
    """Does a large Lipschitz constant of the MLP slow collapse, and what does it cost?

    MLP weights are scaled by 0.5, 1, 2 and 4; measured are the change of the output per change of
    the input, the variance of the gradient over batches, and the residual by layer.
    """

    redoes = "the price of a strong MLP in the deep-dive note"
    work = "leadline.experiments.lipschitz_cost.experiment:lipschitz_cost"
    beginning = "Building the networks"

    def run(
        self, *, folder: Path | None, progress: Progress, tell: Callable[[str], None]
    ) -> Outcome:
        """Measure networks of the sizes that the function has as defaults."""
        return self.function()(seed=self.seed, progress=progress)


def __getattr__(name: str) -> Any:
    if name == "lipschitz_cost":  # the function needs torch, and the catalog imports this file
        return LipschitzCostOptions.function()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
