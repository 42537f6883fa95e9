"""Training with layers left out, and models that lose layers afterwards: what can be chosen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from leadline.experiments.experiment import EXPERIMENTS, TRAINING, ExperimentOptions, option

if TYPE_CHECKING:
    from leadline.experiments.layer_dropping.experiment import layer_dropping
    from leadline.parts import Recipe

__all__ = ["LayerDroppingOptions", "Setting", "layer_dropping"]


@EXPERIMENTS.register("layer-dropping")
@dataclass(frozen=True)
class LayerDroppingOptions(ExperimentOptions):
    """Can layers be left out? Loss by number of layers dropped, and the time saved in training.

    The same byte-level model is trained plainly, with LayerDrop and with stochastic depth; then
    layers are left out, evenly and at random.
    """

    group = TRAINING
    redoes = "layers turned off, in the card note"
    work = "leadline.experiments.layer_dropping.experiment:layer_dropping"
    quick_text = "Less than a minute."

    depth: int = option(12, "Layers", quick=6, least=2)
    steps: int = option(600, "Training steps", quick=150, least=1)
    seeds: int = option(3, "How often each model is trained", quick=2, least=1)
    draws: int = option(8, quick=4, least=1)
    turns: int = option(12, quick=6, least=1)
    width: int = 64
    heads: int = 4
    length: int = 32
    batch: int = 16
    examples: int = 64

    def recipe(self, connection: str) -> Recipe:
        """The model of a connection."""
        from leadline.parts import Recipe

        return Recipe(
            depth=self.depth,
            width=self.width,
            heads=self.heads,
            connection=connection,
            init="xavier",
        )


Setting = LayerDroppingOptions
"""What the options were called in version 0.1.0."""


def __getattr__(name: str) -> Any:
    if name == "layer_dropping":  # the function needs torch, and the catalog imports this file
        return LayerDroppingOptions.function()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
