"""How gradients travel through depth, at initialisation and in training: what can be chosen."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leadline.errors import Progress
from leadline.experiments.experiment import (
    EXPERIMENTS,
    TRAINING,
    ExperimentOptions,
    check_depths,
    option,
)

if TYPE_CHECKING:
    from leadline.experiments.gradient_flow.experiment import gradient_flow
    from leadline.experiments.outcome.outcome import Outcome

__all__ = ["GradientFlowOptions", "Setting", "gradient_flow", "steps_of"]

STEPS = ((24, 150), (48, 120))
"""Up to so many layers so many updates; deeper ones get fewer, because a step costs more."""
FEWEST = 80


@EXPERIMENTS.register("gradient-flow")
@dataclass(frozen=True)
class GradientFlowOptions(ExperimentOptions):
    """How do signal and gradient flow through depth? Seven designs before and after training.

    Gradients, stream, tokens and block Jacobians of untrained models with exponents over depth,
    beside the laws; then a short training without warm-up. With -o a run that was cut off goes on.
    """

    redoes = "what the shortcuts and summary notes say of Pre- and Post-LN"
    work = "leadline.experiments.gradient_flow.experiment:gradient_flow"
    quick_text = "Fewer seeds, Jacobians up to 12 layers, 100 steps for up to 24 layers."
    keeps_records = True

    depths: tuple[int, ...] = option(
        (6, 12, 24, 48, 96), "Layers of the models: {default} unless given."
    )
    seeds: int = option(5, "How many untrained models of each kind", quick=3, least=1)
    training_seeds: int = option(3, "How often each is trained", group=TRAINING, quick=1, least=1)
    training: bool = option(
        True, "Train them too, or measure untrained models alone.", group=TRAINING
    )
    workers: int | None = option(
        None, "Trainings at a time; as many as there are cores unless given.", group=TRAINING
    )
    trained_to: int = option(96, quick=24)
    """No deeper model is trained."""
    jacobians_to: int = option(24, quick=12)
    """The Jacobians of the blocks of no deeper model are measured."""
    most_steps: int | None = option(None, quick=100)
    """No training is longer."""
    width: int = option(64, least=1)
    heads: int = option(4, least=1)
    length: int = option(64, least=1)
    examples: int = option(4, least=1)
    jacobian_length: int = 32

    def check(self) -> None:
        """Refuse what cannot be done, with what to change."""
        super().check()
        check_depths(self.depths)

    @property
    def trainings(self) -> dict[int, int]:
        """The depths that are trained, and how many updates they get."""
        if not self.training:
            return {}
        most = math.inf if self.most_steps is None else self.most_steps
        depths = [depth for depth in sorted(set(self.depths)) if depth <= self.trained_to]
        return {depth: int(min(steps_of(depth), most)) for depth in depths}

    def run(
        self, *, folder: Path | None, progress: Progress, tell: Callable[[str], None]
    ) -> Outcome:
        """Measure and train; the record of the trainings is kept in the folder."""
        return self.function()(self, folder=folder, progress=progress)


def steps_of(depth: int) -> int:
    """How many updates a depth gets."""
    return next((steps for most, steps in STEPS if depth <= most), FEWEST)


Setting = GradientFlowOptions
"""What the options were called in version 0.1.0."""


def __getattr__(name: str) -> Any:
    if name == "gradient_flow":  # the function needs torch, and the catalog imports this file
        return GradientFlowOptions.function()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
