"""Attention on tokens that have nearly become equal.

With q = 1 q0' + Q, k = 1 k0' + K, v = 1 v0' + V the logits of row i are, up to a constant of the
row, a_j + t_ij with a = scale K q0 and t = scale Q K'. Let p = softmax(a), j* its largest entry,
and count t and V from there (t_ij - t_ij*, V_j - V_j*: neither changes what follows). With
d = expm1(t)

    P_ij - p_j = p_j (d_ij - sum_k p_k d_ik) / (1 + sum_k p_k d_ik) =: D_ij
    output     = 1 (v0 + V' p)' + D V

t is quadratic in the differences between tokens and D V cubic, with no small difference of large
numbers anywhere: d = t (expm1(t) / t), and t has an exponent of its own. Where t is too large for
expm1 the plain softmax P takes the place of D; rows differ by much then, and nothing cancels.

With a causal mask the first token is the reference, V_1 = 0 and the output is 1 v0' + P V: the
rest is averaged and only shrinks by a factor per layer.

Column j* (or the first) meets a zero row of V, so what counts is how large the other weights are.
They may be below the range of float64: they are kept as logarithms, and the largest of them,
exp(lambda), goes to the exponent of the result.
"""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Context, Decimal
from typing import Any

import torch
from torch.nn import functional as F

from leadline.errors import InputError
from leadline.instruments.collapse.split.scaled import (
    FAINT,
    REACH,
    Scaled,
    added,
    refuse_loss,
    scaled,
    shifted,
)
from leadline.instruments.collapse.split.split import Split, rule

__all__ = ["heads_of"]

Tensor = torch.Tensor
LARGE = 500.0
"""Above this expm1 comes near the end of float64."""
_LN2_HIGH = math.ldexp(round(math.ldexp(math.log(2.0), 30)), -30)
_LN2_LOW = float(Decimal(2).ln(Context(prec=50)) - Decimal(_LN2_HIGH))
"""ln 2 in two parts: whole multiples of the first are exact."""


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
    """The logits as a [run, head, 1, key] and t [run, head, query, key], scaled."""
    across = (query.base.values @ key.rest.values.mT) * scaling
    within = (query.rest.values @ key.rest.values.mT) * scaling
    sizes = [one.rest.values.abs().amax((0, 2, 3)) for one in (query, key)]
    refuse_loss(within.abs().amax((0, 2, 3)), (sizes[0] > 0) & (sizes[1] > 0))
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
    logs = torch.log_softmax(logits.masked_fill(hidden, -math.inf), -1)
    # The first token is the reference: its row of the values is zero, and it sees only itself.
    weights, exponent = _sized(logs.index_fill(-1, torch.tensor(0, device=logs.device), -math.inf))
    return replace(value, rest=value.rounding(_mixed(weights, value.rest, exponent)))


def _both_ways(value: Split, across: Scaled, within: Scaled) -> Split:
    """Each head by the form that suits it."""
    exponent = 0 if within.exponent is None else within.exponent
    spread = within.values[0].amax((-2, -1)) - within.values[0].amin((-2, -1))
    large = torch.log2(spread) + max(-REACH, min(REACH, exponent)) > math.log2(LARGE)
    if not bool(large.any()):
        return _closely(value, across, within)
    if bool(large.all()):
        return _plainly(value, _real(across) + _real(within))
    some, others = large.nonzero().flatten(), (~large).nonzero().flatten()
    parts = [
        _plainly(_heads(value, some), _real(_picked(across, some)) + _real(_picked(within, some))),
        _closely(_heads(value, others), _picked(across, others), _picked(within, others)),
    ]
    order = torch.cat((some, others)).argsort()
    return replace(
        value,
        base=_together([part.base for part in parts], order),
        rest=_together([part.rest for part in parts], order),
    )


def _heads(value: Split, which: Tensor) -> Split:
    return value.reshaped(lambda values: values.index_select(1, which))


def _picked(logits: Scaled, which: Tensor) -> Scaled:
    return scaled(logits.values.index_select(1, which), logits.exponent)


def _together(parts: list[Scaled], order: Tensor) -> Scaled:
    tops = [part.exponent for part in parts if part.exponent is not None]
    top = max(tops, default=None)
    values = torch.cat([p.values if top is None else p.at(top) for p in parts], 1)
    return scaled(values.index_select(1, order), top)


def _closely(value: Split, across: Scaled, within: Scaled) -> Split:
    logs = torch.log_softmax(_real(across), -1)
    runs, heads = logs.shape[:2]
    # One column for all runs: they are to differ by rounding alone.
    most = logs[:1].argmax(-1, keepdim=True).expand(runs, heads, 1, 1)
    differences = within.values - _column(within.values, most)
    exponent = within.exponent
    there = _row(value.rest.values, most)
    moved = value.rest.map(value.rest.values - there)
    shares, power = _sized(logs.scatter(-1, most, -math.inf))
    base = added(value.base, value.rest.map(there))
    if power is not None:
        base = added(base, _mixed(shares, moved, power))
    apart = Scaled(torch.zeros_like(value.rest.values), None)
    if exponent is not None and power is not None and moved.exponent is not None:
        t = shifted(differences, exponent)
        faint = t.abs() < FAINT
        safe = torch.where(faint, 1.0, t)
        d = differences * torch.where(faint, 1.0, torch.expm1(safe) / safe)
        mean = shifted((shares * d).sum(-1, keepdim=True), power)
        weights = shares * (d - mean) / (1 + shifted(mean, exponent))
        apart = _mixed(weights, moved, power + exponent)
    return value.settled(base, value.rounding(apart))


def _plainly(value: Split, logits: Tensor) -> Split:
    logs = torch.log_softmax(logits, -1)
    runs, heads = logs.shape[:2]
    most = logs[:1].exp().sum(2, keepdim=True).argmax(-1, keepdim=True).expand(runs, heads, 1, 1)
    there = _row(value.rest.values, most)
    weights, power = _sized(logs.scatter(-1, most.expand(*logs.shape[:-1], 1), -math.inf))
    moved = value.rest.map(value.rest.values - there)
    base = added(value.base, value.rest.map(there))
    return value.settled(base, value.rounding(_mixed(weights, moved, power)))


def _sized(logs: Tensor) -> tuple[Tensor, int | None]:
    """exp(logs) as numbers of which the largest is about 1, and a power of two.

    The power is None where nothing is left: one key, or all but one hidden.
    """
    top = float(logs[0].max())
    if not math.isfinite(top):
        return torch.zeros_like(logs), None
    power = math.floor(top / math.log(2.0))
    return torch.exp((logs - power * _LN2_HIGH) - power * _LN2_LOW), power


def _mixed(weights: Tensor, values: Scaled, power: int | None) -> Scaled:
    """weights 2^power times the values."""
    mixed = weights @ values.values
    heard = weights.abs().amax((0, 2, 3)) > 0
    refuse_loss(mixed.abs().amax((0, 2)), (values.values.abs().amax((0, 2)) > 0) & heard[:, None])
    return scaled(mixed, _sum(values.exponent, power))


def _column(matrix: Tensor, at: Tensor) -> Tensor:
    return matrix.gather(-1, at.expand(*matrix.shape[:-1], 1))


def _row(matrix: Tensor, at: Tensor) -> Tensor:
    return matrix.gather(-2, at.expand(*matrix.shape[:-2], 1, matrix.shape[-1]))
