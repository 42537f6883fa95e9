"""How much of X_0 a linear map can still read out of X_l: held-out R^2 of a ridge regression.

Tokens (rows, all examples together) are split in two halves at random, seeded. Both halves are
centred by the training mean; with K = X X' on the training half,

    prediction = X_test X' (K + lambda tr(K)/n I)^-1 Y,   R^2 = 1 - |Y_test - prediction|^2 / |Y_test|^2

in float64, by the dual form: n tokens cost n^3, the width only n^2. R^2 is 1 when nothing is
lost, 0 or below when nothing can be read.
"""

from __future__ import annotations

import torch

from leadline.numerics.devices import widest_float

__all__ = ["held_out_r2"]

Tensor = torch.Tensor


def held_out_r2(source: Tensor, target: Tensor, *, ridge: float, seed: int) -> Tensor:
    """R^2 of target [token, width] from source [token, width]; NaN below four tokens or if not finite."""
    tokens = source.shape[0]
    wide = widest_float(source.device)
    if tokens < 4:
        return torch.full((), float("nan"), dtype=wide, device=source.device)
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(tokens, generator=generator).to(source.device)
    train, test = order[: tokens // 2], order[tokens // 2 :]
    x, y = source.to(wide), target.to(wide)
    # The solver refuses what is not finite: zeros go through, and NaN comes out.
    finite = torch.isfinite(x).all() & torch.isfinite(y).all()
    x, y = torch.where(finite, x, 0.0), torch.where(finite, y, 0.0)
    x_mean, y_mean = x[train].mean(0), y[train].mean(0)
    x_train, x_test = x[train] - x_mean, x[test] - x_mean
    y_train, y_test = y[train] - y_mean, y[test] - y_mean
    kernel = x_train @ x_train.T
    strength = ridge * kernel.diagonal().mean()
    identity = torch.eye(len(train), dtype=x.dtype, device=x.device)
    weights = torch.linalg.lstsq(kernel + strength * identity, y_train).solution
    error = y_test - (x_test @ x_train.T) @ weights
    share = 1 - error.square().sum() / y_test.square().sum()
    return torch.where(finite, share, float("nan"))
