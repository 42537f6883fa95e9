"""How much of a tensor each of its components is.

    norm share   |Z_k| / |X|
    share        <Z_k, X> / |X|^2, so that all shares together are 1
    remainder    the largest over tokens of |x - sum z - sum b| / max(|x|, sqrt(sum |z_k|^2 +
                 sum |b_k|^2)), x the token's own row

X may be seen in several ways at once: as it is, or centred. The second term of the remainder is
for components that cancel: rounding is then relative to them, and not to x. It is taken token by
token, because one huge token would hide what is missing in the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from leadline.instruments.paths.carried.carried import Parts
from leadline.instruments.paths.carried.rows import ComponentRows

__all__ = ["Spread", "View", "logit_view", "spread", "token_view"]

Tensor = torch.Tensor
View = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Spread:
    """|X|, and for every length |Z|, <Z, X> / |X|, |B|, <B, X> / |X|.

    `remainder` is relative, that of the worst token; `heaviest` the largest share of |X|^2 that
    one token has.
    """

    norm: float
    inputs: tuple[float, ...]
    along: tuple[float, ...]
    sources: tuple[float, ...]
    sources_along: tuple[float, ...]
    remainder: float
    heaviest: float


def spread(
    value: Tensor,
    parts: Parts,
    views: Mapping[str, View],
    *,
    each: Callable[[int, Tensor], None] | None = None,
) -> dict[str, Spread]:
    """Measure the components in every view, one length after the other.

    They are computed together where they are small, and else one by one.

    `each` gets the sum of all components with at most k hops, for k = 0, 1, ... The views are
    linear. Sums are taken in float64, and in float32 where `each` gets them.
    """
    ways = [_Way(view, view(value)) for view in views.values()]
    running: Tensor | None = None
    if parts.rows.fits():
        parts.rows.hold()
    inputs, sources = parts.inputs, parts.sources
    for k in range(max(inputs.count, 0 if sources is None else sources.count)):
        z, b = _row(inputs, k), _row(sources, k)
        for way in ways:
            way.add(z, b)
        for row in (z, b):
            if row is not None and running is None:
                running = (row.double() if each is None else _wide(row)).clone()
            elif row is not None and running is not None:
                running.add_(row)
        if each is not None:
            assert running is not None
            each(k, running)
    assert running is not None
    return {name: way.summary(running) for name, way in zip(views, ways, strict=True)}


class _Way:
    """One view of X, and the sizes of its components in this view.

    All numbers are in units of the largest element of X, so that squares neither overflow nor
    vanish.
    """

    def __init__(self, view: View, viewed: Tensor) -> None:
        self.view = view
        self.unit = float(viewed.abs().max()) or 1.0
        self.viewed = viewed / self.unit
        self.sizes = _sizes(self.viewed)
        self.norm = float(torch.linalg.vector_norm(self.sizes))
        self.squares = torch.zeros_like(self.sizes)
        self.nothing = self.sizes.new_zeros(())
        self.measures: list[Tensor] = []
        """Four for every length; they are fetched once, when all are there."""

    def add(self, z: Tensor | None, b: Tensor | None) -> None:
        self.measures += (*self._against(z), *self._against(b))

    def _against(self, row: Tensor | None) -> tuple[Tensor, Tensor]:
        if row is None:
            return self.nothing, self.nothing
        component = self.view(row) / self.unit
        sizes = _sizes(component)
        self.squares += sizes.square()
        along = (component * self.viewed).sum(-1).double().sum()
        return torch.linalg.vector_norm(sizes), along

    def summary(self, total: Tensor) -> Spread:
        scale = torch.maximum(self.sizes, self.squares.sqrt())
        miss = _sizes(self.viewed - self.view(total) / self.unit)
        # A token without anything (padding) misses nothing.
        remainder = float((miss / torch.where(scale > 0, scale, 1.0)).max())
        squares = self.sizes.square()
        heaviest = float(squares.max() / squares.sum()) if self.norm else 0.0
        numbers: list[float] = torch.stack(self.measures).tolist()
        columns: list[tuple[float, ...]] = []
        for at in range(4):
            column = numbers[at::4]
            if at % 2:  # the products with X
                column = [one / self.norm if self.norm else 0.0 for one in column]
            columns.append(tuple(one * self.unit for one in column))
        return Spread(self.norm * self.unit, *columns, remainder=remainder, heaviest=heaviest)


def token_view(mask: Tensor | None, *, token_axis: int = 1, residual: bool = False) -> View:
    """[example, token, width] in float64 without padding; `residual` takes the mean token away."""

    def view(x: Tensor) -> Tensor:
        x = x.double()
        if x.ndim == 2:
            x = x.unsqueeze(0)
        elif token_axis == 0:
            x = x.transpose(0, 1)
        x = x.flatten(2)
        real = None if mask is None else mask.to(x.device, x.dtype).unsqueeze(-1)
        if real is not None:
            x = x * real
        if not residual:
            return x
        if real is None:
            return x - x.mean(1, keepdim=True)
        mean = x.sum(1, keepdim=True) / real.sum(1, keepdim=True).clamp(min=1)
        return (x - mean) * real

    return view


def logit_view(mask: Tensor | None) -> View:
    """Logits without their mean over the last axis, which no softmax sees; padding is left out."""

    def view(x: Tensor) -> Tensor:
        x = _wide(x)
        x = x - x.mean(-1, keepdim=True)
        if mask is not None and x.shape[:2] == mask.shape and x.ndim == 3:
            x = x * mask.to(x.device, x.dtype).unsqueeze(-1)
        return x

    return view


def _row(rows: ComponentRows | None, index: int) -> Tensor | None:
    return None if rows is None or index >= rows.count else rows.row(index)


def _sizes(x: Tensor) -> Tensor:
    """The norm of every token, in float64."""
    return torch.linalg.vector_norm(x, dim=-1).double()


def _wide(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))
