"""Do all heads go through one projection of the width of a head?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from leadline.instruments.passes.running import call
from leadline.instruments.visit.check import VisitFact, check
from leadline.instruments.visit.patient import Patient

__all__ = ["heads"]


@check("heads", facts=("narrow_projections",), pass_cost=0.1)
def heads(patient: Patient) -> Iterator[VisitFact]:
    """Square maps of a part of the width that get [example, head, token, part] or its transpose.

    Of one attention at least two of queries, keys and values must be such maps: a single one may
    be anything else.
    """
    seen: dict[str, dict[str, Any]] = {}

    def watch(path: str) -> Any:
        def hook(module: nn.Linear, arguments: Any) -> None:
            entered = arguments[0] if arguments else None
            if not isinstance(entered, Tensor) or entered.ndim != 4:
                return
            count = min(entered.shape[1], entered.shape[2])
            if module.in_features == module.out_features and count > 1:
                seen[path] = {"width": module.in_features, "axes": list(entered.shape[1:3])}

        return hook

    with ExitStack() as hooks, torch.no_grad():
        for path, module in patient.model.named_modules():
            if isinstance(module, nn.Linear):
                hooks.callback(module.register_forward_pre_hook(watch(path)).remove)
        call(patient.model, patient.small)
    groups: dict[str, list[str]] = {}
    for path in seen:
        groups.setdefault(path.rpartition(".")[0], []).append(path)
    yield VisitFact(
        "narrow_projections",
        [
            {"module": owner, "names": names, "width": seen[names[0]]["width"]}
            for owner, names in groups.items()
            if len(names) > 1
        ],
    )
