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
    except Exception:  # it needs more than its input, so it cannot be tested
        return None
    if once.shape != (2, width) or not torch.isfinite(once).all():
        return None
    if not torch.allclose(once, far, rtol=AGREE, atol=AGREE * float(once.abs().max())):
        return None
    gain = ((once[0] - once[1]) / 2).abs()
    shift = (once[0] + once[1]) / 2
    if not _within(quiet, gain, shift, like):
        return None
    return NormReach(
        path, ((once[0] - once[1]) / 2).abs().double(), ((once[0] + once[1]) / 2).double()
    )


def _within(norm: nn.Module, gain: Tensor, shift: Tensor, like: Tensor) -> bool:
    """Whether answers to other vectors are gain * u + shift with |u| <= sqrt(width) too.

    Random ones, one feature alone, half of them: a norm that looks at some features only, or
    divides by another mean, gives itself away.
    """
    width = like.shape[-1]
    rows = _other_rows(width).to(like) * _LARGE
    with torch._C.DisableTorchFunction(), torch.no_grad():
        answers = norm(rows.unsqueeze(1)).float().reshape(len(rows), -1)
    reach = torch.where(gain > 0, (answers - shift) / gain, 0.0)
    longest = torch.linalg.vector_norm(reach, dim=-1).max()
    return bool(longest <= width**0.5 * (1 + AGREE))


@lru_cache(maxsize=4)
def _other_rows(width: int) -> Tensor:
    """The other vectors, [row, feature]; the norms of a model share them."""
    random_rows = torch.randn(_PROBED, width, generator=torch.Generator().manual_seed(0))
    single = torch.zeros(_PROBED, width)
    single[torch.arange(_PROBED), torch.linspace(0, width - 1, _PROBED).long()] = 1
    first_half = torch.arange(width) < width // 2
    return torch.cat([random_rows, single, random_rows * first_half, random_rows * ~first_half])
