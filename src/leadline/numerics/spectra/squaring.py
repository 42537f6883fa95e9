"""Many small nonnegative matrices at once: sigma_1 from the traces of powers.

With M = A'A, t_0 = tr M, N_0 = M / t_0 and N_{k+s} = N_k^(2^s) / t_{k+s}, t_{k+s} = tr N_k^(2^s):

    sigma_1^2 <= (tr M^p)^(1/p) = prod_{k = 0, s, 2 s, ..., K} t_k^(1 / 2^k),   p = 2^K.

Only every s-th square is divided by its trace: tr N^(2^s) >= n^(1 - 2^s), 3e-23 at s = 4 and n = 32,
which float32 holds with fifteen orders of magnitude to spare for what it drops.

tr M^p is the sum of the powers of all sigma_i^2, so the bound is at most n^(1/p) too large: 3e-6
at p = 2^20 and n = 32. N_K is x x' / |x|^2 with the leading right vector x, and the float64
quotient |A x| / |x| is the value and the lower end. Twenty batched products of small matrices cost less
than one batched eigensolver.

Rounding: all numbers are nonnegative, so each entry of a computed square is right to n u
relatively (u = 2^-24 in float32) and the largest eigenvalue, which is monotone in every entry
(Perron and Frobenius), as well. The error of step k counts 2^-k, twice the first in all: the bound
on sigma_1^2 is moved by 2 (max(m, n) + 4) u, that on sigma_1 by half.

This holds for products in true float32: `leading` hands over float64 where torch is set to multiply
float32 in a shorter format.
"""

from __future__ import annotations

import torch

__all__ = ["SCALED", "SQUARINGS", "squared_norm"]

Tensor = torch.Tensor

SQUARINGS = 20
"""K: the power is 2^20."""

SCALED = 4
"""s, which divides K; at s = 5 the trace could be 1e-47, below what float32 holds."""


def squared_norm(matrices: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(value, lower, upper) of nonnegative matrices [matrix, m, n], float64."""
    _, m, n = matrices.shape
    if m < n:
        matrices = matrices.mT
    power = torch.bmm(matrices.mT, matrices)
    spare = torch.empty_like(power)
    logarithm = torch.zeros(len(matrices), dtype=torch.float64, device=matrices.device)
    for k in range(SQUARINGS + 1):
        if k:
            torch.bmm(power, power, out=spare)
            power, spare = spare, power
        if k % SCALED == 0:
            trace = power.diagonal(dim1=1, dim2=2).sum(-1)
            logarithm += trace.double().log() / 2**k
            power.div_(trace[:, None, None])
    strongest = power.diagonal(dim1=1, dim2=2).argmax(-1)
    vector = power.gather(2, strongest[:, None, None].expand(-1, power.shape[1], 1)).double()
    image = torch.bmm(matrices.double(), vector)
    value = image.square().sum((1, 2)).sqrt() / vector.square().sum((1, 2)).sqrt()
    unit = torch.finfo(matrices.dtype).eps / 2
    upper = (logarithm / 2).exp() * (1 + (max(m, n) + 4) * unit)
    slack = (m + n + 8) * torch.finfo(torch.float64).eps
    return value, value * (1 - slack), torch.maximum(upper, value) * (1 + slack)
