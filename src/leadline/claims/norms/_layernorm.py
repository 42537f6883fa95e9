"""LayerNorm of the parts catalog on single tokens: its output and its Jacobian by autograd."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

__all__ = ["applied", "by_autograd", "layernorm", "tokens"]


def tokens(seed: int, key: int, *, count: int, width: int, std: float = 1.0) -> Array:
    """Tokens [count, width] of normal features with mean zero, brought to exactly this std."""
    rng = np.random.default_rng([seed, key])
    x = rng.standard_normal((count, width))
    x = x - x.mean(axis=1, keepdims=True)
    return std * x / np.sqrt((x**2).mean(axis=1, keepdims=True))


def layernorm(
    width: int, *, gamma: Array | None = None, beta: Array | None = None, eps: float = 1e-5
) -> Any:
    """The LayerNorm of the parts catalog in float64, with this gain and shift."""
    import torch

    from leadline.parts.norms import NORMS

    norm = NORMS.get("layernorm")(width, eps=eps).double()
    with torch.no_grad():
        if gamma is not None:
            norm.weight.copy_(torch.from_numpy(gamma))
        if beta is not None:
            norm.bias.copy_(torch.from_numpy(beta))
    return norm


def applied(
    x: Array, *, gamma: Array | None = None, beta: Array | None = None, eps: float = 1e-5
) -> Array:
    """What it makes of tokens [..., width]."""
    import torch

    with torch.no_grad():
        norm = layernorm(x.shape[-1], gamma=gamma, beta=beta, eps=eps)
        return norm(torch.from_numpy(np.ascontiguousarray(x))).numpy()


def by_autograd(
    x: Array, *, gamma: Array | None = None, beta: Array | None = None, eps: float = 1e-5
) -> Array:
    """Its Jacobian [d, d] at one token, row by row by autograd."""
    import torch

    norm = layernorm(len(x), gamma=gamma, beta=beta, eps=eps)
    found = torch.autograd.functional.jacobian(norm, torch.from_numpy(np.ascontiguousarray(x)))
    assert isinstance(found, torch.Tensor)
    return found.detach().numpy()
