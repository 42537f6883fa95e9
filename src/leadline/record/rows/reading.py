"""One number of one quantity at one site: a row of the record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leadline.record.rows.site import Site

__all__ = ["Reading"]


@dataclass(frozen=True, slots=True)
class Reading:
    """One number.

    `statistic` says how tokens were summed up: `mean`, `median`, `mean_without_first`,
    `median_without_first`, or `value` where there is one number per site. `lower` and `upper`
    hold a certified interval or a standard error where the quantity has one. `run` names the
    cell of a sweep, `step` the training step.
    """

    quantity: str
    site: Site
    statistic: str
    value: float
    lower: float | None = None
    upper: float | None = None
    run: str = ""
    step: int = 0
    seed: int | None = None
