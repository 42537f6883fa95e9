"""The numbers and names that laws of depth ask for: how a stack is built, and what was measured.

Notation. Site l of a stack is the stream after block l, site 0 what enters block 1; L blocks. The
mean square of a site is m_l = E |x|² / d over tokens, d features. A weight W [out, in] acts as
y = W h. h has mean square 1 behind a norm that has not been trained.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DepthFacts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthFacts:
    """One stack. None and empty: not known."""

    depth: int
    width: int | None = None
    connection: str | None = None
    """The name of the connection: identity, weighted, deepnorm, ..."""
    placement: str | None = None
    """The name of the placement: pre, post, none, layernorm_scaling, ..."""
    init: str | None = None
    """The name of the init: xavier, gpt2, deepnorm, ..."""
    init_scale: float | None = None
    """xavier: its gain. gpt2: its standard deviation."""
    norm: str | None = None
    """layernorm, rmsnorm or another name; none where there is none."""
    norm_eps: float | None = None
    """What the norm adds to the mean square that it divides by."""
    mlp: str | None = None
    """The activation of a plain MLP: relu, gelu, ..., or the name of another MLP."""
    hidden_ratio: float | None = None
    """Inner width of the MLP over the width of the stream."""
    attention: str | None = None
    """multihead where it is plain: as many value heads as query heads, all of the width."""
    branches: tuple[str, ...] = ()
    """The writes of every block: ("attention", "mlp")."""
    final_norm: bool | None = None
    """Whether a norm stands after the last block."""
    initial: bool | None = None
    """Whether the weights are as they were drawn."""
    keep: float | None = None
    """What every write keeps of the stream, the same for all."""
    gain: float | None = None
    """What every update is multiplied by, the same for all."""
    mean_square: tuple[float, ...] = ()
    """m_0, m_1, ...: measured; laws start from the first."""
    branch_norms: tuple[float, ...] = ()
    """sigma_1(J - I) of block 1, 2, ...: measured."""
