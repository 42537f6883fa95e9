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
from leadline.parts.positions._positions import POSITIONS, Positions


@POSITIONS.register("rotary")
class Rotary(Positions):
    """Queries and keys turned by their positions."""

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
        turned = int(head_width * share)
        if turned % 2 or not 0 < turned <= head_width:
            raise RecipeError(
                f"Rotary positions turn pairs of features: {share:g} of a head of {head_width} is "
                f"{turned}, which must be an even number from 2 to {head_width}. "
                "Change share, width or heads."
            )
        self.turned = turned
        self.whole = turned == head_width
        self.pairs = pairs
        frequencies = base ** (-torch.arange(0, turned, 2, dtype=torch.float64) / turned)
        self.register_buffer("frequencies", frequencies.float(), persistent=False)

    def rotation(
        self, positions: Tensor, dtype: torch.dtype
    ) -> Callable[[Tensor], Tensor] | None:
        # In float32 whatever the weights are: angles of late positions need the digits.
        angles = positions.float().unsqueeze(-1) * self.frequencies.float()
        if self.pairs == "half":
            angles = torch.cat((angles, angles), -1)
        else:
            angles = angles.repeat_interleave(2, -1)
        cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
        if positions.ndim > 1:
            cos, sin = cos.unsqueeze(-3), sin.unsqueeze(-3)

        def rotate(x: Tensor) -> Tensor:
            part = x if self.whole else x[..., : self.turned]
            part = part * cos + self._partner(part) * sin
            return part if self.whole else torch.cat((part, x[..., self.turned :]), -1)

        return rotate

    def _partner(self, x: Tensor) -> Tensor:
        """The other one of each pair, with the sign of the sine."""
        if self.pairs == "half":
            first, second = x.chunk(2, -1)
            return torch.cat((-second, first), -1)
        return torch.stack((-x[..., 1::2], x[..., 0::2]), -1).flatten(-2)
