"""What GPT-2's start gives to bounds: the facts of one attention layer at its real width.

Width 768, 12 heads, drawn by the init `gpt2`; queries and keys are drawn alike in all layers, so one
layer stands for all of them. Measured by the probe `attention` on a few tokens; the number of tokens
in the facts is set afterwards.
"""

from __future__ import annotations

from dataclasses import replace

from leadline.theory import AttentionFacts

__all__ = ["gpt2_start"]


def gpt2_start(seed: int, *, tokens: int) -> AttentionFacts:
    """The facts of a layer of GPT-2 small before training, for a text of `tokens` tokens."""
    from leadline.instruments.passes.measurement import measure
    from leadline.models.inputs import random_tokens
    from leadline.parts import Recipe, Transformer
    from leadline.reading.bounds.attention_facts import attention_sublayers, facts_of

    recipe = Recipe.named("gpt2").but(depth=1, mlp="none", vocabulary=64, context=8)
    model = Transformer(recipe, seed=seed)
    ids = random_tokens(model, examples=1, length=8, seed=seed)
    record = measure(model, ids, probes="attention", seed=seed)
    seen = attention_sublayers(record)
    facts = facts_of(record, seen)[seen[0].address, None][0]
    return replace(facts, queries=tokens, keys=tokens)
