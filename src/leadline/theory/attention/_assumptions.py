"""Assumptions that several bounds share, each checked on the facts, with what was found."""

from __future__ import annotations

from leadline.theory._condition import Condition, assume
from leadline.theory.attention._bound import AttentionFacts

__all__ = ["every_key_is_seen", "full_lower_triangle", "rows_at_most_one", "square"]


def every_key_is_seen(facts: AttentionFacts) -> Condition:
    """Check that there is no mask."""
    return assume("every query sees every key", facts.mask == "none", _mask_in_words(facts))


def full_lower_triangle(facts: AttentionFacts) -> Condition:
    """Check that the mask is the plain causal one: no window, no second document."""
    return assume(
        "query i sees keys 1 to i, all of them", facts.mask == "causal", _mask_in_words(facts)
    )


def rows_at_most_one(facts: AttentionFacts) -> Condition:
    """Check that the weights are those of a softmax, or less."""
    return assume(
        "no weight is negative and rows sum to at most one",
        facts.substochastic,
        "weights are negative, or rows sum to more than one",
    )


def square(facts: AttentionFacts) -> Condition:
    """Check that there are as many queries as keys."""
    counts = f"there are {facts.queries} queries and {facts.keys} keys"
    return assume("there are as many queries as keys", facts.queries == facts.keys, counts)


def _mask_in_words(facts: AttentionFacts) -> str:
    if facts.mask == "none":
        return "there is no mask"
    if facts.mask == "causal":
        return "the mask is causal"
    if not facts.allowed:
        return "the mask is neither empty nor causal"
    least, most = min(facts.allowed), max(facts.allowed)
    span = f"{least}" if least == most else f"{least} to {most}"
    return f"the mask lets a query see {span} of {facts.keys} keys and is not the causal one"
