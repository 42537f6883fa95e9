"""What is measured: one quantity with its symbol, formula and meaning.

A definition travels inside the record file, so a record explains itself without the program
that wrote it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["AxisScale", "LivesOn", "Quantity"]

LivesOn = Literal["stream", "sublayer", "layer", "run"]
AxisScale = Literal["linear", "log"]


@dataclass(frozen=True, slots=True)
class Quantity:
    """The definition of one quantity.

    `lives_on` says which sites carry it: block boundaries of the stream (layer 0 to depth), the
    writes inside a block (sublayers), whole blocks (layers), or no place in the model but the
    training run. `high` and `low` say in one sentence each what a high and a low value mean.
    `headline` is the statistic that stands for the quantity where there is room for one.
    """

    name: str
    title: str
    symbol: str
    formula: str
    unit: str = ""
    lives_on: LivesOn = "stream"
    high: str = ""
    low: str = ""
    source: str = ""
    scale: AxisScale = "linear"
    headline: str = "mean"
