"""Branches divided by sqrt(2 L): without norms, the stream still stays of order one."""

from __future__ import annotations

from leadline.theory._condition import Condition
from leadline.theory.depth._assumptions import as_drawn, called, plain_branches, scaled_by_writes
from leadline.theory.depth._facts import DepthFacts
from leadline.theory.depth._law import LAWS
from leadline.theory.depth.unnormed_stream import UnnormedStream, no_norm, relu


@LAWS.register("noci")
class Noci(UnnormedStream):
    """m_0 (1 + c/2L)^l <= E m_l <= m_0 ((1 + a/2L)(1 + c/2L))^l <= m_0 e^((a + c)/2).

    Assumptions: no norm; every write is x + u / sqrt(2 L), L blocks of two writes; Xavier's init,
    nothing trained; a block is multi-head attention, then a plain MLP with ReLU; at the entry all
    tokens have one mean square.

    Proof. As `unnormed-stream` with updates divided by sqrt(2 L), their mean squares by 2 L. Then
    (1 + t/2L)^L <= e^(t/2) for each of a and c. With Xavier and an MLP as wide as the stream the
    last stream is at most e^(3/4) = 2.12 times the first, at any depth, where without the factor
    it is between 1.5^L and 3^L times.

    Noci et al. scale the branches by 1/sqrt(L), and find the forward pass stable and the
    correlation of tokens bounded away from 1; constants for two writes per block are derived here.
    """

    title = "stream without norms, branches scaled"
    statement = "m_0 (1 + c/2L)^l <= m_l <= m_0 ((1 + a/2L)(1 + c/2L))^l"
    source = "Noci et al. 2022, arXiv 2206.03126 (the scaling); constants derived"

    def conditions(self, facts: DepthFacts) -> list[Condition]:
        return [
            no_norm(facts),
            scaled_by_writes(facts),
            called("the init is xavier", facts.init, ("xavier",), "the init"),
            as_drawn(facts),
            *plain_branches(facts),
            relu(facts),
        ]
