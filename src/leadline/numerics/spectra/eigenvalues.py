"""All singular values by a float64 eigensolver or SVD, with the interval of its backward error.

The eigenvalues of G = A'A (or A A', the smaller), computed in float64, are those of G + E:
forming G moves it by at most m eps |A|_F^2 (sums of m products), the symmetric eigensolver by a
small multiple of n eps |G| (Golub and Van Loan, Matrix Computations, section 8.3; the multiple
stays near one in practice, ten is allowed). By Weyl's inequality no eigenvalue moves by more than

    |E| <= (m + 10 n) eps |A|_F^2,   n the smaller side, eps = 2^-52,

so sigma_k lies between the roots of lambda_k -+ |E|. No sign is needed: this is the way of
matrices with a negative entry. Matrices are scaled by their largest entry first, so that squares
neither overflow nor vanish. A singular value below sqrt(eps) of the largest is not resolved by G:
the whole spectrum comes from a float64 SVD.
"""

from __future__ import annotations

import torch

__all__ = ["by_eigenvalues", "by_svd"]

Tensor = torch.Tensor


def by_eigenvalues(matrices: Tensor, *, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """(value, lower, upper) [matrix, count] of finite matrices [matrix, m, n], largest first."""
    a, scale = _scaled(matrices)
    if a.shape[1] < a.shape[2]:
        a = a.mT
    m, n = a.shape[1:]
    gram = torch.bmm(a.mT, a)
    values = torch.linalg.eigvalsh(gram).flip(-1)[:, :count].clamp_min(0)
    if values.shape[1] < count:  # a single row or column has no second
        values = torch.nn.functional.pad(values, (0, count - values.shape[1]))
    error = gram.diagonal(dim1=1, dim2=2).sum(-1) * (m + 10 * n) * torch.finfo(torch.float64).eps
    # What the matrix does not have is zero exactly.
    error = error[:, None] * (torch.arange(count, device=a.device) < n)
    lower = (values - error).clamp_min(0).sqrt()
    upper = (values + error).sqrt()
    return values.sqrt() * scale, lower * scale, upper * scale


def by_svd(matrices: Tensor) -> Tensor:
    """[matrix, min(m, n)], float64, descending, of finite matrices."""
    a, scale = _scaled(matrices)
    return torch.linalg.svdvals(a) * scale


def _scaled(matrices: Tensor) -> tuple[Tensor, Tensor]:
    """Float64 matrices with a largest entry between 1 and 2, and the powers of two taken out."""
    a = matrices.double()
    largest = a.abs().amax((1, 2))
    _, exponent = torch.frexp(largest)
    scale = torch.ldexp(torch.ones_like(largest), exponent - 1)
    return a / scale[:, None, None], scale[:, None]
