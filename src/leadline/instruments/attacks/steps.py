"""The steps of attacked networks on a stream X = 1c' + R, without cancellation, and its measures.

With u_j = scaling <q(c), R_j W_K> and E = scaling R W_QK R':

    p = softmax(u),   P - 1p' = p_j (e_ij - ebar_i) / (1 + ebar_i),   e = expm1(E), ebar = e p
    MLP:   1 f(c)'  +  (act(h + R W_1) - act(h)) W_2,   h = c W_1 + b_1

ReLU's difference is a case split, GELU's an integral of its slope.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from numpy.polynomial.legendre import leggauss
from torch import Tensor

__all__ = [
    "TINY",
    "CentredStream",
    "better_centre",
    "columns",
    "composite",
    "gelu_step",
    "length",
    "over",
    "pattern_shift",
    "relu_step",
    "rows",
]

SMALL = 0.1
"""Below this size of E the difference of two patterns is computed without cancellation."""
NODES = 8
"""Gauss-Legendre nodes for the mean slope of GELU over a step of at most 1."""
_GAUSS = tuple(zip(*(row.tolist() for row in leggauss(NODES)), strict=True))
TINY = torch.finfo(torch.float64).tiny


class CentredStream(NamedTuple):
    """A stream X = 1 centre' + rest: [network, 1, width] and [network, token, width]."""

    centre: Tensor
    rest: Tensor

    def moved(self, by: Tensor) -> CentredStream:
        """The same stream with its centre moved."""
        return CentredStream(self.centre + by, self.rest - by)

    def at_mean(self) -> CentredStream:
        """The same stream around the mean of its tokens."""
        return self.moved(self.rest.mean(-2, keepdim=True))


def composite(x: Tensor) -> Tensor:
    """sqrt(|x|_1 |x|_inf) of the matrices of a batch."""
    return columns(x).sqrt() * rows(x).sqrt()


def columns(x: Tensor) -> Tensor:
    """|x|_1, the largest column sum of |x|, of the matrices of a batch."""
    return x.abs().sum(-2).amax(-1)


def rows(x: Tensor) -> Tensor:
    """|x|_inf, the largest row sum of |x|, of the matrices of a batch."""
    return x.abs().sum(-1).amax(-1)


def length(x: Tensor) -> Tensor:
    """The Frobenius norm, also where squares would underflow."""
    top = x.detach().abs().amax((-2, -1), keepdim=True)
    scale = torch.where(top > 0, top, 1.0)
    square = (x / scale).square().sum((-2, -1))
    return torch.where(square > 0, scale.flatten() * square.clamp_min(TINY).sqrt(), 0.0)


def over(above: Tensor, below: Tensor) -> Tensor:
    """The ratio, 0 where there is nothing below."""
    there = below > 0
    return torch.where(there, above / torch.where(there, below, 1.0), 0.0)


def pattern_shift(p: Tensor, even: Tensor, scores: Tensor) -> Tensor:
    """P - 1p' with P = softmax(even + scores): without cancellation where the scores are small."""
    small = scores.abs().amax(-1, keepdim=True) < SMALL
    grown = torch.expm1(torch.where(small, scores, 0.0))
    mean = (grown * p).sum(-1, keepdim=True)
    plain = (even + scores).softmax(-1) - p
    return torch.where(small, p * (grown - mean) / (1.0 + mean), plain)


def relu_step(here: Tensor, step: Tensor) -> Tensor:
    """relu(here + step) - relu(here), exactly."""
    return torch.where(here > 0, torch.maximum(step, -here), torch.relu(here + step))


def gelu_step(here: Tensor, step: Tensor) -> Tensor:
    """gelu(here + step) - gelu(here): over a short step the integral of the slope."""
    gelu = torch.nn.functional.gelu
    short = step.abs() <= 1.0
    bounded = torch.where(short, step, 0.0)
    mean = sum(
        0.5 * weight * _gelu_slope(here + (0.5 + 0.5 * node) * bounded) for node, weight in _GAUSS
    )
    return torch.where(short, bounded * mean, gelu(here + step) - gelu(here))


def _gelu_slope(x: Tensor) -> Tensor:
    normal = torch.exp(-0.5 * x.square()) / math.sqrt(2.0 * math.pi)
    return 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0))) + x * normal


def better_centre(*states: CentredStream) -> CentredStream:
    """Return one stream, held about one or several centres, about a centre where the composite
    measure is small.

    Tried are the centres themselves, mean, median and middle of the tokens, and their means by
    twos.
    """
    places: list[CentredStream] = []
    for state in states:
        rest = state.rest
        mean, median = rest.mean(-2, keepdim=True), rest.median(-2, keepdim=True).values
        middle = 0.5 * (rest.amax(-2, keepdim=True) + rest.amin(-2, keepdim=True))
        ends = (torch.zeros_like(mean), mean, median, middle)
        places += [state.moved(0.5 * (a + b)) for i, a in enumerate(ends) for b in ends[i:]]
    centres, rests = (torch.stack(parts) for parts in zip(*places, strict=True))
    with torch.no_grad():
        best = composite(rests).argmin(0), torch.arange(rests.shape[1])
    return CentredStream(centres[best], rests[best])
