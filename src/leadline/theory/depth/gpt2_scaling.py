"""Output weights divided by sqrt(2 L): the stream stays of order one at any depth."""

from __future__ import annotations

from leadline.theory._condition import Condition
from leadline.theory.depth._assumptions import (
    as_drawn,
    called,
    plain_branches,
    plain_sum,
    scaled_by_writes,
    unit_norm,
)
from leadline.theory.depth._facts import DepthFacts
from leadline.theory.depth._law import LAWS, Band
from leadline.theory.depth._stream_law import StreamLaw, writes_of_block


@LAWS.register("gpt2-scaling")
class GPT2Scaling(StreamLaw):
    """m_0 + c l/(2L) <= E m_l <= m_0 + (a + c) l/(2L): what 2 L writes add is at most (a + c)/2.

    Assumptions: pre-norm; nothing trained; layernorm or rmsnorm with an eps that is small
    against the stream; a block is multi-head attention, then a plain MLP; and either gpt2's init
    (normal weights of one standard deviation, those that write to the stream divided by sqrt(2 L))
    with writes x + u, or Xavier's init with writes x + u / sqrt(2 L): a branch is linear in its
    output weight, so the two are one.

    Proof. As `xiong-stream`, every update divided by sqrt(2 L), its mean square by 2 L. With Xavier
    and an MLP as wide as the stream c = 1/2 and a = 1: 1 + l/(4L) <= E m_l <= 1 + 3 l/(4L), at most
    7/4 of the start at any depth. With standard deviation s: a = (d s²)², and for ReLU c = a r/2.

    The scaling is Radford et al.'s (GPT-2); the band is derived here.
    """

    title = "stream under GPT-2's scaling"
    statement = "m_0 + c l/(2L) <= m_l <= m_0 + (a + c) l/(2L)"
    source = "Radford et al. 2019 (the scaling); after Xiong et al. 2020, arXiv 2002.04745"

    def conditions(self, facts: DepthFacts) -> list[Condition]:
        by_init = facts.init != "xavier"
        return [
            called("the norm stands before every branch", facts.placement, ("pre",),
                   "the placement"),
            called("the init is gpt2, or xavier with scaled writes", facts.init,
                   ("gpt2", "xavier"), "the init"),
            plain_sum(facts) if by_init else scaled_by_writes(facts),
            as_drawn(facts),
            *unit_norm(facts),
            *plain_branches(facts),
        ]  # fmt: skip

    def step(self, facts: DepthFacts, layer: int, before: Band) -> Band | None:
        writes = writes_of_block(facts)
        if writes is None:
            return None
        share = 1.0 / (2.0 * facts.depth)
        return before[0] + share * writes[0], before[1] + share * writes[1]
