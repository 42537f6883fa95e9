"""Options of learning-identity."""

from __future__ import annotations

import math
from dataclasses import dataclass

from leadline.errors import InputError
from leadline.experiments.experiment import EXPERIMENTS, TRAINING, ExperimentOptions, option

__all__ = ["READINGS", "LearningIdentityOptions"]

READINGS = 50
"""So many times the error is read during the training."""


@EXPERIMENTS.register("learning-identity")
@dataclass(frozen=True)
class LearningIdentityOptions(ExperimentOptions):
    """Is it easier to learn F = 0 or F = x? Blocks trained to be the identity, in seconds.

    One ReLU block and a row of them, with and without skip, from two starts.
    """

    group = TRAINING
    redoes = "the exercise of the card note"
    work = "leadline.experiments.learning_identity:learning_identity"
    beginning = "Drawing the blocks"

    blocks: int = option(12, "Blocks of the row that is trained beside the single block.", least=2)
    width: int = option(32, "Features.", least=1)
    steps: int = option(400, "Training steps.", least=1)
    seeds: int = option(5, "How often each is trained.", least=1)
    batch: int = option(64, least=1)
    rate: float = 1e-3

    def check(self) -> None:
        """Refuse what cannot be trained, with what to change."""
        super().check()
        if self.seed < 0:
            raise InputError(f"seed is {self.seed}; give a whole number from 0 on.")
        if not (self.rate > 0 and math.isfinite(self.rate)):
            raise InputError(f"rate is {self.rate}; give a learning rate above 0.")

    @property
    def readings(self) -> tuple[int, ...]:
        """The steps at which the error is read, the first and the last among them."""
        count = min(READINGS, self.steps)
        return tuple(sorted({round(k * self.steps / count) for k in range(count + 1)}))
