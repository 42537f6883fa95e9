"""Where values stop being finite: the first module of one small pass whose output is broken.

A module is named only if what entered it was finite, so that the first one is where it begins. Masks
hold minus infinity by right: only NaN and plus infinity count.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from leadline.instruments.passes.running import call
from leadline.instruments.visit.check import VisitEntry, VisitFact, check
from leadline.instruments.visit.patient import Patient


@check("not-finite", facts=("not_finite",), pass_cost=0.1)
def not_finite(patient: Patient) -> Iterator[VisitEntry]:
    """Name the first module whose output is not finite while its inputs are; None without any."""
    broken: list[dict[str, Any]] = []

    def listen(path: str) -> Any:
        def hook(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            if broken:
                return
            for tensor in _tensors(output):
                spoilt = tensor.isnan() | tensor.isposinf()
                if bool(spoilt.any()):
                    entered = not any(
                        bool((t.isnan() | t.isposinf()).any()) for t in _tensors(args)
                    )
                    broken.append(
                        {
                            "module": path,
                            "kind": type(module).__name__,
                            "inputs_finite": entered,
                            "share": float(spoilt.float().mean()),
                            "dtype": str(tensor.dtype).removeprefix("torch."),
                            **_stack_of(patient, path),
                        }
                    )
                    return

        return hook

    # Inner modules return before those around them, so the first that is broken is an inner one.
    handles = [
        module.register_forward_hook(listen(path))
        for path, module in patient.model.named_modules()
        if path
    ]
    try:
        with torch.no_grad():
            call(patient.model, patient.small)
    finally:
        for handle in handles:
            handle.remove()
    yield VisitFact("not_finite", {"first": broken[0] if broken else None})


def _tensors(value: Any) -> list[Tensor]:
    parts = value if isinstance(value, tuple | list) else (value,)
    return [one for one in parts if isinstance(one, Tensor) and one.is_floating_point()]


def _stack_of(patient: Patient, path: str) -> dict[str, Any]:
    site = patient.site(f"{path}.")
    return {"stack": site.stack, "layer": site.layer} if site.layer else {}
