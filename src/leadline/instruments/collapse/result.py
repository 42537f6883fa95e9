"""The result of `collapse`: how far tokens still differ after every layer, far below rounding.

The residual at site l is |X_l - 1 m'|_F with m the mean token, X_0 the stream that entered. It is
kept as a logarithm, because it may be 10^(-10^18), and as mantissa and exponent of two, because a
logarithm of that size has no digits left for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from leadline.record.provenance import strict_number
from leadline.record.words.screen import Showable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from leadline.record.words.screen import Screen
    from leadline.theory import StackFacts

__all__ = ["Collapse"]


@dataclass(frozen=True, eq=False)
class Collapse(Showable):
    """One row of numbers per site 0..depth; with several examples one row of sites for each.

    `error` estimates the relative error of the residual itself; above 1 only its logarithm means
    something. `facts` are what the theorems need, where `facts=True` was passed.
    """

    log10_residual: NDArray[np.float64]
    log10_norm: NDArray[np.float64]
    error: NDArray[np.float64]
    mantissa: NDArray[np.float64]
    exponent: tuple[Any, ...]
    """residual = mantissa * 2^exponent, exact integers, nested like the arrays; None for zero."""
    causal: bool = False
    name: str = ""
    remarks: tuple[str, ...] = ()
    facts: StackFacts | None = None
    examples: tuple[Collapse, ...] = field(default=(), repr=False)

    @property
    def depth(self) -> int:
        """The number of layers."""
        return self.log10_residual.shape[-1] - 1

    @property
    def log10_relative(self) -> NDArray[np.float64]:
        """log10 of the residual over the norm of all tokens."""
        with np.errstate(invalid="ignore"):
            apart = self.log10_residual - self.log10_norm
        return np.where(np.isneginf(self.log10_residual), -np.inf, apart)

    @property
    def rate(self) -> NDArray[np.float64]:
        """log10 of the factor by which each layer changed the residual: depth values."""
        with np.errstate(invalid="ignore"):
            return np.diff(self.log10_residual, axis=-1)

    @property
    def log_ratio(self) -> NDArray[np.float64]:
        """The ratio of the logarithms of neighbouring residuals: towards 3 in a cubic collapse."""
        log = self.log10_residual
        with np.errstate(invalid="ignore", divide="ignore"):
            return log[..., 1:] / log[..., :-1]

    def to_json(self) -> dict[str, Any]:
        """Return the answer and everything else as strict JSON."""
        from leadline.instruments.collapse.text import answer

        return {
            "schema": 1,
            "name": self.name,
            "answer": answer(self),
            "depth": self.depth,
            "causal": self.causal,
            "log10_residual": _strict(self.log10_residual),
            "log10_relative": _strict(self.log10_relative),
            "log10_norm": _strict(self.log10_norm),
            "error": _strict(self.error),
            "mantissa": _strict(self.mantissa),
            "exponent": _nested(self.exponent),
            "remarks": list(self.remarks),
        }

    def screen(self, *, everything: bool = True) -> Screen:
        """Return the answer and a row per layer; without `everything` some of them."""
        from leadline.instruments.collapse.text import collapse_screen

        return collapse_screen(self, everything=everything)


def _strict(values: NDArray[np.float64]) -> list[Any]:
    if values.ndim > 1:
        return [_strict(row) for row in values]
    return [strict_number(float(value)) for value in values]


def _nested(values: tuple[Any, ...]) -> list[Any]:
    return [
        _nested(cast("tuple[Any, ...]", one)) if isinstance(one, tuple) else one for one in values
    ]
