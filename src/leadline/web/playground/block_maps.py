"""How far every block is from the identity: |J - I|_F / sqrt N, as the probe `jacobian` has it.

The estimate is that of `leadline.instruments.jacobian.frobenius`: the same random signs of the same
seed go backward through every block, one block at a time, on the stream that really entered it, with
whatever a connection keeps beside the stream held fixed.

A block of ordinary parts has its products written out (`plain_blocks`). Of any other, all signs go
through the graph of one example together (vmap). Derivatives of activations, LayerNorm
and softmax have no batched form in torch and would run once per sign; while a block is run here they
are replaced by functions with the same values whose derivatives are sums and products. That is what
makes a page of 24 blocks follow a slider.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd import Function
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from leadline.instruments.jacobian.frobenius import TOGETHER
from leadline.web.playground.plain_blocks import Pull, plain_pull
from leadline.web.playground.walk import swap_stream

if TYPE_CHECKING:
    from leadline.parts import Transformer
    from leadline.web.playground.walk import Walk

__all__ = ["PROBES", "identity_distances"]

Tensor = torch.Tensor
PROBES = 32
"""As many as the probe `jacobian` uses unless told otherwise."""
AT_ONCE = 2**15
"""Numbers in the signs that go through a graph at once: with more of them, memory is taken from the
system and given back at every step."""

AT_ONCE_PLAIN = 2**17
"""The same for blocks of ordinary parts, which hold less on the way."""


def identity_distances(model: Transformer, record: Walk) -> list[float]:
    """One number per block; NaN where the stream that enters is not finite."""
    distances: list[float] = []
    for block, state, stream in zip(model.blocks, record.states, record.streams, strict=False):
        if not bool(torch.isfinite(stream).all()):
            distances.append(math.nan)
            continue
        pull = plain_pull(block, state, record.run)
        if pull is not None:
            distances.append(_plain_distance(pull, stream))
            continue
        entered = model.first.stream(state).detach()
        with torch.enable_grad(), _SumsAndProducts():
            x = entered.requires_grad_(True)
            y = model.first.stream(block(_held(swap_stream(state, x), x), record.run))
        distances.append(_distance(y, x))
    return distances


def _plain_distance(pull: Pull, stream: Tensor) -> float:
    count = max(1, AT_ONCE_PLAIN // stream.numel())
    squares = [
        (pull(some) - some).square_().flatten(1).sum(1, dtype=torch.float64)
        for some in _signs(tuple(stream.shape))[:, 0].split(count)
    ]
    return float(torch.cat(squares).mean().sqrt()) / math.sqrt(stream.numel())


def _held(state: Any, x: Tensor) -> Any:
    """The state with all but the stream cut off from its history."""
    if isinstance(state, tuple):
        return tuple(_held(one, x) for one in state)
    return state if state is x else state.detach()


def _distance(y: Tensor, x: Tensor) -> float:
    signs = _signs(tuple(x.shape))
    if not y.requires_grad:
        return float(signs[0].numel()) ** 0.5 / math.sqrt(x.numel())
    count = max(1, AT_ONCE // x.numel())
    squares: list[Tensor] = []
    for some in signs.split(count):
        (pulled,) = torch.autograd.grad(
            y, x, some, retain_graph=True, is_grads_batched=True, materialize_grads=True
        )
        squares.append((pulled - some).square_().flatten(1).sum(1, dtype=torch.float64))
    return float(torch.cat(squares).mean().sqrt()) / math.sqrt(x.numel())


@lru_cache(maxsize=8)
def _signs(shape: tuple[int, ...]) -> Tensor:
    """The signs that the probe draws for a stream of this shape."""
    flat = (shape[0], shape[1], math.prod(shape[2:]))
    generator = torch.Generator().manual_seed(0)
    drawn = [
        torch.randint(0, 2, (TOGETHER, *flat), generator=generator)
        for _ in range(PROBES // TOGETHER)
    ]
    return torch.cat(drawn).float().mul_(2.0).sub_(1.0).view(PROBES, *shape)


class _SumsAndProducts(TorchFunctionMode):
    """Runs activations, LayerNorm and attention with derivatives that vmap takes as they are."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options = kwargs or {}
        if func in _SLOPES:
            y = func(*(one.detach() for one in args), **options)
            return _Pointwise.apply(args[0], y, _SLOPES[func](args[0].detach(), **options))
        if func is F.layer_norm:
            return _LayerNorm.apply(*args, *(options[name] for name in _OF_NORM[len(args) :]))
        if func is F.scaled_dot_product_attention and options.get("attn_mask") is None:
            return _attention(*args[:3], causal=options["is_causal"], scale=options["scale"])
        return func(*args, **options)


_OF_NORM = ("input", "normalized_shape", "weight", "bias", "eps")
_SLOPES: dict[Any, Callable[..., Tensor]] = {
    F.relu: lambda x, **_: (x > 0).to(x.dtype),
    F.silu: lambda x, **_: torch.ops.aten.silu_backward(torch.ones_like(x), x),
    F.gelu: lambda x, approximate="none": torch.ops.aten.gelu_backward(
        torch.ones_like(x), x, approximate=approximate
    ),
}
"""The derivatives of the activations that parts use."""


class _Pointwise(Function):
    """y(x), given x, y and y'."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, slope: Tensor) -> Tensor:
        ctx.save_for_backward(slope)
        return y.view_as(y)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (slope,) = ctx.saved_tensors
        return gradients[0] * slope, None, None


class _LayerNorm(Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, shape: Any, weight: Tensor | None, bias: Tensor | None, eps: float
    ) -> Tensor:
        y, mean, scale = torch.native_layer_norm(x, shape, weight, bias, eps)
        ctx.save_for_backward((x - mean) * scale, scale)
        ctx.weight = weight
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None, None]:
        normed, scale = ctx.saved_tensors
        g = gradients[0] if ctx.weight is None else gradients[0] * ctx.weight
        along = (g * normed).mean(-1, keepdim=True)
        return (g - g.mean(-1, keepdim=True) - normed * along) * scale, None, None, None, None


class _Softmax(Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor) -> Tensor:
        weights = torch.softmax(scores, -1)
        ctx.save_for_backward(weights)
        return weights

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (weights,) = ctx.saved_tensors
        g = gradients[0] * weights
        return g - weights * g.sum(-1, keepdim=True)


def _attention(
    query: Tensor, key: Tensor, value: Tensor, *, causal: bool, scale: float | None
) -> Tensor:
    """softmax(scale q k') v; what a mask hides has the score minus infinity and the weight 0."""
    scores = (query * (query.shape[-1] ** -0.5 if scale is None else scale)) @ key.mT
    if causal:
        tokens = scores.shape[-1]
        scores = scores + torch.full((tokens, tokens), -math.inf).triu(1)
    return _Softmax.apply(scores) @ value  # pyright: ignore[reportOptionalOperand, reportReturnType]
