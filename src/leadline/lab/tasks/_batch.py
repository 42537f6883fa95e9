"""Examples as a model takes them: ids, and what each position must predict."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from leadline.parts.loss import IGNORED

__all__ = ["IGNORED", "Batch"]


@dataclass(frozen=True, eq=False)
class Batch:
    """Ids and targets, both [example, token] and int64.

    targets[t] is what position t must predict, already aligned; -100 where nothing is asked.
    """

    ids: Tensor
    targets: Tensor
