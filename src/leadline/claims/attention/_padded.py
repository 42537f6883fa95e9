"""The note's experiment on attention norms, with padding removed and with padding kept.

One trial per seed: `reproduce.attention_spectra` on two small untrained models, one built like GPT-1
and one like GPT-2, for random sentences of 1 to 5 and of 12 to 18 tokens. The seed draws both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.claims.catalog import Trial

__all__ = ["PADDED"]

SENTENCES = 64


def _run(seed: int) -> Mapping[str, Any]:
    from leadline.experiments.attention_spectra import attention_spectra
    from leadline.models.loading import LoadedModel
    from leadline.parts import Recipe, Transformer

    def small(name: str) -> LoadedModel:
        recipe = Recipe.named(name).but(
            depth=4, width=64, heads=4, vocabulary=200, context=32, init="xavier"
        )
        return LoadedModel(Transformer(recipe, seed=seed), name, "claims")

    outcome = attention_spectra(
        {name: lambda name=name: small(name) for name in ("gpt1", "gpt2")},
        count=SENTENCES,
        as_in_the_note=True,
        seed=seed,
    )
    return {
        f"{line.name}; {line.panel}": {
            "values": list(line.values),
            "most_possible": line.facts["most_possible"],
        }
        for line in outcome.lines
    }


PADDED = Trial("attention-padded-sentences", _run, seconds=2.0)
