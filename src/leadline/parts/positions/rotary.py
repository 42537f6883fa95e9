"""Rotary positions: queries and keys are turned by an angle that grows with their position.

    (a, b) -> (a cos t - b sin t, b cos t + a sin t),    t = position / base^(2 i / turned)

Su et al. 2021, arXiv 2104.09864. base 10,000. The pairs (a, b) are the two halves of what is
turned ("half": Llama, NeoX) or neighbours ("neighbours": GPT-J). `share` of each head is turned,
the rest stays (NeoX: 0.25).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from leadline.errors import RecipeError
from leadline.parts.options import number
from leadline.parts.positions._positions import POSITIONS, Positions


@POSITIONS.register("rotary")
class Rotary(Positions):
    """Queries and keys turned by their positions."""

    frequencies: Tensor

    def __init__(
        self,
        width: int,
        context: int,
        head_width: int,
        *,
        base: float = 10000.0,
        share: float = 1.0,
        pairs: str = "half",
    ) -> None:
        super().__init__()
        if pairs not in ("half", "neighbours"):
            raise RecipeError(f"pairs is {pairs!r}; rotary pairs are half or neighbours.")
        base = number("rotary", "base", base, wanted="a number above 0", fits=lambda x: x > 0.0)
        share = number(
            "rotary", "share", share, wanted="a number from 0 to 1", fits=lambda x: 0.0 <= x <= 1.0
        )
        turned = int(head_width * share)
        if turned % 2 or turned == 0:
            raise RecipeError(
                f"Rotary positions turn pairs of features: {share:g} of a head of {head_width} is "
                f"{turned}, which must be an even number from 2 to {head_width}. "
                "Change share, width or heads."
            )
        self.turned = turned
        self.turns_all = turned == head_width
        self.pairs = pairs
        self.base = base
        self.register_buffer("frequencies", self._frequencies(), persistent=False)

    def _frequencies(self) -> Tensor:
        steps = torch.arange(0, self.turned, 2, dtype=torch.float64)
        return (self.base ** (-steps / self.turned)).float()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Rotary:
        """Move, but never round: in bfloat16 the frequencies would lose most of their digits."""
        super()._apply(fn, recurse)
        with torch.device("cpu"):
            exact = self._frequencies()
        self.frequencies = exact.to(self.frequencies.device)
        return self

    def rotation(self, positions: Tensor, dtype: torch.dtype) -> Callable[[Tensor], Tensor] | None:
        # In float32 whatever the weights are: angles of late positions need the digits.
        angles = positions.float().unsqueeze(-1) * self.frequencies
        if self.pairs == "half":
            angles = torch.cat((angles, angles), -1)
        else:
            angles = angles.repeat_interleave(2, -1)
        cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
        if positions.ndim > 1:
            cos, sin = cos.unsqueeze(-3), sin.unsqueeze(-3)

        def rotate(x: Tensor) -> Tensor:
            part = x if self.turns_all else x[..., : self.turned]
            part = part * cos + self._partner(part) * sin
            return part if self.turns_all else torch.cat((part, x[..., self.turned :]), -1)

        return rotate

    def _partner(self, x: Tensor) -> Tensor:
        """The other one of each pair, with the sign of the sine."""
        if self.pairs == "half":
            first, second = x.chunk(2, -1)
            return torch.cat((-second, first), -1)
        return torch.stack((-x[..., 1::2], x[..., 0::2]), -1).flatten(-2)
