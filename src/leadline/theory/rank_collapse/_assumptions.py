"""Assumptions that several statements share, each checked on the facts, with what was found."""

from __future__ import annotations

import math

from leadline.theory._condition import Condition, assume
from leadline.theory.rank_collapse._facts import LayerFacts, StackFacts

__all__ = [
    "bidirectional",
    "causal",
    "keeps_stream",
    "layered",
    "no_mlp",
    "no_norm",
    "no_skip",
    "one_head",
    "plain_logits",
    "pure_attention",
    "rows_sum_to_one",
]


def pure_attention(facts: StackFacts) -> list[Condition]:
    """Check what every cubic upper bound assumes of a stack."""
    return [
        bidirectional(facts),
        no_skip(facts),
        no_norm(facts),
        layered(facts),
        *plain_logits(facts),
        rows_sum_to_one(facts),
        _lipschitz_mlp(facts),
    ]


def bidirectional(facts: StackFacts) -> Condition:
    """Check that there is no mask."""
    otherwise = "the mask is causal" if facts.mask == "causal" else "there is a mask"
    return assume("every token sees every token", facts.mask == "none", otherwise)


def causal(facts: StackFacts) -> Condition:
    """Check that the mask is the plain causal one."""
    otherwise = "there is no mask" if facts.mask == "none" else "the mask is not the causal one"
    return assume("token i sees tokens 1 to i, all of them", facts.mask == "causal", otherwise)


def no_skip(facts: StackFacts) -> Condition:
    """Check that no write keeps the stream."""
    return assume("no write keeps the stream", not facts.skip, "there is a skip connection")


def no_norm(facts: StackFacts) -> Condition:
    """Check that no norm stands on the way."""
    return assume("there is no norm", not facts.norm, "there is a norm")


def layered(facts: StackFacts) -> Condition:
    """Check that a layer is what the statements are about."""
    return assume(
        "a layer is one self-attention, then at most one MLP",
        facts.layered,
        "a layer is not one self-attention, then at most one MLP",
    )


def no_mlp(facts: StackFacts) -> Condition:
    """Check that attention is all there is."""
    without = all(layer.lipschitz == 1.0 for layer in facts.layers)
    return assume("there is no MLP", without, "there is an MLP")


def one_head(facts: StackFacts, because: str) -> Condition:
    """Check that every layer has a single head; `because` says what several would spoil."""
    heads = [_heads(layer) for layer in facts.layers]
    most = max(heads, default=1)
    otherwise = f"there are {most} heads, and {because}"
    if most <= 1:
        otherwise = "the weights of its heads are not known"
    return assume("every layer has one head", all(count == 1 for count in heads), otherwise)


def plain_logits(facts: StackFacts) -> list[Condition]:
    """Check that the logits are products of queries and keys and nothing else."""
    return [
        assume("positions do not enter the logits", facts.turned is False, _turned(facts)),
        assume(
            "the logits are products of queries and keys",
            facts.plain,
            "the logits have a soft cap, or queries and keys are normed",
        ),
    ]


def rows_sum_to_one(facts: StackFacts) -> Condition:
    """Check that the patterns are those of a softmax."""
    return assume("every row sums to one", facts.stochastic, "rows do not sum to one")


def keeps_stream(facts: StackFacts) -> Condition:
    """Check that every write is x + u, with no norm after it."""
    if not facts.skip:
        holds, otherwise = False, "no write keeps the stream"
    elif facts.keep is not None:
        holds = facts.keep == 1.0
        otherwise = "a write keeps less or more than the stream, or a norm follows it"
    else:
        holds, otherwise = not facts.norm, "a norm may follow the writes"
    return assume("every write adds to the stream and keeps it whole", holds, otherwise)


def _turned(facts: StackFacts) -> str:
    if facts.turned:
        return "positions enter the logits"
    return (
        "where queries and keys come from was not found, so it is not known whether positions "
        "enter the logits"
    )


def _heads(layer: LayerFacts) -> int:
    """Return how many heads a layer has; 0: not known."""
    tuples = (layer.query_key, layer.value_output_1, layer.value_output_inf, layer.gamma)
    return max(len(numbers) for numbers in tuples)


def _lipschitz_mlp(facts: StackFacts) -> Condition:
    unknown = sum(not _has_lipschitz(layer) for layer in facts.layers)
    return assume(
        "the MLPs have a known Lipschitz constant", not unknown, "the MLP has none that is known"
    )


def _has_lipschitz(layer: LayerFacts) -> bool:
    return layer.lipschitz is not None and not math.isnan(layer.lipschitz)
