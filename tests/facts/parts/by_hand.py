"""Transformer parts written out a second time, slowly: what the tests of parts compare with.

Everything is computed head by head and token by token from the weights, in the number type of
what is given (the tests give float64).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

Norm = Callable[[Tensor], Tensor]


def stir(model: nn.Module, seed: int = 0, *, by: float = 0.3) -> nn.Module:
    """Add noise to every parameter, so that no gain is 1 and no bias is 0."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.add_((by * noise).to(parameter.dtype))
    return model


def layer_norm(norm: nn.Module, *, eps: float = 1e-5) -> Norm:
    """g (x - mean) / sqrt(var + eps) + b."""
    weight, bias = norm.get_parameter("weight"), norm.get_parameter("bias")

    def normed(x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        variance = (centred**2).mean(-1, keepdim=True)
        return weight * centred / (variance + eps) ** 0.5 + bias

    return normed


def rms_norm(norm: nn.Module, *, eps: float = 1e-6) -> Norm:
    """g x / sqrt(mean(x^2) + eps)."""
    weight = norm.get_parameter("weight")
    return lambda x: weight * x / ((x**2).mean(-1, keepdim=True) + eps) ** 0.5


def gelu_tanh(x: Tensor) -> Tensor:
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def attention(
    branch: nn.Module,
    x: Tensor,
    *,
    heads: int,
    groups: int | None = None,
    causal: bool = True,
    scale: float | None = None,
    hidden: Tensor | None = None,
    query: Norm = lambda q: q,
    key: Norm = lambda k: k,
    value: Norm = lambda v: v,
    widely: bool = False,
    turn: Callable[[Tensor, int], Tensor] = lambda v, position: v,
    heads_by: Tensor | None = None,
    mixed: Norm = lambda m: m,
) -> Tensor:
    """Attention of x [example, token, width]; `hidden` [example, token] is True at padding.

    `query`, `key` and `value` norm one head each, or all heads together where `widely`.
    """
    groups = heads if groups is None else groups
    weight, bias = branch.get_parameter("qkv.weight"), dict(branch.named_parameters())
    size = weight.shape[0] // (heads + 2 * groups)
    scale = size**-0.5 if scale is None else scale
    qkv = x @ weight.T
    if "qkv.bias" in bias:
        qkv = qkv + bias["qkv.bias"]
    q_all, k_all, v_all = torch.split(qkv, [heads * size, groups * size, groups * size], -1)
    if widely:
        q_all, k_all = query(q_all), key(k_all)
        query = key = lambda one: one
    outs: list[Tensor] = []
    examples, tokens, _ = x.shape
    for example in range(examples):
        rows: list[Tensor] = []
        for i in range(tokens):
            parts: list[Tensor] = []
            for h in range(heads):
                g = h * groups // heads
                mine, theirs = slice(h * size, (h + 1) * size), slice(g * size, (g + 1) * size)
                q = turn(query(q_all[example, i, mine]), i)
                seen = [j for j in range(tokens) if not causal or j <= i]
                if hidden is not None:
                    seen = [j for j in seen if not hidden[example, j]] or [i]
                scores = torch.stack(
                    [scale * (q @ turn(key(k_all[example, j, theirs]), j)) for j in seen]
                )
                odds = (scores - scores.max()).exp()
                shares = odds / odds.sum()
                values = [value(v_all[example, j, theirs]) for j in seen]
                head = sum((s * v for s, v in zip(shares, values, strict=True)), torch.zeros(()))
                parts.append(head if heads_by is None else heads_by[h] * head)
            rows.append(torch.cat(parts))
        outs.append(torch.stack(rows))
    out = mixed(torch.stack(outs)) @ branch.get_parameter("output.weight").T
    return out + bias["output.bias"] if "output.bias" in bias else out


def perceptron(
    branch: nn.Module,
    x: Tensor,
    *,
    activation: Callable[[Tensor], Tensor] = gelu_tanh,
    hidden: Norm = lambda h: h,
) -> Tensor:
    """W_2 N(f(W_1 x + b_1)) + b_2."""
    up, down = branch.get_submodule("up"), branch.get_submodule("down")
    inner = activation(x @ up.get_parameter("weight").T + up.get_parameter("bias"))
    return hidden(inner) @ down.get_parameter("weight").T + down.get_parameter("bias")
