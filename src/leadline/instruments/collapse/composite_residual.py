"""The composite measure of a matrix, of what is left of tokens without a common part, and its least.

    |A|_{1,inf} = sqrt(|A|_1 |A|_inf),   |A|_1 the largest column sum of |A|, |A|_inf the largest row sum

(Dong, Cordonnier, Loukas 2021, arXiv 2103.03404). It bounds the spectral norm and is
submultiplicative, but it is no norm: the triangle inequality fails.

The residual of the tokens X, [token, width], is X - 1 x'. The mean token x makes its Frobenius norm
least, not its composite measure: X = (0, 0, 0, 1)' has 1.061 at the mean and 1.000 at 0. The least

    min over x of sqrt(f(x) g(x)),   f = |X - 1 x'|_1,   g = |X - 1 x'|_inf

is searched for. f and g are convex, their product is not, so the search begins at three places: the
mean, the median of every feature (where f is least) and the middle of its range (near the least g).
From each it descends on log f + log g with the largest sum replaced by a p-norm whose p grows, in
steps by the size of each feature that shrink to nothing, and the best place it came by is kept: the
value is an upper estimate of the least. A lower bound comes with it, sqrt(f_low g_low):

    f_low = f at the medians, exactly the least f
    g_low = the largest of:  |x_i - x_k|_1 / 2 of the token x_i farthest out and any other x_k, and
            sum_j min_x sum_i w_i |X_ij - x| with w_i >= 0, sum_i w_i = 1 (its minima are weighted
            medians): below g at every x, and equal to the least g for the best w

Sums are in float64, the search in float32 on the centred and scaled tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from leadline.anatomy.exactness import exactly
from leadline.numerics.spectra.spectrum import singular_values
from leadline.numerics.tokens import PerExample, Tokens

__all__ = [
    "ROUNDING",
    "STEPS",
    "Smallest",
    "composite",
    "composite_residual",
    "composite_size",
    "smallest_composite",
    "smallest_composite_residual",
    "token_singular_values",
]

Tensor = torch.Tensor
ROUNDING = 8.0
"""In eps of the stream, times its size: what rounding alone leaves of tokens that have become equal.

Networks of 12 layers of attention without skip connections leave less than half of it. It is about
that floor alone: how far a chaotic network carries its rounding errors is not in it."""
STEPS = 100
"""Steps of a descent from each of its starts."""
_AT_ONCE = 1 << 22
"""Entries that the search holds together."""
_FIRST_POWER, _LAST_POWER = 8.0, 400.0
"""The p of the norm that stands for the largest sum, at the first and at the last step."""
_STRIDE = 0.2
"""The first step, in mean distances of a feature from the start."""
_KEEP_SLOPE, _KEEP_SQUARE = 0.9, 0.99
"""What a running mean of slopes and of their squares keeps per step."""
_SETTLED = 0.3
"""Weights of the tokens are gathered from this share of the search on."""


@dataclass(frozen=True)
class Smallest:
    """The least composite residual, one number per example: the best found, and a lower bound."""

    value: Tensor
    lower: Tensor


def composite(matrices: Tensor) -> Tensor:
    """sqrt(|A|_1 |A|_inf) of each matrix of [..., row, column], float64."""
    sizes = matrices.double().abs()
    return _root(sizes.sum(-2).amax(-1), sizes.sum(-1).amax(-1))


@exactly()
def composite_size(tokens: Tokens) -> PerExample:
    """|X|_{1,inf} of every example, of all tokens and of those after the first."""
    return _each(tokens, composite)


@exactly()
def composite_residual(tokens: Tokens) -> PerExample:
    """|X - 1 m'|_{1,inf} with m the mean token, of all tokens and of those after the first."""
    return _each(tokens, lambda x: composite(_centred(x)))


@exactly()
def smallest_composite_residual(tokens: Tokens, *, steps: int = STEPS) -> Smallest:
    """The least composite residual of every example of at least two tokens."""
    searches = [
        smallest_composite(x, steps=steps) for x in _examples(tokens) if len(x) and x.shape[1] > 1
    ]
    none = torch.zeros(0, dtype=torch.float64, device=tokens.x.device)
    return Smallest(
        torch.cat([none, *(one.value for one in searches)]),
        torch.cat([none, *(one.lower for one in searches)]),
    )


