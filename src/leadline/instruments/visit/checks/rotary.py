"""Rotary phases against float64: frequencies that were rounded, angles computed in half precision.

The frequencies of a plain rotation are base^(-2 j / d). A buffer whose every number fits bfloat16 (or
float16) was rounded to it: exact ones do not, but for the powers of two. Where a module computes cosines
from positions, these are compared with cos(position times frequency) in float64 up to the end of the
context.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from leadline.instruments.visit.check import CouldNot, VisitFact, check
from leadline.instruments.visit.patient import Patient
from leadline.models.inputs import context_limit
from leadline.models.inputs.model_facts import forward_names, text_configuration

POSITIONS = 2048
"""Positions looked at where the model names no limit."""
SAMPLES = 64
EXACT, HALF = 8, 16 * 2.0**-7
"""Up to position 8 phases in bfloat16 are off by less than 16 eps of it (8 * 2^-9 is 2 eps)."""


@check("rotary", facts=("rotary",))
def rotary(patient: Patient) -> Iterator[VisitFact | CouldNot]:
    """Look at every buffer of frequencies, and at what modules make of them."""
    limit = context_limit(patient.model) or POSITIONS
    entries: list[dict[str, Any]] = []
    for path, module in patient.model.named_modules():
        for name, buffer in module.named_buffers(recurse=False):
            if "freq" not in name or not _decreasing(buffer) or name.startswith("original"):
                continue
            entry: dict[str, Any] = {
                "buffer": f"{path}.{name}" if path else name,
                "module": path,
                "dtype": str(buffer.dtype).removeprefix("torch."),
                "rounded_to": _rounded_to(buffer),
                "limit": limit,
                "error": _error(patient, module, buffer) * (limit - 1),
                "cosine_error": _cosine_error(module, buffer, limit),
            }
            entries.append(entry)
    if entries:
        yield VisitFact("rotary", entries)
    else:
        yield CouldNot(("rotary",), "the model keeps no frequencies of rotary positions")


def _decreasing(buffer: Tensor) -> bool:
    """Whether it looks like frequencies: one axis, positive, falling."""
    if buffer.ndim != 1 or len(buffer) < 4 or not buffer.is_floating_point():
        return False
    values = buffer.double()
    return bool((values > 0).all()) and bool((values[1:] < values[:-1]).all())


def _rounded_to(buffer: Tensor) -> str | None:
    """The half precision that all numbers fit, unless every one of them is a power of two."""
    values = buffer.float()
    if bool((torch.frexp(values).mantissa == 0.5).all()):
        return None
    for dtype in (torch.bfloat16, torch.float16):
        if torch.equal(values, values.to(dtype).float()):
            return str(dtype).removeprefix("torch.")
    return None


def _base(patient: Patient, module: nn.Module) -> float | None:
    """The base of the frequencies of a plain rotation; None for scaled kinds."""
    kind = getattr(module, "rope_type", "default")
    if kind != "default":
        return None
    for name in ("base", "theta", "rope_theta"):
        value = getattr(module, name, None)
        if isinstance(value, int | float) and value > 1:
            return float(value)
    config = text_configuration(patient.model)
    settings = getattr(config, "rope_parameters", None)
    values = [settings.get("rope_theta") if isinstance(settings, dict) else None]
    values.append(getattr(config, "rope_theta", None))
    return next((float(one) for one in values if isinstance(one, int | float)), None)


def _error(patient: Patient, module: nn.Module, buffer: Tensor) -> float:
    """The largest error of a frequency, radians for each position; 0 where the kind is unknown."""
    base = _base(patient, module)
    if base is None:
        return 0.0
    steps = torch.arange(len(buffer), dtype=torch.float64, device=buffer.device)
    exact = base ** (-steps / len(buffer))
    relative = float((buffer.double() / exact - 1).abs().amax())
    # Other numbers than these, not their rounding: a rule about buffers speaks of those.
    return float((buffer.double() - exact).abs().amax()) if relative < 2**-7 else 0.0


def _cosine_error(module: nn.Module, buffer: Tensor, limit: int) -> float | None:
    """How far cosines that the module makes are from those in float64, beyond the rounding of both."""
    if forward_names(module) != ["x", "position_ids"]:
        return None
    steps = torch.logspace(0, math.log10(max(limit - 1, 2)), SAMPLES, dtype=torch.float64)
    positions = torch.unique(steps.round().long())[None].to(buffer.device)
    sample = torch.zeros(1, 1, 1, dtype=torch.float32, device=buffer.device)
    with torch.no_grad():
        output: Any = module(sample, positions)
    cosines = output[0] if isinstance(output, tuple) else None
    width = len(buffer)
    if not isinstance(cosines, Tensor) or cosines.shape[-1] not in (width, 2 * width):
        return None
    scale = float(getattr(module, "attention_scaling", 1.0) or 1.0)
    exact = (positions[0, :, None].double() * buffer.double()).cos() * scale
    made = cosines.reshape(-1, cosines.shape[-1])
    if made.shape[0] != exact.shape[0]:
        return None
    plain = (made[:, :width].double() - exact).abs()
    if cosines.shape[-1] == 2 * width:  # neighbours may hold the pairs instead of halves
        plain = torch.minimum(plain, (made[:, 0::2].double() - exact).abs())
    if float(plain[positions[0] <= EXACT].amax()) > HALF:
        return None  # other angles from the first positions on: that is no rounding
    rounding = positions[0, :, None].double() * buffer.double() * 2.0**-22
    return float((plain - rounding).clamp_min(0).amax())
