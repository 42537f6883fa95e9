"""How the gradient of the last MLP's output weight depends on the depth, before training."""

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
from leadline.theory.depth._law import LAWS, Law

_EXPONENTS = {"post": 0.0, "pre": -0.5}


@LAWS.register("xiong-last-gradient")
class XiongLastGradient(Law):
    """|dLoss / dW_2 of the last block| ~ L^0 for post-norm and L^(-1/2) for pre-norm.

    Assumptions: every write is x + u; Xavier's init, nothing trained; layernorm or rmsnorm with
    an eps that is small against the stream; a block is multi-head attention, then a plain MLP; a
    pre-norm stack has a norm after its last block.

    Proof. The gradient is (the gradient at the last stream) x (what W_2 reads)'. What W_2 reads
    has a mean square of order one at any depth, because a norm stands before the MLP (pre) or
    before the block (post). The gradient at the last stream comes through the last norm, whose
    Jacobian has norm 1/s, s² the mean square that it reads (see `norm_jacobian`). Post-norm: that
    is the stream before the last norm, of order one at any depth: L^0. Pre-norm: it is m_L, which
    grows linearly with L (`xiong-stream`): L^(-1/2).

    A power law is a limit: with m_L = m_0 + b L the slope between finite depths is
    -(1/2) b L / (m_0 + b L), a little above -1/2.
    """

    title = "gradient of the last MLP before training"
    statement = "|dLoss/dW_2| ~ L^0 (post), L^-1/2 (pre)"
    source = "Xiong et al. 2020, arXiv 2002.04745, theorem 1"
    quantity = "gradient.parameters"
    along = "depth"

    def conditions(self, facts: DepthFacts) -> list[Condition]:
        conditions = [
            called("the placement is pre or post", facts.placement, tuple(_EXPONENTS),
                   "the placement"),
            plain_sum(facts),
            called("the init is xavier", facts.init, ("xavier",), "the init"),
            as_drawn(facts),
            *unit_norm(facts),
            *plain_branches(facts),
        ]  # fmt: skip
        if facts.placement == "pre":
            because = "no norm stands after the last block" if facts.final_norm is False else ""
            holds = facts.final_norm is True
            conditions.append(Condition("a norm stands after the last block", holds, because))
        return conditions

    def exponent(self, facts: DepthFacts) -> float | None:
        return None if facts.placement is None else _EXPONENTS.get(facts.placement)
