"""What is measured: one quantity with its symbol, formula and meaning.

A definition travels inside the record file, so a record explains itself without the program
that wrote it. Readers (tables, charts, comparisons, bounds) ask the definition what they need to
know; none of them knows a quantity by its name.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

__all__ = ["ABSENT", "Axis", "AxisScale", "Better", "LivesOn", "Over", "Quantity", "Requirement"]

LivesOn = Literal["stream", "sublayer", "layer", "path", "run"]
AxisScale = Literal["linear", "log"]
Axis = Literal["rank", "head", "lane", "token", "example"]
Over = Literal["layer", "hops", "step"]
Better = Literal["", "high", "low", "one", "even"]
Requirement = Literal[
    "lanes", "attention", "logits", "matrix", "all heads", "all layers", "trainable"
]

ABSENT: dict[Requirement, str] = {
    "lanes": "the model has one stream, not several lanes",
    "attention": "no attention matrix was seen",
    "logits": "weights are changed between softmax and values, so the logits are not theirs",
    "matrix": "it needs the whole attention matrix, and none is formed for long texts",
    "all heads": "heads of a sublayer are computed in several calls of attention",
    "all layers": "heads of some sublayer are computed in several calls of attention",
    "trainable": "no parameter of a sublayer requires a gradient",
}
"""Why a quantity is absent where the model lacks what it requires."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """The definition of one quantity.

    `lives_on` says which sites carry it: block boundaries of the stream (layer 0 to depth), the
    writes inside a block (sublayers), whole blocks (layers), paths by the number of attention
    layers they go through, or no place in the model but the training run. `meaning` says in one
    sentence what it tells; `high` and `low` what a high and a low value mean; `better` which of
    them is wanted, where one is: "one" is near 1, "even" the same at every depth. `headline` is
    the statistic that stands for the quantity where there is room for one.

    `topic` is the subject under which readers group it, the part of the name before the dot unless
    given; of each topic one quantity `leads`: it is told in words and drawn first. `axes` are the
    axes beside depth along which it has readings. `beside` names a quantity drawn in the same
    chart. `ingredient_of` names the family of bounds that it serves, where it serves nothing else:
    tables and charts of what was measured leave it out. `requires` says what a model must have,
    and so why the quantity may be absent.
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
    meaning: str = ""
    topic: str = ""
    leads: bool = False
    better: Better = ""
    axes: tuple[Axis, ...] = ()
    beside: str = ""
    ingredient_of: str = ""
    requires: tuple[Requirement, ...] = ()

    def __post_init__(self) -> None:
        if not self.topic:
            object.__setattr__(self, "topic", self.name.partition(".")[0])

    def is_same(self, other: Quantity) -> bool:
        """Whether numbers of both mean the same; what readers are told beside may have changed."""
        # A unit may be said later of what had none; two units are two quantities.
        one_unit = self.unit == other.unit or not (self.unit and other.unit)
        return one_unit and all(getattr(self, one) == getattr(other, one) for one in _DEFINING)

    @property
    def over(self) -> Over:
        """What its lines are drawn over: depth, the length of paths, or the steps of a run."""
        return _OVER.get(self.lives_on, "layer")

    @property
    def nats_per_unit(self) -> float:
        """How many nats one unit is where values are logarithms by their unit; else 0.

        Of logarithms differences are told and compared, and no ratios.
        """
        return {"log10": math.log(10), "nats": 1.0}.get(self.unit.partition(" ")[0], 0.0)

    @property
    def absent(self) -> str:
        """Why it may be absent; empty where every model has it."""
        return "; or ".join(ABSENT[one] for one in self.requires)


_OVER: dict[LivesOn, Over] = {"path": "hops", "run": "step"}
_DEFINING = ("name", "formula", "lives_on", "headline")
"""What makes two definitions one: words for readers get better from version to version."""
