"""GPT-2 was trained with a batch size of 512: a fact of a training run, told by its authors."""

from __future__ import annotations

from leadline.claims.catalog import uncheckable

uncheckable(
    "gpt2-batch-size",
    group="attention",
    notes=("deep-dive",),
    title="GPT-2 was trained with a batch size of 512",
    says="The batch size was raised to 512.",
    why="A batch size leaves no trace in a model or in its configuration. It stands in the paper by "
    "Radford et al. (2019), and only a record of the original training could confirm it.",
)
