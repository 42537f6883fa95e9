"""The numbers that theorems on rank collapse ask for: of one layer, and of a stack of layers.

Notation. X [token, width] enters a layer, n tokens; R = res(X) = X - 1x', x the mean of the tokens.
Weights act from the right: head h has W_QK,h = W_Q,h W_K,h' and W_h = W_V,h W_O,h, both of the
stream's width. |A|_1 is the largest column sum of |A|, |A|_inf the largest row sum, and

    |A|_{1,inf} = sqrt(|A|_1 |A|_inf)                               the composite measure
    E_h = scaling R W_QK,h R',   osc_i = max_j E_ij - min_j E_ij
    gamma_h = sqrt(sum_i osc_i  max_i osc_i) / (2 |E_h|_1)
    joint gamma = sqrt(sum_h sum_i osc_h,i  sum_h max_i osc_h,i) / (2 sum_h |E_h|_1)

The composite measure is submultiplicative and no norm: its triangle inequality fails. Where E_h = 0
(equal tokens, no W_QK) gamma is 0.

Source: Dong, Cordonnier, Loukas 2021, arXiv 2103.03404, second version: gamma is not in the first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["LayerFacts", "Mask", "StackFacts"]

Mask = Literal["none", "causal", "other"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerFacts:
    """One layer. Tuples have one number per head; empty: not known. None: not known."""

    query_key: tuple[float, ...] = ()
    """|W_QK,h|_1."""
    value_output_1: tuple[float, ...] = ()
    """|W_h|_1."""
    value_output_inf: tuple[float, ...] = ()
    """|W_h|_inf."""
    scaling: float | None = None
    """What the products of queries and keys are multiplied by: 1 / sqrt(d_qk)."""
    gamma: tuple[float, ...] = ()
    """gamma_h, measured on what enters this layer."""
    joint_gamma: float | None = None
    lipschitz: float | None = 1.0
    """lambda of the MLP after attention; 1 without one; None: it has none (gated), or not known."""
    alignment: float | None = None
    """The smallest cosine of res X and res U over the writes: X the stream before, U the update."""
    overlap: float | None = None
    """The largest |<X, U>| / (|X| |U|) over the writes."""
    diagonal: float | None = None
    """The largest P_ii over i >= 2 and heads."""
    value_gain: float | None = None
    """The largest singular value of sum_h W_h."""
    cubic_law: float | None = None
    """log10 |(scaling / n) sum_h R W_QK,h R' R W_h|_F."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StackFacts:
    """A stack of layers and the residuals between them, as log10: depth + 1 numbers or none."""

    tokens: int
    layers: tuple[LayerFacts, ...]
    mask: Mask = "none"
    """none: every token sees every token. causal: token i sees 1..i, exactly. other: else."""
    skip: bool = False
    """Whether some write keeps the stream."""
    keep: float | None = None
    """What every write keeps of the stream; 0 where one keeps less, or a norm follows it.

    None: not known; writes then keep the full stream if there is a skip and no norm.
    """
    layered: bool = True
    """Whether every layer is one self-attention, then at most one MLP."""
    norm: bool = False
    """Whether some norm stands on the way."""
    turned: bool | None = False
    """Whether rotary or other positions enter the logits. None: not known."""
    biased: bool = False
    """Whether values or outputs have biases."""
    plain: bool = True
    """Whether the logits are scaled products of queries and keys: no soft cap, no QK-norm."""
    stochastic: bool = True
    """Whether every row of every pattern sums to one."""
    log10_composite: tuple[float, ...] = ()
    """Of |res X|_{1,inf} at the mean of the tokens."""
    log10_smallest: tuple[float, ...] = ()
    """Of the smallest |X - 1x'|_{1,inf} over x, as far as it was found: an upper estimate."""
    log10_frobenius: tuple[float, ...] = ()
    """Of |res X|_F."""

    @property
    def depth(self) -> int:
        """How many layers there are."""
        return len(self.layers)