def smallest_composite(x: Tensor, *, steps: int = STEPS) -> Smallest:
    """min over x' of |X - 1 x'|_{1,inf} of every example of [example, token, width]."""
    together = max(1, _AT_ONCE // max(1, x[0].numel()))
    parts = [_searched(part, steps) for part in x.split(together)]
    return Smallest(
        torch.cat([part.value for part in parts]), torch.cat([part.lower for part in parts])
    )


@exactly()
def token_singular_values(tokens: Tokens, count: int) -> list[Tensor]:
    """The largest singular values of X itself, rank by rank: one number for every example that has it.

    In float64.
    """
    parts = [x for x in _examples(tokens) if x.shape[1] > 1]
    values = [singular_values(x.double()) for x in parts]
    most = max((one.shape[-1] for one in values), default=0)
    return [
        torch.cat([one[:, rank] for one in values if one.shape[-1] > rank])
        for rank in range(min(count, most))
    ]


def _searched(x: Tensor, steps: int) -> Smallest:
    centred = _centred(x)
    size = centred.abs().amax((1, 2))
    usable = torch.isfinite(size) & (size > 0)
    unit = torch.where(usable, size, 1.0)[:, None, None]
    exact = torch.where(usable[:, None, None], centred / unit, 0.0)
    middle = (exact.amax(1) + exact.amin(1)) / 2
    starts = torch.stack([torch.zeros_like(middle), exact.median(1).values, middle])
    here = exact.float()
    _, places, _ = _descend(
        here.repeat(3, 1, 1), starts.flatten(0, 1).float(), steps=steps, rows_only=False
    )
    tried = torch.cat([starts, places.double().reshape(starts.shape)])
    values = torch.stack([composite(exact - at.unsqueeze(1)) for at in tried])
    _, _, weights = _descend(here, middle.float(), steps=steps, rows_only=True)
    least_columns = (exact - starts[1].unsqueeze(1)).abs().sum(1).amax(1)
    least_rows = torch.maximum(_half_across(exact), _weighted(exact, weights.double()))
    lower = _root(least_columns, least_rows)
    unit = torch.where(size == 0, 0.0, torch.where(usable, size, float("nan")))
    value = values.amin(0)
    return Smallest(value * unit, torch.minimum(lower, value) * unit)


def _descend(x: Tensor, at: Tensor, *, steps: int, rows_only: bool) -> tuple[Tensor, ...]:
    """The best value and place from a start [example, width], and the mean weights of the rows.

    The slope of log |r|_p for sums r_i is sum_i r_i^(p-1) r_i' / sum_i r_i^p; steps are by the
    slope over its own running size (Kingma and Ba 2014), times the size of the feature.
    """
    stride = _STRIDE * (x - at.unsqueeze(1)).abs().mean(1)
    best = torch.full(x.shape[:1], torch.inf, dtype=x.dtype, device=x.device)
    place, slope, square = at, torch.zeros_like(at), torch.zeros_like(at)
    weights = x.new_zeros(x.shape[:2])
    tiny = torch.finfo(x.dtype).tiny
    for step in range(steps):
        progress = step / steps
        power = _FIRST_POWER * (_LAST_POWER / _FIRST_POWER) ** progress - 1
        apart = x - at.unsqueeze(1)
        signs = apart.sign()
        sizes = apart.abs_()
        rows = sizes.sum(2)
        highest = rows.amax(1)
        share = (rows / highest.clamp_min(tiny).unsqueeze(1)) ** power
        if progress >= _SETTLED:
            weights = weights + share / share.sum(1, keepdim=True).clamp_min(tiny)
        row_slope = share / (share * rows).sum(1, keepdim=True).clamp_min(tiny)
        downhill = torch.einsum("ei,eij->ej", row_slope, signs)
        now = highest
        if not rows_only:
            columns = sizes.sum(1)
            widest = columns.amax(1)
            share = (columns / widest.clamp_min(tiny).unsqueeze(1)) ** power
            column_slope = share / (share * columns).sum(1, keepdim=True).clamp_min(tiny)
            downhill = downhill + column_slope * signs.sum(1)
            now = highest * widest
        better = now < best
        best = torch.where(better, now, best)
        place = torch.where(better.unsqueeze(1), at, place)
        slope = _KEEP_SLOPE * slope + (1 - _KEEP_SLOPE) * downhill
        square = _KEEP_SQUARE * square + (1 - _KEEP_SQUARE) * downhill.square()
        mean = slope / (1 - _KEEP_SLOPE ** (step + 1))
        scale = (square / (1 - _KEEP_SQUARE ** (step + 1))).sqrt()
        at = at + stride * (1 - progress) ** 2 * mean / scale.clamp_min(tiny)
    return best, place, weights / weights.sum(1, keepdim=True).clamp_min(tiny)


def _weighted(x: Tensor, weights: Tensor) -> Tensor:
    """sum_j min over c of sum_i w_i |X_ij - c|, by weighted medians: [example]."""
    ordered, order = x.sort(1)
    here = weights.unsqueeze(-1).expand_as(x).gather(1, order)
    passed = here.cumsum(1)
    middle = (passed >= passed[:, -1:] / 2).to(torch.uint8).argmax(1, keepdim=True)
    return (here * (ordered - ordered.gather(1, middle)).abs()).sum((1, 2))


def _half_across(x: Tensor) -> Tensor:
    """Half the largest l1 distance from the token farthest out to any other: [example]."""
    out = x.abs().sum(2).argmax(1)
    farthest = x[torch.arange(len(x), device=x.device), out]
    return (x - farthest.unsqueeze(1)).abs().sum(2).amax(1) / 2


def _centred(x: Tensor) -> Tensor:
    """[example, token, width] less the mean token, twice: the first mean has rounding errors."""
    x = x.double()
    x = x - x.mean(1, keepdim=True)
    return x - x.mean(1, keepdim=True)


def _root(first: Tensor, second: Tensor) -> Tensor:
    """sqrt(a b), also where a b would leave the range of numbers."""
    return first.sqrt() * second.sqrt()


def _examples(tokens: Tokens) -> Iterator[Tensor]:
    """[example, token, width] without padding: the whole batch, or one example at a time."""
    if tokens.mask is None:
        yield tokens.x
        return
    for x, keep in zip(tokens.x, tokens.rows, strict=True):
        yield x[keep].unsqueeze(0)


def _each(tokens: Tokens, measure: Callable[[Tensor], Tensor]) -> PerExample:
    """Of every example with two tokens to compare, and with two after the first."""
    none = torch.zeros(0, dtype=torch.float64, device=tokens.x.device)
    parts = list(_examples(tokens))
    return PerExample(
        torch.cat([none, *(measure(x) for x in parts if x.shape[1] > 1)]),
        torch.cat([none, *(measure(x[:, 1:]) for x in parts if x.shape[1] > 2)]),
    )
