"""A forward pass taken apart by path length: the components themselves, as arrays."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import leadline
from leadline.claims.collapse._stacks import attention_network
from leadline.instruments.passes.running import batch_for, call
from leadline.instruments.paths.carried.carried import Journey
from leadline.instruments.paths.carried.model_pass import carry_through

__all__ = ["Heads", "components", "enumerated", "forward", "heads_of", "path_network"]

Matrix = NDArray[np.float64]
Heads = list[list[tuple[Matrix, ...]]]


def path_network(seed: int, *, depth: int, width: int, heads: int, **fields: Any) -> Any:
    """A network of attention whose weights are all drawn, and biases where it has them."""
    chosen = {"attention": "multihead(causal=false, bias=false)"} | fields
    model = attention_network(seed, depth=depth, width=width, heads=heads, **chosen)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.copy_(noise / math.sqrt(width) if parameter.ndim > 1 else 1.0 + 0.3 * noise)
    return model


def components(model: Any, x: torch.Tensor) -> tuple[Matrix, Matrix | None, Matrix]:
    """Z_l and B_l [length, token, width] (None: no biases), and the last stream, of one example."""
    batch = batch_for(model, x, 0)
    stack = leadline.anatomy_of(model, batch).stacks[0]
    with torch.no_grad():
        passed = carry_through(model, stack, lambda: call(model, batch), Journey())
        parts = passed.stream.parts
        assert parts is not None
        inputs = parts.inputs.hold()
        sources = None if parts.sources is None else parts.sources.hold()
    return (
        inputs[:, 0].numpy(),
        None if sources is None else sources[:, 0].numpy(),
        passed.stream.value[0].numpy(),
    )


def heads_of(model: Any, width: int, heads: int) -> Heads:
    """(W_Q, W_K, W_h) of every layer and head, without biases; they act from the right."""
    size = width // heads
    found: Heads = []
    for block in model.blocks:
        branch = block.attention.branch
        q, k, v = (w.detach().numpy().T for w in branch.qkv.weight.split(width))
        out = branch.output.weight.detach().numpy().T
        cuts = [slice(h * size, (h + 1) * size) for h in range(heads)]
        found.append([(q[:, c], k[:, c], v[:, c] @ out[c]) for c in cuts])
    return found


def forward(x: Matrix, layers: Heads, *, skip: bool) -> tuple[Matrix, list[list[Matrix]]]:
    """The output, and the pattern of every layer and head, by hand."""
    patterns: list[list[Matrix]] = []
    for layer in layers:
        here = [_pattern(x, q, k) for q, k, _ in layer]
        after = x.copy() if skip else np.zeros_like(x)
        for pattern, (_, _, weights) in zip(here, layer, strict=True):
            after += pattern @ x @ weights
        x = after
        patterns.append(here)
    return x, patterns


def enumerated(
    x: Matrix, layers: Heads, patterns: list[list[Matrix]], *, skip: bool
) -> tuple[list[Matrix], list[int], float]:
    """The sum of all paths of each length, their number, and how far rows of P_path miss 1."""
    sums = [np.zeros_like(x) for _ in range(len(layers) + 1)]
    counts, worst = [0] * (len(layers) + 1), 0.0
    for path in itertools.product(range(0 if skip else 1, len(layers[0]) + 1), repeat=len(layers)):
        mixed, y = np.eye(len(x)), x
        for at, head in enumerate(path):
            if head:
                mixed = patterns[at][head - 1] @ mixed
                y = y @ layers[at][head - 1][2]
        hops = sum(head > 0 for head in path)
        sums[hops] = sums[hops] + mixed @ y
        counts[hops] += 1
        worst = max(worst, float(np.abs(mixed.sum(1) - 1.0).max()))
    return sums, counts, worst


def _pattern(x: Matrix, query: Matrix, key: Matrix) -> Matrix:
    logits = (x @ query) @ (x @ key).T / math.sqrt(query.shape[1])
    weights = np.exp(logits - logits.max(1, keepdims=True))
    return weights / weights.sum(1, keepdims=True)
