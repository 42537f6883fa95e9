"""How many tokens each expert of a mixture gets, read from what the routers return.

A router is a module called `router` or `gate` beside something called experts, or in a module whose class
is called one of experts. Its logits are the first tensor of numbers whose last axis counts the experts. The choice is the tensor of whole numbers that it returns (indices,
or a mask over the experts), else the largest logits, as many as the layer's `top_k` says.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from leadline.instruments.passes.running import call
from leadline.instruments.visit.check import CouldNot, VisitEntry, VisitFact, check
from leadline.instruments.visit.patient import Patient

_NAMES = ("router", "gate", "wg")
_TOP = ("top_k", "num_experts_per_tok", "moe_top_k", "k")


@check("experts", facts=("experts",), pass_cost=0.3)
def experts(patient: Patient) -> Iterator[VisitEntry]:
    """Count the tokens of every expert over the batch."""
    routers = dict(_routers(patient.model))
    if not routers:
        yield CouldNot(("experts",), "the model has no router beside experts")
        return
    loads: dict[str, Tensor] = {}

    def listen(path: str, parent: nn.Module) -> Any:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            load = _load(output, module, parent)
            if load is not None:
                loads[path] = loads[path] + load if path in loads else load

        return hook

    handles = [
        patient.model.get_submodule(path).register_forward_hook(listen(path, parent))
        for path, parent in routers.items()
    ]
    try:
        with torch.no_grad():
            call(patient.model, patient.batch)
    finally:
        for handle in handles:
            handle.remove()
    if not loads:
        yield CouldNot(("experts",), "no router returned logits or indices of experts")
        return
    rows: list[dict[str, Any]] = []
    for path, load in loads.items():
        site = patient.site(f"{path}.")
        place = {"stack": site.stack, "layer": site.layer} if site.layer else {}
        rows.append({"module": path, "tokens": load.tolist(), **place})
    yield VisitFact("experts", rows)


def _routers(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    for path, _ in model.named_modules():
        around, _, name = path.rpartition(".")
        if name not in _NAMES:
            continue
        parent = model.get_submodule(around)
        beside = [child for child, _ in parent.named_children()]
        beside += [one for one, _ in parent.named_parameters(recurse=False)]
        kind = type(parent).__name__.lower()
        if "moe" in kind or "expert" in kind or any("expert" in one for one in beside):
            yield path, parent


def _load(output: Any, router: nn.Module, parent: nn.Module) -> Tensor | None:
    """How many tokens go to each expert in one call of a router."""
    parts = output if isinstance(output, tuple | list) else (output,)
    tensors = [one for one in parts if isinstance(one, Tensor) and one.ndim >= 2]
    logits = next((t for t in tensors if t.is_floating_point() and t.shape[-1] > 1), None)
    if logits is None:
        return None
    number, rows = logits.shape[-1], logits.flatten(0, -2)
    for choice in (one for one in tensors if not one.is_floating_point()):
        if choice.shape[-1] == number and int(choice.max()) <= 1:
            return choice.flatten(0, -2).long().sum(0).cpu()
        if int(choice.max()) < number:
            return torch.bincount(choice.flatten().cpu(), minlength=number)
    tops = [getattr(one, name, None) for one in (router, parent) for name in _TOP]
    top = next((one for one in tops if isinstance(one, int)), 1)
    return torch.bincount(rows.topk(top, dim=-1).indices.flatten().cpu(), minlength=number)
