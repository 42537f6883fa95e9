"""How the stream of a pre-norm Transformer grows before training: linearly in mean square."""

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


@LAWS.register("xiong-stream")
class XiongStream(StreamLaw):
    """m_0 + c l <= E m_l <= m_0 + (a + c) l; c = 1/2, a = 1 for an MLP as wide as the stream.

    Assumptions: pre-norm; every write is x + u; Xavier's init, nothing trained; layernorm or
    rmsnorm with an eps that is small against the stream; a block is multi-head attention, then a
    plain MLP.

    Proof. Behind the norm every token has mean square 1. So the MLP writes c and attention between
    0 and a (see `_writes`): with Xavier of gain 1, a = 1 and for ReLU c = 2 r / (1 + r)², r the
    inner width of the MLP over the width. Written with fresh weights of mean zero, updates are
    uncorrelated with the stream: mean squares add. Equality on the left where attention averages
    over many unlike tokens, on the right where it looks at one token, or all tokens are equal.

    The paper has m_0 = 1 and r = 1: 1 + l/2 <= E m_l <= 1 + 3 l/2. What a block adds does not
    depend on m_0, which is measured here. r other than 1, other activations and rmsnorm are derived
    here. With r = 4 the band is 8/25 to 33/25 per block: a slope below 1/2 is then no surprise.

    What is compared is the variance over features. It differs from the mean square by the square
    of the mean over features, a share of about 1/d where features are independent.
    """

    title = "pre-norm stream before training"
    statement = "m_0 + c l <= m_l <= m_0 + (1 + c) l, c = 2r/(1 + r)²"
    source = "Xiong et al. 2020, arXiv 2002.04745, for any inner width of the MLP"

    def conditions(self, facts: DepthFacts) -> list[Condition]:
        return [
            called("the norm stands before every branch", facts.placement, ("pre",),
                   "the placement"),
            plain_sum(facts),
            called("the init is xavier", facts.init, ("xavier",), "the init"),
            as_drawn(facts),
            *unit_norm(facts),
            *plain_branches(facts),
        ]  # fmt: skip

    def step(self, facts: DepthFacts, layer: int, before: Band) -> Band | None:
        writes = writes_of_block(facts)
        return None if writes is None else (before[0] + writes[0], before[1] + writes[1])
