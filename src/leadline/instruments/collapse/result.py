"""The result of `collapse`: how far tokens still differ after every layer, far below rounding.

The residual at site l is |X_l - 1 m'|_F with m the mean token, X_0 the stream that entered. It is
kept as a logarithm, because it may be 10^(-10^18), and as mantissa and exponent of two, because a
logarithm of that size has no digits left for it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from leadline.record.provenance import strict_number
from leadline.record.words.numbers import align

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from leadline.theory import StackFacts

__all__ = ["Collapse"]


@dataclass(frozen=True, eq=False)
class Collapse:
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
        """Return everything as strict JSON."""
        return {
            "schema": 1,
            "name": self.name,
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

    def _row(self, layer: int) -> tuple[str, ...]:
        step = ratio = ""
        before, after = self.log10_residual[layer - 1], self.log10_residual[layer]
        if layer and math.isfinite(before) and math.isfinite(after):
            step = _shown(after - before, 3)
            # Near a residual of 1 the logarithms pass through zero and their ratio says nothing.
            ratio = f"{after / before:.4f}" if before < -1.0 and not self.causal else ""
        return (
            str(layer),
            _shown(after, 6),
            _shown(self.log10_relative[layer], 6),
            step,
            ratio,
            f"{self.error[layer]:.1e}",
        )

    def __str__(self) -> str:
        if self.examples:
            rows = "\n\n".join(f"example {i}\n{one}" for i, one in enumerate(self.examples, 1))
            return f"{len(self.examples)} examples\n\n{rows}"
        columns = ("layer", "log10 residual", "log10 relative", "step", "ratio", "error")
        rows = [columns, *(self._row(layer) for layer in range(self.depth + 1))]
        lines = [f"collapse of {self.name}" if self.name else "collapse"]
        lines += align(rows, right=range(len(columns)))
        lines.append(
            "step: log10 of the factor of the layer; ratio: of the logarithms, 3 where the collapse "
            "is cubic; error: relative, of the residual, estimated"
        )
        return "\n".join([*lines, *self.remarks])


def _shown(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if abs(value) < 1e6 else f"{value:.10g}"


def _strict(values: NDArray[np.float64]) -> list[Any]:
    if values.ndim > 1:
        return [_strict(row) for row in values]
    return [strict_number(float(value)) for value in values]


def _nested(values: tuple[Any, ...]) -> list[Any]:
    return [
        _nested(cast("tuple[Any, ...]", one)) if isinstance(one, tuple) else one for one in values
    ]
