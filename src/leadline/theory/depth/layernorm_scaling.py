"""Norms divided by sqrt(l): the stream grows like a logarithm."""

from __future__ import annotations

from leadline.theory._condition import Condition
from leadline.theory.depth._assumptions import (
    as_drawn,
    called,
    plain_branches,
    plain_sum,
    unit_norm,
)
from leadline.theory.depth._facts import DepthFacts
from leadline.theory.depth._law import LAWS, Band
from leadline.theory.depth._stream_law import StreamLaw, writes_of_block


@LAWS.register("layernorm-scaling")
class LayerNormScalingLaw(StreamLaw):
    """m_0 + c H_l <= E m_l <= m_0 + (a + c) H_l, H_l = 1 + 1/2 + ... + 1/l.

    Assumptions: the norm before each branch of layer l is divided by sqrt(l); every write is x + u;
    Xavier's init, nothing trained; layernorm or rmsnorm with an eps that is small against the
    stream; a block is multi-head attention, then a plain MLP.

    Proof. As `xiong-stream`, but a branch of layer l reads tokens of mean square 1/l. Attention is
    linear in what it mixes and ReLU is homogeneous, so both write 1/l of what they would: a block
    adds between c/l and (a + c)/l, which sums to H_l, about log l + 0.577. For an MLP as wide as
    the stream c = 1/2, a = 1. Activations that are not homogeneous write S(v/l) instead of S(v)/l,
    and are summed so.

    The design is Sun et al.'s, who bound the variance of the stream; this band at initialisation
    is derived here.
    """

    title = "stream under LayerNorm scaling"
    statement = "m_0 + c H_l <= m_l <= m_0 + (1 + c) H_l, H_l = Σ 1/k"
    source = "Sun et al. 2025, arXiv 2502.05795 (the design); band derived"

    def conditions(self, facts: DepthFacts) -> list[Condition]:
        return [
            called("the norm of layer l is divided by sqrt(l)", facts.placement,
                   ("layernorm_scaling",), "the placement"),
            plain_sum(facts),
            called("the init is xavier", facts.init, ("xavier",), "the init"),
            as_drawn(facts),
            *unit_norm(facts),
            *plain_branches(facts),
        ]  # fmt: skip

    def step(self, facts: DepthFacts, layer: int, before: Band) -> Band | None:
        writes = writes_of_block(facts, 1.0 / layer)
        return None if writes is None else (before[0] + writes[0], before[1] + writes[1])
