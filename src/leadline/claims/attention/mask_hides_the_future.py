"""Minus infinity above the diagonal: no token sees a later one.

exp(-inf) is an exact zero, so neither a weight nor a gradient goes from a later token to an earlier
one: J' u of any u that stands on the first tokens is zero behind them. `leadline.jacobian` proves
it by cutting the text at every place (`numerics.leak`). A model without the mask is set beside it,
so that the proof is seen to be able to fail.
"""

from __future__ import annotations

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check


@claim(
    "mask-hides-the-future",
    group="attention",
    notes=("deep-dive",),
    title="The mask keeps every token from seeing later ones",
    formula=r"A = \mathrm{softmax}(S + M), \quad M_{ij} = -\infty \; (j > i)",
    plain="A = softmax(S + M), M_ij = −∞ for j > i",
    says="Adding minus infinity to the logits of later positions presses their probabilities to "
    "zero, so that token i cannot see positions j > i; the other columns keep their values.",
    correction="",
    why="The gradients of two layers were followed from every token back to the later "
    "ones: they are exactly {leak_masked:.0f} with the mask, and {leak_open} without it. The "
    "exponential of minus infinity is an exact zero, and it stays one through all layers. Among the "
    "keys that remain the weights keep their proportions, to {proportion_error}.",
    checks=(
        Check(
            "leak_masked",
            "claim",
            "at most",
            0.0,
            label="gradient from earlier outputs to later tokens",
            because="An exact zero: a masked weight is exp(-inf) = 0, and zero times a finite "
            "number is zero.",
        ),
        Check(
            "weight_above",
            "claim",
            "at most",
            0.0,
            label="largest weight above the diagonal",
            because="An exact zero, for the same reason.",
        ),
        Check(
            "proportion_error",
            "claim",
            "at most",
            1e-13,
            label="change in the proportions of the remaining weights",
            because="Both are exponentials of the same logits; a few roundings of 1.1e-16 each.",
            log=True,
        ),
        Check(
            "leak_open",
            "claim",
            "at least",
            1e-6,
            label="the same gradient without the mask",
            because="Without a mask something must be seen, or the measurement could not fail.",
            log=True,
        ),
    ),
    seconds=0.4,
)
def measure(seed: int) -> Measured:
    """Look for leaks in a masked and in an open stack, and at the weights themselves."""
    import torch

    from leadline.instruments.jacobian.measure import jacobian
    from leadline.models.inputs import random_tokens
    from leadline.numerics.reference import attention_weights
    from leadline.parts import Transformer

    leaks = []
    for causal in ("true", "false"):
        model = Transformer(
            depth=2,
            width=16,
            heads=2,
            vocabulary=50,
            context=8,
            init="xavier",
            attention=f"multihead(causal={causal})",
            seed=seed,
        ).double()
        ids = random_tokens(model, examples=1, length=8, seed=seed)
        leaks.append(float(jacobian(model, ids, k=1, probes=2, seed=seed).leak))
    generator = torch.Generator().manual_seed(4110 + seed)
    query, key = torch.randn(2, 8, 4, generator=generator, dtype=torch.float64)
    masked = attention_weights(query, key, scaling=0.5, causal=True)
    kept = attention_weights(query, key, scaling=0.5).tril()
    kept = kept / kept.sum(-1, keepdim=True)
    return Measured(
        {
            "leak_masked": leaks[0],
            "leak_open": leaks[1],
            "weight_above": float(masked.triu(1).abs().max()),
            "proportion_error": float((masked - kept).abs().max()),
        }
    )
