"""Rank collapse with and without skip connections and MLPs: what can be chosen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leadline.errors import InputError, Progress
from leadline.experiments.experiment import (
    EXPERIMENTS,
    INPUT,
    NETWORK,
    ExperimentOptions,
    option,
    shared_option,
)

if TYPE_CHECKING:
    from typing import Self

    from leadline.experiments.outcome.outcome import Outcome

__all__ = ["RankCollapseOptions"]

OF_NETWORKS = ("depth", "width", "heads", "causal", "norm", "samples")
"""The options that describe random networks, and mean nothing where models are named."""
TOKENS_OF_MODELS = 32


@EXPERIMENTS.register("rank-collapse")
@dataclass(frozen=True)
class RankCollapseOptions(ExperimentOptions):
    """How far tokens still differ, with skip and MLP on and off: float32 beside the truth.

    Without MODEL, the long note's experiment: random networks in four variants. With models, each
    of them as trained and with skip and MLP switched off one at a time.
    """

    group = NETWORK
    redoes = "figure 8 of the deep-dive note"
    work = "leadline.experiments.rank_collapse.experiment:rank_collapse"
    beginning = "Building the networks"

    models: tuple[str, ...] = shared_option(())
    depth: int = option(12, "Layers.", least=1)
    width: int = option(128, "Features.", least=1)
    heads: int = option(1, "Heads.", least=1)
    causal: bool = option(False, "Hide later tokens.")
    norm: str = option(
        "layernorm", "What stands before attention and MLP: layernorm, rmsnorm or none."
    )
    tokens: int = option(
        10, f"Tokens: {{default}}, or {TOKENS_OF_MODELS} with MODEL.", group=INPUT, least=2
    )
    samples: int = option(32, "How many inputs to draw.", group=INPUT, least=1)
    dtype: str | None = shared_option(None)
    device: str = shared_option("cpu")

    @classmethod
    def from_command_line(cls, chosen: Mapping[str, Any], *, quick: bool = False) -> Self:
        """Refuse options of random networks beside models, which have other numbers of tokens."""
        if chosen.get("models"):
            if described := [f"--{name}" for name in OF_NETWORKS if name in chosen]:
                raise InputError(
                    f"{', '.join(described)} describe the random networks, and models were given; "
                    "leave one of them out."
                )
            chosen = {"tokens": TOKENS_OF_MODELS, **chosen}
        return super().from_command_line(chosen, quick=quick)

    def check(self) -> None:
        """Refuse what cannot be built, with what to change."""
        from leadline.experiments.rank_collapse.note_block import NORMS

        super().check()
        if self.width % self.heads:
            raise InputError(
                f"The width {self.width} cannot be divided among {self.heads} heads; change one."
            )
        if self.norm not in NORMS:
            raise InputError(f"norm is {self.norm!r}; choose {', '.join(NORMS)}.")

    def run(
        self, *, folder: Path | None, progress: Progress, tell: Callable[[str], None]
    ) -> Outcome:
        """Follow the models, or random networks where none are named."""
        if not self.models:
            return self.function()(self, progress=progress)
        from leadline.experiments.materials.named_models import loaders
        from leadline.experiments.rank_collapse.switched_off import switched_off

        return switched_off(
            loaders(self.models, dtype=self.dtype, device=self.device, seed=self.seed),
            tokens=self.tokens,
            seed=self.seed,
            progress=progress,
        )
