"""Do all heads go through one projection of the width of a head?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

from leadline.instruments.visit.check import VisitFact, check
from leadline.instruments.visit.patient import Patient

__all__ = ["heads"]


@check("heads", facts=("narrow_projections",))
def heads(patient: Patient) -> Iterator[VisitFact]:
    """Square maps of a part of the width that get [example, head, token, part] or its transpose.

    Of one attention at least two of queries, keys and values must be such maps: a single one may
    be anything else.
    """
    seen: dict[str, dict[str, Any]] = {}

    for one in patient.small_pass().calls:
        entered = one.arguments[0] if one.arguments else None
        if not isinstance(one.module, nn.Linear) or not isinstance(entered, Tensor):
            continue
        if entered.ndim != 4 or min(entered.shape[1:3]) < 2:
            continue
        if one.module.in_features == one.module.out_features:
            seen[one.path] = {"width": one.module.in_features, "axes": list(entered.shape[1:3])}
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
