"""Statistics of the tokens of one tensor, each computed once and shared by all readers.

X is [example, token, width]; x_i its rows, n tokens of one example, m their mean.

    norm      |x_i|                    mean, variance   over the features of x_i
    residual  |X - 1 m'|_F             relative residual: over |X|_F
    cosine    mean of cos(x_i, x_j) over i != j = (|sum_i x_i/|x_i||^2 - n) / (n (n - 1))
    ranks     of C = X - 1 m' without the first token, with p_k = s_k(C)^2 / |C|_F^2:
              stable rank 1 / max p_k, entropy rank exp(-sum p_k log p_k)

Centring comes first: from the raw Gram matrix the residual cancels below 3e-4 of the stream,
exactly where tokens collapse. It is done twice (subtract the mean, then the mean of what is
left): the first difference is exact for nearly equal tokens, so that a relative residual of 1e-6
keeps five digits in float32. Values with the first token follow from those without it by sums of
positive terms: |C_all|^2 = |C|^2 + (n-1)/n |x_0 - m|^2. A massive first token would make every
rank 1, so ranks leave it out.

Padding: with a mask every example is reduced on its own tokens; the first token is the first real
one. Half precision is raised to float32 first. `numerics.reference` computes the same slowly.

Nothing here asks a GPU for a number: what could leave the range of float32 is scaled there by powers
of two always, not only where a look at the values says so. Where padding stands is the one thing
that has to be known; `real_rows` asks once, for all tensors with the same mask.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch

from leadline.numerics.devices import by_rows, is_far
from leadline.numerics.symmetric import eigenvalues, lower_gram

__all__ = ["PerExample", "Tokens", "dot", "ranks", "real_rows", "row_norms"]

Tensor = torch.Tensor
_SAFE = 1e15
"""Norms between 1/_SAFE and _SAFE have squares within the range of float32."""
_EXPONENT = 126.0
"""2^-126 and 2^126 are normal numbers of float32, so a tensor is scaled by no more than that."""


@dataclass(frozen=True)
class PerExample:
    """One number per example, over all its tokens and over all but the first."""

    all: Tensor
    rest: Tensor


class Tokens:
    """One tensor [example, token, width] and what is known about its tokens."""

    def __init__(
        self, x: Tensor, mask: Tensor | None = None, rows: list[Tensor] | None = None
    ) -> None:
        if x.dtype in (torch.float16, torch.bfloat16):
            x = x.float()
        self.x = x
        self.mask = mask
        self._rows = rows

    @property
    def length(self) -> int:
        return self.x.shape[1]

    @property
    def rows(self) -> list[Tensor]:
        """The positions of the real tokens of every example, where there is a mask."""
        if self._rows is None:
            assert self.mask is not None
            self._rows = real_rows(self.mask)
        return self._rows

    @property
    def real(self) -> Tensor:
        """[token, width]: the tokens of all examples without padding."""
        if self.mask is None:
            return self.x.flatten(0, 1)
        return torch.cat([self.x[e, keep] for e, keep in enumerate(self.rows)])

    @cached_property
    def norm(self) -> Tensor:
        """[example, token]"""
        return row_norms(self.x)

    @cached_property
    def mean(self) -> Tensor:
        """[example, token]"""
        return self.x.mean(-1)

    @cached_property
    def variance(self) -> Tensor:
        """[example, token], over the features, by two passes"""
        return by_rows(_squared_deviation, self.x) / self.x.shape[-1]

    @cached_property
    def _parts(self) -> list[tuple[Tensor, Tensor]]:
        """(tokens, norms) without padding: the whole batch, or one example at a time."""
        if self.mask is None:
            return [(self.x, self.norm)]
        return [
            (self.x[e, keep].unsqueeze(0), self.norm[e, keep].unsqueeze(0))
            for e, keep in enumerate(self.rows)
        ]

    @cached_property
    def _centred(self) -> list[_Centred]:
        return [_centre(x) for x, _ in self._parts]

    def _gathered(self, parts: list[PerExample]) -> PerExample:
        """Of every example that has two tokens to compare, or two after the first."""
        counts = [norm.shape[1] for _, norm in self._parts]
        none = self.x.new_zeros(0)
        return PerExample(
            torch.cat([none, *(f.all for f, n in zip(parts, counts, strict=True) if n >= 2)]),
            torch.cat([none, *(f.rest for f, n in zip(parts, counts, strict=True) if n >= 3)]),
        )

    @cached_property
    def residual(self) -> PerExample:
        """[example] each; an example of fewer than two tokens has none"""
        return self._gathered([PerExample(c.residual_all, c.residual_rest) for c in self._centred])

    @cached_property
    def relative_residual(self) -> PerExample:
        """[example] each; an example of fewer than two tokens has none"""
        sizes = [
            PerExample(
                c.residual_all / torch.linalg.vector_norm(norm, dim=1),
                c.residual_rest / torch.linalg.vector_norm(norm[:, 1:], dim=1),
            )
            for c, (_, norm) in zip(self._centred, self._parts, strict=True)
        ]
        return self._gathered(sizes)

    @cached_property
    def cosine(self) -> PerExample:
        """[example] each; an example of fewer than two tokens has none"""
        return self._gathered([_mean_cosine(x, norm) for x, norm in self._parts])

    def gram(self) -> list[Tensor]:
        """Gram matrices of the centred tokens after the first, for `ranks`, which needs no scale.

        One [example, k, k] per group of equal length, k the smaller of tokens and width; an
        example without two tokens after the first has none. Only the lower triangle is computed.
        """
        grams: list[Tensor] = []
        for centred in self._centred:
            c, size = centred.rest, centred.residual_rest
            if c.shape[1] < 2:
                continue
            if is_far(c) or not _is_safe(size):
                # Tokens whose squares leave the range of float32 as a whole have no known rank.
                scale = torch.where(size.isinf(), float("nan"), _unit_scale(size))
                c = c * torch.where(size == 0, 0.0, scale)[:, None, None]
            grams.append(lower_gram(c if c.shape[1] <= c.shape[2] else c.mT))
        return grams


@dataclass(frozen=True)
class _Centred:
    rest: Tensor
    residual_rest: Tensor
    residual_all: Tensor


def _centre(x: Tensor) -> _Centred:
    """[example, token, width] -> tokens after the first minus their mean, and both residuals."""
    first, rest = x[:, 0], x[:, 1:]
    count = rest.shape[1]
    if count == 0:
        none = torch.zeros(x.shape[0], dtype=x.dtype, device=x.device)
        return _Centred(rest, none * float("nan"), none)
    coarse = rest.mean(1, keepdim=True)
    centred = rest - coarse
    fine = centred.mean(1, keepdim=True)
    centred -= fine
    inner = _frobenius(centred)
    # (first - coarse) - fine, in this order: the first difference is exact for close tokens.
    apart = torch.linalg.vector_norm((first - coarse[:, 0]) - fine[:, 0], dim=-1)
    return _Centred(centred, inner, torch.hypot(inner, apart * (count / (count + 1)) ** 0.5))


def real_rows(mask: Tensor) -> list[Tensor]:
    """The positions of the real tokens of every example; one transfer from the device."""
    places = [[at for at, real in enumerate(row) if real] for row in mask.tolist()]
    return [torch.tensor(row, dtype=torch.long, device=mask.device) for row in places]


def row_norms(x: Tensor) -> Tensor:
    """Norms over the last axis, also where a sum of squares would leave the range of float32.

    A gradient of 1e-24 is a number, and its square is 0 in float32.
    """
    norms = torch.linalg.vector_norm(x, dim=-1)
    if x.dtype == torch.float64 or x.numel() == 0 or not (is_far(x) or not _is_safe(norms)):
        return norms
    return by_rows(_scaled_norms, x)


def _scaled_norms(x: Tensor) -> Tensor:
    # The largest of both ends and not of |x|, nor the norm of infinite order, which runs at a
    # fiftieth of the speed on a CPU: these two read the row and write nothing.
    scale = _unit_scale(torch.maximum(x.amax(-1), -x.amin(-1)))
    return torch.linalg.vector_norm(x * scale.unsqueeze(-1), dim=-1) / scale


def _is_safe(norms: Tensor) -> bool:
    """Whether the squares of all these norms are within the range of float32."""
    low, high = torch.aminmax(norms)
    return bool((low > 1 / _SAFE) & (high < _SAFE))


def _squared_deviation(x: Tensor) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return torch.linalg.vector_norm(centred, dim=-1).square()


def _unit_scale(sizes: Tensor) -> Tensor:
    """Powers of two that bring sizes near 1, as far as float32 reaches; NaN stays NaN."""
    return torch.exp2((-sizes.log2().floor()).clamp(-_EXPONENT, _EXPONENT))


def _frobenius(x: Tensor) -> Tensor:
    """[example]; by rows first: one long float32 sum is biased."""
    return torch.linalg.vector_norm(torch.linalg.vector_norm(x, dim=-1), dim=-1)


def _mean_cosine(x: Tensor, norm: Tensor) -> PerExample:
    weights = torch.where(norm == 0, 0.0, 1 / norm)
    without = weights.clone()
    without[:, 0] = 0
    # A zero token has the cosine 0 with every other, and none with itself.
    self_pairs = (norm != 0).sum(1), (norm[:, 1:] != 0).sum(1)
    sums = torch.stack([weights, without], dim=1) @ x
    squares = torch.linalg.vector_norm(sums, dim=-1).square()
    n = x.shape[1]

    return PerExample(
        (squares[:, 0] - self_pairs[0]) / max(n * (n - 1), 1),
        (squares[:, 1] - self_pairs[1]) / max((n - 1) * (n - 2), 1),
    )


def dot(first: Tokens, second: Tokens) -> Tensor:
    """[example, token]: cosine of corresponding tokens; 0 where one of them is 0."""
    product = by_rows(torch.linalg.vecdot, first.x, second.x)
    scale = first.norm * second.norm
    return torch.where(scale == 0, 0.0, product / scale)


def ranks(gram: Tensor) -> tuple[Tensor, Tensor]:
    """Stable and entropy rank from Gram matrices; both 0 where all tokens are equal.

    NaN in, NaN out.
    """
    if gram.shape[-1] == 0:
        none = torch.full(gram.shape[:-2], float("nan"), dtype=gram.dtype, device=gram.device)
        return none, none
    # A row with a value that is not finite has no finite square either: the diagonal shows it.
    finite = torch.isfinite(gram.diagonal(dim1=-2, dim2=-1).sum(-1))
    shares = eigenvalues(torch.where(finite[..., None, None], gram, 0.0)).clamp_min(0)
    total = shares.sum(-1, keepdim=True)
    shares = torch.where(total > 0, shares / total, 0.0)
    largest = shares.amax(-1)
    stable = torch.where(largest > 0, 1 / largest, 0.0)
    entropy = torch.where(largest > 0, torch.special.entr(shares).sum(-1).exp(), 0.0)
    unknown = torch.where(finite, 0.0, float("nan"))
    return stable + unknown, entropy + unknown
