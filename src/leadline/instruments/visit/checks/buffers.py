"""Buffers that are constants of the design, against those of the twin and against what they must be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from leadline.instruments.visit.check import VisitFact, check
from leadline.instruments.visit.patient import Patient

__all__ = ["buffers"]

LEARNED = ("running_", "num_batches", "layer_scalar", "correction_bias", "codebook", "_ema")
"""Names of buffers that training changes: a twin says nothing about them."""
SCALES = ("embed_scale", "scalar_embed_scale", "attention_scaling", "embed_scale_value")
"""Numbers of modules that scale what passes, kept as plain attributes."""
AGREEMENT = 1e-2
"""Buffers further apart than this, relative to the twin's, differ: bfloat16 rounds by 4e-3."""


@check("buffers", facts=("buffers",))
def buffers(patient: Patient) -> Iterator[VisitFact]:
    """For every float buffer: its size, whether it is finite, and whether the twin has the same."""
    twins = {} if patient.twin is None else dict(patient.twin.named_buffers())
    facts: dict[str, Any] = {}
    for name, buffer in patient.model.named_buffers():
        if not buffer.is_floating_point() or not buffer.numel() or buffer.is_meta:
            continue
        if any(word in name.rpartition(".")[2] for word in LEARNED):
            continue
        facts[name] = _described(buffer, twins.get(name)) | _frequencies(name, buffer)
    if patient.twin is not None:
        facts |= _scales(patient.model, patient.twin)
    yield VisitFact("buffers", facts)


def _described(buffer: Tensor, twin: Tensor | None) -> dict[str, Any]:
    values = buffer.detach().double()
    finite = bool(torch.isfinite(values).all())
    # Masks hold -inf by right.
    masked = bool((torch.isfinite(values) | (values == -torch.inf)).all())
    facts: dict[str, Any] = {
        "shape": list(buffer.shape),
        "finite": finite or masked,
        "rms": float(values.square().mean().sqrt()) if finite else None,
        "zero": not bool(values.any()),
    }
    if twin is not None and twin.shape == buffer.shape:
        other = twin.detach().double()
        facts["twin_rms"] = float(other.square().mean().sqrt()) if finite else None
        facts["equal"] = _close(values, other)
    return facts


def _close(values: Tensor, twin: Tensor) -> bool:
    """Equal to rounding of half precision, place by place."""
    same = values == twin
    near = (values - twin).abs() <= AGREEMENT * twin.abs()
    return bool((same | near).all())


def _frequencies(name: str, buffer: Tensor) -> dict[str, Any]:
    """Whether rotary frequencies are what they must be: in (0, 1], falling, the first one 1."""
    if not name.endswith("inv_freq") or buffer.ndim != 1 or buffer.numel() < 2:
        return {}
    values = buffer.detach().double()
    falling = bool((values.diff() <= 0).all() and (values > 0).all() and (values <= 1.01).all())
    return {"frequencies": falling}


def _scales(model: nn.Module, twin: nn.Module) -> dict[str, Any]:
    """Scales that are plain attributes of modules, where they are unlike those of the twin."""
    twins = dict(twin.named_modules())
    facts: dict[str, Any] = {}
    for path, module in model.named_modules():
        other = twins.get(path)
        for name in SCALES:
            mine, theirs = getattr(module, name, None), getattr(other, name, None)
            if isinstance(mine, int | float) and isinstance(theirs, int | float):
                facts[f"{path}.{name}" if path else name] = {
                    "shape": [],
                    "finite": True,
                    "rms": abs(float(mine)),
                    "twin_rms": abs(float(theirs)),
                    "equal": abs(mine - theirs) <= AGREEMENT * abs(theirs),
                    "zero": mine == 0,
                }
    return facts
