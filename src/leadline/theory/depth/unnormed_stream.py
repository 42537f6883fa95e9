"""Without any norm the stream grows exponentially with the layers."""

from __future__ import annotations

from leadline.theory._condition import Condition
from leadline.theory.depth._assumptions import as_drawn, called, plain_branches, plain_sum
from leadline.theory.depth._facts import DepthFacts
from leadline.theory.depth._law import LAWS, Band
from leadline.theory.depth._stream_law import StreamLaw
from leadline.theory.depth._writes import attention_write, mlp_write

__all__ = ["UnnormedStream", "no_norm", "relu"]


@LAWS.register("unnormed-stream")
class UnnormedStream(StreamLaw):
    """m_0 (1 + c)^l <= E m_l <= m_0 ((1 + a)(1 + c))^l.

    Assumptions: no norm; every write is x + u; Xavier's init, nothing trained; a block is
    multi-head attention, then a plain MLP with ReLU; at the entry all tokens have one mean square.

    Proof. A branch now reads the stream itself. Attention writes between 0 and a times the mean
    square of the tokens it mixes, the MLP c times that of its token, since ReLU is homogeneous (see
    `_writes`). Updates are uncorrelated with the stream in the mean over output weights, so
    attention multiplies the mean square by 1 to 1 + a and the MLP by 1 + c. With Xavier and an MLP
    as wide as the stream: between 1.5 and 3 per block. On the right the largest token counts: no
    token gets above it, and the mean over tokens stays below where all start alike.

    With writes x + g u, a and c are g² times as large: see `noci`.
    """

    title = "stream without norms"
    statement = "m_0 (1 + c)^l <= m_l <= m_0 ((1 + a)(1 + c))^l"
    source = "derived; after Noci et al. 2022, arXiv 2206.03126"

    def conditions(self, facts: DepthFacts) -> list[Condition]:
        return [
            no_norm(facts),
            plain_sum(facts),
            called("the init is xavier", facts.init, ("xavier",), "the init"),
            as_drawn(facts),
            *plain_branches(facts),
            relu(facts),
        ]

    def step(self, facts: DepthFacts, layer: int, before: Band) -> Band | None:
        attention, mlp = attention_write(facts), mlp_write(facts)
        if attention is None or mlp is None or facts.gain is None:
            return None
        share = facts.gain**2
        low, high = 1.0 + share * mlp, (1.0 + share * attention) * (1.0 + share * mlp)
        return before[0] * low, before[1] * high


def no_norm(facts: DepthFacts) -> Condition:
    """Check that no norm stands on the way."""
    assumption = "there is no norm in the blocks"
    if facts.norm == "none" or facts.placement == "none":
        return Condition(assumption, True)
    if facts.placement is None:
        return Condition(assumption, False)
    return Condition(assumption, False, f"the placement is {facts.placement}")


def relu(facts: DepthFacts) -> Condition:
    """Check that the MLP is homogeneous."""
    return called("the activation is relu, which is homogeneous", facts.mlp, ("relu",), "the MLP")
