"""Gain and shift of a norm, read off its answers.

A norm is anything whose class says so and that behaves like one: its output for s v does not
depend on s for large s. Its gain and shift are read off its outputs for v and -v, v = (1, -1, 1,
...), so no convention (weight, 1 + weight) is assumed:

    gain = |f(s v) - f(-s v)| / 2,    shift = (f(s v) + f(-s v)) / 2
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import nn

__all__ = ["AGREE", "NormReach", "looks_like_a_norm", "norm_reach"]

Tensor = torch.Tensor
_PROBED = 8
"""Vectors of each kind with which a norm is tested."""
_LARGE = 100.0
"""So far out that a norm's eps no longer counts, and within the range of float16."""
AGREE = 1e-2
"""Relative difference of two lengths that still counts as rounding, also in bfloat16."""


@dataclass(frozen=True)
class NormReach:
    """What a norm can return: gain * (a vector of norm at most sqrt(width)) + shift, by feature."""

    module: str
    gain: Tensor
    shift: Tensor

    @property
    def width(self) -> int:
        return self.gain.numel()


def looks_like_a_norm(module: nn.Module) -> bool:
    """Whether the class is named like a norm: LayerNorm, LlamaRMSNorm, T5LayerNorm, DyT ..."""
    name = type(module).__name__.lower()
    return "norm" in name or name in ("dyt", "derf", "dynamictanh")


def norm_reach(path: str, module: nn.Module, like: Tensor) -> NormReach | None:
    """Read gain and shift off a norm's answers; None where it does not behave like one."""
    width = like.shape[-1]
    if width < 2 or width % 2:
        # An odd number of features has no alternating vector of mean zero.
        return None
    quiet = copy.copy(module)
    quiet._forward_hooks = type(module._forward_hooks)()
    quiet._forward_pre_hooks = type(module._forward_pre_hooks)()
    signs = torch.ones(width, device=like.device, dtype=like.dtype)
    signs[1::2] = -1
    rows = torch.stack((signs, -signs)).reshape(2, 1, width)
    try:
        with torch._C.DisableTorchFunction(), torch.no_grad():
            once = quiet(rows * _LARGE).float().reshape(2, -1)
            far = quiet(rows * (2 * _LARGE)).float().reshape(2, -1)
        if once.shape != (2, width):
            return None
        gain = ((once[0] - once[1]) / 2).abs()
        shift = (once[0] + once[1]) / 2
        longest = _longest(quiet, gain, shift, like)
    except Exception:  # it needs more than its input, so it cannot be tested
        return None
    like_a_norm = (
        torch.isfinite(once).all()
        & ((once - far).abs() <= AGREE * (once.abs().max() + far.abs())).all()
        & (longest <= width**0.5 * (1 + AGREE))
    )
    return NormReach(path, gain.double(), shift.double()) if bool(like_a_norm) else None


def _longest(norm: nn.Module, gain: Tensor, shift: Tensor, like: Tensor) -> Tensor:
    """The largest |u| among answers gain * u + shift to other vectors; at most sqrt(width) for a norm.

    Random ones, one feature alone, half of them: a norm that looks at some features only, or
    divides by another mean, gives itself away.
    """
    rows = _other_rows(like.shape[-1]).to(like) * _LARGE
    with torch._C.DisableTorchFunction(), torch.no_grad():
        answers = norm(rows.unsqueeze(1)).float().reshape(len(rows), -1)
    reach = torch.where(gain > 0, (answers - shift) / gain, 0.0)
    return torch.linalg.vector_norm(reach, dim=-1).max()


@lru_cache(maxsize=4)
def _other_rows(width: int) -> Tensor:
    """The other vectors, [row, feature]; the norms of a model share them."""
    random_rows = torch.randn(_PROBED, width, generator=torch.Generator().manual_seed(0))
    single = torch.zeros(_PROBED, width)
    single[torch.arange(_PROBED), torch.linspace(0, width - 1, _PROBED).long()] = 1
    first_half = torch.arange(width) < width // 2
    return torch.cat([random_rows, single, random_rows * first_half, random_rows * ~first_half])
