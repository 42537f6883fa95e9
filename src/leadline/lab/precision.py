"""In which number type a run computes.

bfloat16 under autocast pays where the processor multiplies in it and the matrices are wide: on a
processor without such units, or with a narrow model, converting costs more than the products
save. `auto` takes it from a width of 256 on, on a GPU or a processor that has the units, and
float32 otherwise. Weights and moments stay in float32.
"""

from __future__ import annotations

import torch

__all__ = ["WIDE", "bfloat16_units", "choose_precision"]

WIDE = 256
"""The least width at which `auto` takes bfloat16."""


def choose_precision(precision: str, *, width: int | None, device: torch.device) -> str:
    """Return float32 or bfloat16 for a precision that is one of these or auto."""
    if precision != "auto":
        return precision
    pays = width is not None and width >= WIDE and bfloat16_units(device)
    return "bfloat16" if pays else "float32"


def bfloat16_units(device: torch.device) -> bool:
    """Whether the device multiplies in bfloat16."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if device.type != "cpu":
        return False
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
