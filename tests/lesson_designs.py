"""Designs of the playground, measured: what the figures of lessons are held to."""

import dataclasses
from functools import cache

import numpy as np
import torch

import leadline as ll

DEFAULTS = {
    "connection": "identity",
    "placement": "pre",
    "norm": "layernorm",
    "init": "auto",
    "mask": "causal",
    "mlp": "gelu_tanh",
    "positions": "learned",
    "depth": 24,
    "width": 64,
    "heads": 4,
    "gain": 1.0,
    "text": "The sea is deep, and a line tells how deep.",
    "seed": 0,
}
MOST_TOKENS = 64
WRITING = ("output.weight", "down.weight")
"""How the matrices that write to the stream end, which the gain multiplies."""
PROBES = {
    "stream.norm": "stream",
    "gradient.stream": "gradient",
    "tokens.cosine": "tokens",
    "attention.spectral_norm": "attention",
    "jacobian.distance": "jacobian",
}


def recipe_of(design):
    """The recipe of a design; raises a RecipeError where it cannot be built."""
    full = DEFAULTS | design
    assert set(full) == set(DEFAULTS)
    return ll.Recipe(
        attention="multihead" if full["mask"] == "causal" else "multihead(causal=false)",
        init=None if full["init"] == "auto" else full["init"],
        vocabulary=256,
        context=MOST_TOKENS,
        **{
            field.name: full[field.name]
            for field in dataclasses.fields(ll.Recipe)
            if field.name in full and field.name != "init"
        },
    )


def curve_of(design, quantity):
    """The values of one quantity over depth; a residual is returned as its log10."""
    return _curve(tuple(sorted((DEFAULTS | design).items())), quantity)


@cache
def _curve(items, quantity):
    design = dict(items)
    model = ll.Transformer(recipe_of(design), seed=design["seed"])
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(WRITING):
                parameter.mul_(design["gain"])
    tokens = torch.tensor([list(design["text"].encode())[:MOST_TOKENS]])
    if quantity == "tokens.relative_residual":
        return np.asarray(ll.collapse(model, tokens).collapse.log10_relative, dtype=float)
    record = ll.measure(model, tokens, probes=[PROBES[quantity]])
    return np.asarray(record.by_layer(quantity).values, dtype=float)


def number_of(design, quantity, read):
    """One number of a curve, read as a lesson says."""
    values = curve_of(design, quantity)
    if quantity == "tokens.relative_residual":
        if read == "log10 last":
            return values[-1]
        values = 10.0**values
    first, last, least, largest = values[0], values[-1], values.min(), values.max()
    return {
        "first": first,
        "last": last,
        "least": least,
        "largest": largest,
        "first over last": first / last,
        "last over first": last / first,
        "largest over least": largest / least,
    }[read]
