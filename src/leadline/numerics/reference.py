"""The slow, obvious twin of every fast statistic: float64, one example at a time, full SVD."""

from __future__ import annotations

import math

import torch

__all__ = [
    "attention_weights",
    "bf16_write_loss",
    "entropy_rank",
    "held_out_r2",
    "mean_cosine",
    "relative_residual",
    "residual",
    "second_singular_value",
    "singular_values",
    "spectral_norm",
    "stable_rank",
]

Tensor = torch.Tensor


def residual(x: Tensor) -> float:
    """|X - 1 m'|_F of tokens [token, width]."""
    x = x.double()
    return float((x - x.mean(0)).square().sum().sqrt())


def relative_residual(x: Tensor) -> float:
    """residual / |X|_F."""
    return residual(x) / float(x.double().square().sum().sqrt())


def mean_cosine(x: Tensor) -> float:
    """Mean cosine over all pairs of different tokens, pair by pair."""
    x = x.double()
    total, pairs = 0.0, 0
    for i in range(len(x)):
        for j in range(len(x)):
            if i != j:
                total += float(x[i] @ x[j] / (x[i].norm() * x[j].norm()))
                pairs += 1
    return total / pairs


def _shares(x: Tensor) -> Tensor:
    x = x.double()
    values = torch.linalg.svdvals(x - x.mean(0))
    return values.square() / values.square().sum()


def stable_rank(x: Tensor) -> float:
    """|C|_F^2 / |C|_2^2 of the centred tokens."""
    return float(1 / _shares(x).max())


def entropy_rank(x: Tensor) -> float:
    """exp of the entropy of the squared singular values of the centred tokens."""
    return math.exp(-sum(p * math.log(p) for p in _shares(x).tolist() if p > 0))


def bf16_write_loss(update: Tensor, stream: Tensor) -> float:
    """Share of one token's update that is lost in a bfloat16 stream, number by number."""
    lost = size = 0.0
    for u, x in zip(update.tolist(), stream.tolist(), strict=True):
        kept = _rounded(x)
        lost += (_rounded(kept + u) - kept - u) ** 2
        size += u * u
    return math.sqrt(lost / size)


def _rounded(value: float) -> float:
    """To the nearest bfloat16 (8 significant bits), ties to even, by hand."""
    if value == 0:
        return 0.0
    fraction, exponent = math.frexp(value)
    return math.ldexp(round(fraction * 256), exponent - 8)


def held_out_r2(source: Tensor, target: Tensor, *, ridge: float, seed: int) -> float:
    """R^2 of the split of `ridge`, solved in the primal form by normal equations over features."""
    tokens = source.shape[0]
    order = torch.randperm(tokens, generator=torch.Generator().manual_seed(seed))
    train, test = order[: tokens // 2], order[tokens // 2 :]
    x, y = source.double(), target.double()
    x_train, x_test = x[train] - x[train].mean(0), x[test] - x[train].mean(0)
    y_train, y_test = y[train] - y[train].mean(0), y[test] - y[train].mean(0)
    strength = ridge * float(x_train.square().sum()) / len(train)
    gram = x_train.T @ x_train + strength * torch.eye(x.shape[1], dtype=x.dtype)
    weights = torch.linalg.solve(gram, x_train.T @ y_train)
    error = y_test - x_test @ weights
    return float(1 - error.square().sum() / y_test.square().sum())


def singular_values(matrix: Tensor) -> list[float]:
    """All singular values of one matrix [m, n], descending, by a float64 SVD."""
    return torch.linalg.svdvals(matrix.double()).tolist()


def spectral_norm(matrix: Tensor) -> float:
    """The largest singular value of one matrix."""
    return singular_values(matrix)[0]


def second_singular_value(matrix: Tensor) -> float:
    """The second largest; 0 for a single row or column."""
    values = singular_values(matrix)
    return values[1] if len(values) > 1 else 0.0


def attention_weights(
    query: Tensor,
    key: Tensor,
    *,
    scaling: float,
    causal: bool = False,
    mask: Tensor | None = None,
    soft_cap: float | None = None,
    sink: float | None = None,
) -> Tensor:
    """The weights [m, n] of one head, row by row and key by key; a row without keys is zero.

    `mask` [m, n] is boolean (True: may look) or added.
    """
    m, n = len(query), len(key)
    weights = torch.zeros(m, n, dtype=torch.float64)
    for i in range(m):
        logits: dict[int, float] = {}
        for j in range(n):
            logit = scaling * float(query[i].double() @ key[j].double())
            if soft_cap is not None:
                logit = soft_cap * math.tanh(logit / soft_cap)
            if mask is not None and mask.dtype != torch.bool:
                logit += float(mask[i, j])
            hidden = mask is not None and mask.dtype == torch.bool and not bool(mask[i, j])
            if hidden or (causal and j > i + n - m) or logit == -math.inf:
                continue
            logits[j] = logit
        every = [*logits.values(), *([] if sink is None else [sink])]
        top = max(every, default=0.0)
        total = sum(math.exp(logit - top) for logit in every)
        for j, logit in logits.items():
            weights[i, j] = math.exp(logit - top) / total
    return weights
