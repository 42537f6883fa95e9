"""Where values stop being finite: the first module of one small pass whose output is broken.

A module is named only if what entered it was finite, so that the first one is where it begins. Masks
hold minus infinity by right: only NaN and plus infinity count.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from leadline.instruments.visit.check import VisitEntry, VisitFact, check
from leadline.instruments.visit.patient import Patient


@check("not-finite", facts=("not_finite",))
def not_finite(patient: Patient) -> Iterator[VisitEntry]:
    """Name the first module whose output is not finite while its inputs are; None without any."""
    broken: dict[str, Any] | None = None
    # Inner modules return before those around them, so the first that is broken is an inner one.
    for one in patient.small_pass().by_return:
        for tensor in _tensors(one.output):
            spoilt = tensor.isnan() | tensor.isposinf()
            if broken is None and bool(spoilt.any()):
                entered = not any(
                    bool((t.isnan() | t.isposinf()).any()) for t in _tensors(one.arguments)
                )
                broken = {
                    "module": one.path,
                    "kind": type(one.module).__name__,
                    "inputs_finite": entered,
                    "share": float(spoilt.float().mean()),
                    "dtype": str(tensor.dtype).removeprefix("torch."),
                    **_stack_of(patient, one.path),
                }
        if broken is not None:
            break
    yield VisitFact("not_finite", {"first": broken})


def _tensors(value: Any) -> list[Tensor]:
    parts = value if isinstance(value, tuple | list) else (value,)
    return [one for one in parts if isinstance(one, Tensor) and one.is_floating_point()]


def _stack_of(patient: Patient, path: str) -> dict[str, Any]:
    site = patient.site(f"{path}.")
    return {"stack": site.stack, "layer": site.layer} if site.layer else {}
