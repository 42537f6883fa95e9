"""Fine-tuning with and without adapters, and what the first task loses: what can be chosen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leadline.errors import InputError
from leadline.experiments.experiment import EXPERIMENTS, TRAINING, ExperimentOptions, option

if TYPE_CHECKING:
    from leadline.parts import Recipe

__all__ = ["DESIGNS", "FineTuningOptions"]

DESIGNS: dict[str, Callable[[float], dict[str, str]]] = {
    "pre-norm": lambda r: {"placement": "pre", "connection": f"weighted(alpha={1.0 / r})"},
    "post-norm": lambda r: {"placement": "post", "connection": f"lambda_skip(value={float(r)})"},
}
"""The fields of a recipe with the residual weight r."""


@EXPERIMENTS.register("fine-tuning")
@dataclass(frozen=True)
class FineTuningOptions(ExperimentOptions):
    """Does a strong residual keep LoRA, adapters or a second task from being learned?

    Models whose stream has a weight from 0.25 to 4 are trained on a text and adapted to the same
    text read backwards. Needs the extra tune.
    """

    group = TRAINING
    redoes = "when a residual hinders, in the summary note"
    work = "leadline.experiments.fine_tuning.experiment:fine_tuning"
    quick_text = "About a minute."

    base: int = option(
        300, "Steps of training before adaptation", name="--base-steps", quick=120, least=1
    )
    steps: int = option(120, "Steps of adaptation", quick=50, least=1)
    rank: int = option(4, "Rank of LoRA, and features of an adapter.", least=1)
    seeds: int = option(3, "How often each model is trained", quick=1, least=1)
    weights: tuple[float, ...] = option((0.25, 0.5, 1.0, 2.0, 4.0), quick=(0.5, 1.0, 4.0))
    """The weights of the residual."""
    depth: int = option(4, least=1)
    width: int = 64
    heads: int = 4
    length: int = 32
    batch: int = 16
    examples: int = 64

    def check(self) -> None:
        """Refuse what cannot be done, with what to change."""
        super().check()
        if (
            len(self.weights) < 2
            or min(self.weights) <= 0.0
            or list(self.weights) != sorted(set(self.weights))
            or 1.0 not in self.weights
        ):
            raise InputError(
                f"The residual weights are {list(self.weights)}; give at least two above 0, the "
                "smallest first, with 1 among them."
            )

    def recipe(self, design: str, weight: float) -> Recipe:
        """The model of a design with a residual weight."""
        from leadline.parts import Recipe

        plain = Recipe(depth=self.depth, width=self.width, heads=self.heads, init="xavier")
        return plain.but(init="xavier", **DESIGNS[design](weight))
