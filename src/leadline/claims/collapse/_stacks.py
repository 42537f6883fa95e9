"""Small self-attention networks that several claims are measured on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import leadline
from leadline.instruments.collapse.measure import collapse_weights
from leadline.instruments.collapse.result import Collapse

__all__ = [
    "attention_network",
    "composite",
    "drawn_layers",
    "drawn_tokens",
    "norm_keeping",
    "residual",
    "stream",
    "swapping_layers",
    "two_tokens",
]

Matrix = NDArray[np.float64]
Layer = dict[str, Any]


def composite(a: Matrix) -> float:
    """sqrt(|A|_1 |A|_inf), by hand: beside the product's own."""
    sizes = np.abs(a)
    return math.sqrt(float(sizes.sum(0).max()) * float(sizes.sum(1).max()))


def residual(x: Matrix) -> Matrix:
    """X - 1x' with x the mean token, by hand."""
    return x - x.mean(0, keepdims=True)


def drawn_tokens(seed: int, *, tokens: int = 8, width: int = 16) -> Matrix:
    """Tokens with normal entries."""
    return np.random.default_rng([seed, tokens, width]).normal(size=(tokens, width))


def drawn_layers(seed: int, *, depth: int, width: int = 16) -> list[Layer]:
    """Layers whose four matrices have normal entries of variance 1/width."""
    rng = np.random.default_rng([seed, depth, width, 4])
    return [
        {name: rng.normal(size=(width, width)) / math.sqrt(width) for name in _MATRICES}
        for _ in range(depth)
    ]


def norm_keeping(layers: Sequence[Layer], *, sharpness: float) -> list[Layer]:
    """The same layers with an orthogonal W_V, W_O = 1, and queries times `sharpness`."""
    width = len(layers[0]["W_V"])
    return [
        {
            "W_Q": sharpness * layer["W_Q"],
            "W_K": layer["W_K"],
            "W_V": np.linalg.qr(layer["W_V"])[0],
            "W_O": np.eye(width),
        }
        for layer in layers
    ]


def swapping_layers(*, depth: int, tokens: int, sharpness: float) -> tuple[Matrix, list[Layer]]:
    """One-hot tokens and layers in which every token attends to the next one alone."""
    one = np.eye(tokens)
    turned = np.roll(one, 1, axis=1)
    layer = {"W_Q": sharpness * turned, "W_K": one, "W_V": one, "W_O": one}
    return one, [layer] * depth


def two_tokens(start: float, *, query_key: float, value: float, depth: int) -> Collapse:
    """Tokens +a and -a of width one, with the facts that bounds ask for: a -> w a tanh(tau a^2)."""

    def number(of: float) -> Matrix:
        return np.array([[of]])

    layer = {
        "W_Q": number(query_key),
        "W_K": number(1.0),
        "W_V": number(value),
        "W_O": number(1.0),
    }
    return collapse_weights(np.array([[start], [-start]]), [layer] * depth, facts=True)


def attention_network(seed: int, **fields: Any) -> Any:
    """A Transformer of attention alone in float64 that takes the stream itself, with no mask."""
    chosen: dict[str, Any] = {
        "attention": "multihead(causal=false)",
        "mlp": "none",
        "norm": "none",
        "placement": "none",
        "embedding": "none",
        "positions": "none",
        "head": "none",
        "init": "xavier",
    } | fields
    return leadline.Transformer(seed=seed, **chosen).double().eval()


def stream(seed: int, *, tokens: int, width: int) -> torch.Tensor:
    """The drawn tokens as one example for a model."""
    return torch.from_numpy(drawn_tokens(seed, tokens=tokens, width=width)).unsqueeze(0)


_MATRICES = ("W_Q", "W_K", "W_V", "W_O")
