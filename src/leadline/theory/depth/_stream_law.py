"""What laws of the mean square of the stream share: a band that starts from what was measured.

    m_l <= m_{l-1} + most(l),   m_l >= m_{l-1} + least(l),   m_0 measured

in the mean over the weights, which follows layer by layer from

    |x + u|² = |x|² + |u|² + 2 <x, u>

an identity, in which <x, u> has mean zero where the output weights of the branch have. `grown` is
the identity itself, for numbers that were measured.
"""

from __future__ import annotations

import math
from abc import abstractmethod

from leadline.theory.depth._facts import DepthFacts
from leadline.theory.depth._law import Band, Law
from leadline.theory.depth._writes import attention_write, mlp_write

__all__ = ["StreamLaw", "grown", "writes_of_block"]


def grown(before: float, update: float, cross: float) -> float:
    """Return |x + u|² from |x|², |u|² and <x, u>, or means of all three: it is linear in them."""
    return before + update + 2.0 * cross


def writes_of_block(facts: DepthFacts, q: float = 1.0) -> Band | None:
    """Return the least and the most that attention and MLP together write in mean square."""
    attention, mlp = attention_write(facts, q), mlp_write(facts, q)
    return None if attention is None or mlp is None else (mlp, attention + mlp)


class StreamLaw(Law):
    """A law of the mean square, block by block."""

    quantity = "stream.variance"

    @abstractmethod
    def step(self, facts: DepthFacts, layer: int, before: Band) -> Band | None:
        """Return the band after a block from the band before it; None where it is not known."""

    def predicted(self, facts: DepthFacts) -> tuple[Band, ...] | None:
        if not facts.mean_square or not math.isfinite(facts.mean_square[0]):
            return None
        start = facts.mean_square[0]
        bands: list[Band] = [(start, start)]
        for layer in range(1, facts.depth + 1):
            after = self.step(facts, layer, bands[-1])
            if after is None:
                return None
            bands.append(after)
        return tuple(bands)
