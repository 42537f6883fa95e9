"""Attention on tokens that have nearly become equal.

With q = 1 q0' + Q, k = 1 k0' + K, v = 1 v0' + V the logits of row i are, up to a constant of the
row, a_j + t_ij with a = scale K q0 and t = scale Q K'. Let p = softmax(a), j* its largest entry,
and count t and V from there (t_ij - t_ij*, V_j - V_j*: neither changes what follows). With
d = expm1(t)

    P_ij - p_j = p_j (d_ij - sum_k p_k d_ik) / (1 + sum_k p_k d_ik) =: D_ij
    output     = 1 (v0 + V' p)' + D V

t is quadratic in the differences between tokens and D V cubic, with no small difference of large
numbers anywhere: d = t (expm1(t) / t), and t has an exponent of its own. Where t is too large for
expm1 the plain softmax is taken; rows differ by much then, and nothing cancels.

With a causal mask the first token is the reference, V_1 = 0 and the output is 1 v0' + P V: the
rest is averaged and only shrinks by a factor per layer.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch.nn import functional as F

from leadline.errors import InputError
from leadline.numerics.scaled import Scaled, added, scaled, shifted
from leadline.numerics.split import Split, rule

__all__ = ["heads_of"]

Tensor = torch.Tensor
FAINT = 1e-200
"""So small that the first order is exact; a little further float64 runs out of digits."""
LARGE = 500.0
"""Above this expm1 comes near the end of float64."""


@rule(F.scaled_dot_product_attention)
def _attention(
    query: Split,
    key: Split,
    value: Split,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Split:
    if attn_mask is not None:
        raise InputError("Attention with padding cannot be followed; give whole sequences.")
    if is_causal != query.first:
        raise InputError("Causal and bidirectional attention in one network cannot be followed.")
    if enable_gqa:
        times = query.shape[1] // key.shape[1]
        key, value = (
            one.reshaped(lambda values: values.repeat_interleave(times, 1)) for one in (key, value)
        )
    scaling = query.shape[-1] ** -0.5 if scale is None else scale
    across, within = heads_of(query, key, scaling)
    if is_causal:
        return _causally(value, across, within)
    return _both_ways(value, across, within)


def heads_of(query: Split, key: Split, scaling: float) -> tuple[Scaled, Scaled]:
    """a [run, head, 1, key] and t [run, head, query, key] of the module's first lines."""
    across = (query.base.values @ key.rest.values.mT) * scaling
    within = (query.rest.values @ key.rest.values.mT) * scaling
    return (
        query.rounding(scaled(across, _sum(query.base.exponent, key.rest.exponent))),
        query.rounding(scaled(within, _sum(query.rest.exponent, key.rest.exponent))),
    )


def _sum(first: int | None, second: int | None) -> int | None:
    return None if first is None or second is None else first + second


def _real(logits: Scaled) -> Tensor:
    real = logits.at(0)
    if not bool(torch.isfinite(real).all()):
        raise InputError(
            "Attention logits exceed the range of float64: the weights or the stream are too "
            "large; scale them down."
        )
    return real


def _causally(value: Split, across: Scaled, within: Scaled) -> Split:
    logits = _real(across) + _real(within)
    tokens = logits.shape[-1]
    hidden = torch.ones(tokens, tokens, dtype=torch.bool, device=logits.device).triu(1)
    weights = torch.softmax(logits.masked_fill(hidden, -math.inf), -1)
    rest = value.rounding(value.rest.map(weights @ value.rest.values))
    return replace(value, rest=rest)


def _both_ways(value: Split, across: Scaled, within: Scaled) -> Split:
    logits = _real(across)
    shared = torch.softmax(logits, -1)
    runs, heads = shared.shape[:2]
    # One column for all runs: they are to differ by rounding alone.
    most = shared[:1].argmax(-1, keepdim=True).expand(runs, heads, 1, 1)
    differences = within.values - _column(within.values, most)
    values = value.rest.values - _row(value.rest.values, most)
    exponent = within.exponent
    size = float(differences.abs().max())
    beyond = exponent is not None and size > 0.0 and math.log2(size) + exponent > math.log2(LARGE)
    if beyond:
        return _plainly(value, logits + _real(within))
    apart = Scaled(torch.zeros_like(value.rest.values), None)
    if exponent is not None and value.rest.exponent is not None:
        t = shifted(differences, exponent)
        faint = t.abs() < FAINT
        safe = torch.where(faint, 1.0, t)
        d = differences * torch.where(faint, 1.0, torch.expm1(safe) / safe)
        mean = (shared * d).sum(-1, keepdim=True)
        weights = shared * (d - mean) / (1 + shifted(mean, exponent))
        apart = scaled(weights @ values, exponent + value.rest.exponent)
    base = added(value.base, value.rest.map(shared @ value.rest.values))
    return value.settled(base, value.rounding(apart))


def _plainly(value: Split, logits: Tensor) -> Split:
    weights = torch.softmax(logits, -1)
    runs, heads = weights.shape[:2]
    most = weights[:1].sum(2, keepdim=True).argmax(-1, keepdim=True).expand(runs, heads, 1, 1)
    there = _row(value.rest.values, most)
    base = added(value.base, value.rest.map(there))
    return value.settled(base, value.rest.map(weights @ (value.rest.values - there)))


def _column(matrix: Tensor, at: Tensor) -> Tensor:
    return matrix.gather(-1, at.expand(*matrix.shape[:-1], 1))


def _row(matrix: Tensor, at: Tensor) -> Tensor:
    return matrix.gather(-2, at.expand(*matrix.shape[:-2], 1, matrix.shape[-1]))
