"""One line over depth: the values of one quantity, layer by layer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from leadline.record.rows.growth import Growth, fit_growth

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from leadline.record.rows.quantity import Over

__all__ = ["Profile"]


@dataclass(frozen=True, eq=False)
class Profile:
    """The values of one quantity at one point of every layer that has it.

    `np.asarray(profile)` gives the values. `sublayer` is None where the point stands at different
    writes in different layers, and for whole blocks and block boundaries.
    """

    quantity: str
    statistic: str
    stack: str
    point: str
    sublayer: int | None
    layers: tuple[int, ...]
    values: NDArray[np.float64]
    over: Over = "layer"
    """What `layers` counts: blocks, or the attention layers that a path goes through."""

    def __array__(self, dtype: Any | None = None, copy: bool | None = None) -> NDArray[np.float64]:
        """Give the values to numpy."""
        values = np.asarray(self.values, dtype=dtype)
        return values.copy() if copy else values

    def __len__(self) -> int:
        return len(self.layers)

    def __eq__(self, other: object) -> bool:
        """Two profiles are equal when every field is, NaN counted as equal to NaN."""
        if not isinstance(other, Profile):
            return NotImplemented
        return self._address == other._address and bool(
            np.array_equal(self.values, other.values, equal_nan=True)
        )

    def __hash__(self) -> int:
        return hash(self._address)

    @property
    def _address(self) -> tuple[object, ...]:
        return (
            self.quantity,
            self.statistic,
            self.stack,
            self.point,
            self.sublayer,
            self.layers,
        )

    @property
    def first(self) -> float:
        """The value at the first layer of the line."""
        return float(self.values[0])

    @property
    def last(self) -> float:
        """The value at the last layer of the line."""
        return float(self.values[-1])

    def place(self, layer: int) -> str:
        """Name a place of the line: `layer 3`, `3 hops`."""
        if self.over == "hops":
            return f"{layer} hop" if layer == 1 else f"{layer} hops"
        return f"{self.over} {layer}"

    @cached_property
    def growth(self) -> Growth:
        """The law of growth that fits the line best."""
        growth = fit_growth(self.layers, self.values)
        if self.over != "hops":
            return growth
        return replace(growth, text=_over_hops(growth.text), brief=_over_hops(growth.brief))


def _over_hops(words: str) -> str:
    """Say a law of depth as one of the length of paths: `×0.13 per hop`."""
    return words.replace("layer", "hop")
