"""A function from stream to stream as its linear map at one point, by autograd.

    J' u   one backward pass through the graph of y = f(x)
    J v    one backward pass through the graph of g(u) = J' u, which is linear in u, so that its
           own adjoint is J (the double-vjp trick). The graph of g is built once, when J v is
           first asked for; k products cost about as much as k backward passes through f.

Several vectors go through one graph together (vmap over the cotangents), as many as hold `TOGETHER`
numbers: on narrow streams most of a product is overhead, on wide ones what is computed together no
longer fits the caches. Where an operation of the graph cannot be vmapped they go one at a time,
which is slower and otherwise the same; `batched` says so.
J v needs a second derivative of every operation. Fused attention has none on the CPU; where it is
missing, a ProbeError names the operation, and J' u still works.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import torch

from leadline.errors import ProbeError, words_of

__all__ = ["Linearised"]

Tensor = torch.Tensor
Function = Callable[[Tensor], Tensor]
TOGETHER = 2**15
"""Numbers in the vectors that go through the graph at once; a larger vector goes alone."""


class Linearised:
    """The linear map of f at x, x being [example, token, width] and f(x) of the same shape."""

    def __init__(self, f: Function, x: Tensor) -> None:
        self.shape: tuple[int, int, int] = (x.shape[0], x.shape[1], x.shape[2])
        self.dtype = x.dtype
        self.device = x.device
        self.batched = True
        with torch.enable_grad():
            self._x = x.detach().clone().requires_grad_(True)
            self._y = f(self._x)
        if self._y.shape != x.shape:
            raise ProbeError(
                f"The function turns a stream of shape {list(x.shape)} into {list(self._y.shape)}; "
                "its Jacobian can be measured only if it keeps the shape of the stream."
            )
        self.y = self._y.detach()
        self._twice: tuple[Tensor, Tensor] | None = None

    def adjoint(self, u: Tensor) -> Tensor:
        """J' u."""
        return self._pulled(self._y, self._x, u)

    def forward(self, v: Tensor) -> Tensor:
        """J v."""
        if self._twice is None:
            self._twice = self._second_graph()
        g, u = self._twice
        return self._pulled(g, u, v)

    def _second_graph(self) -> tuple[Tensor, Tensor]:
        """g(u) = J' u at u = 0, with its graph."""
        u = torch.zeros_like(self._y, requires_grad=True)
        if not self._y.requires_grad:
            return u * 0.0, u
        try:
            (g,) = torch.autograd.grad(
                self._y, self._x, u, create_graph=True, allow_unused=True, materialize_grads=True
            )
        except RuntimeError as error:
            raise ProbeError(_refusal(error)) from error
        return g, u

    def _pulled(self, y: Tensor, x: Tensor, vectors: Tensor) -> Tensor:
        """The gradient of <y, v> for each of the vectors v."""
        if not y.requires_grad:  # constant in x
            return torch.zeros_like(vectors)
        count = max(1, TOGETHER // x.numel())
        return torch.cat([self._some(y, x, some) for some in vectors.split(count)])

    def _some(self, y: Tensor, x: Tensor, vectors: Tensor) -> Tensor:
        """The gradients of few enough vectors to go through the graph at once."""
        if self.batched and len(vectors) > 1:
            try:
                return _gradient(y, x, vectors, batched=True)
            except RuntimeError as error:
                if _has_no_second(error):
                    raise ProbeError(_refusal(error)) from error
                # Not every operation can be vmapped; whether that was it, one vector tells.
                gradients = torch.stack([self._single(y, x, one) for one in vectors])
                self.batched = False
                return gradients
        return torch.stack([self._single(y, x, one) for one in vectors])

    def _single(self, y: Tensor, x: Tensor, vector: Tensor) -> Tensor:
        try:
            return _gradient(y, x, vector, batched=False)
        except RuntimeError as error:
            raise ProbeError(_refusal(error)) from error


def _gradient(y: Tensor, x: Tensor, vectors: Tensor, *, batched: bool) -> Tensor:
    (gradient,) = torch.autograd.grad(
        y,
        x,
        vectors,
        retain_graph=True,
        is_grads_batched=batched,
        allow_unused=True,
        materialize_grads=True,
    )
    return gradient.detach()


_SECOND = (
    r"derivative for (\S+) is not implemented",
    r"(\S+) does not support double backward",
    r"(once_differentiable)",
)


def _has_no_second(error: RuntimeError) -> bool:
    return any(re.search(pattern, str(error)) for pattern in _SECOND)


def _refusal(error: RuntimeError) -> str:
    if "use_reentrant=True" in str(error):
        return (
            "The block runs under reentrant checkpointing (torch.utils.checkpoint with "
            "use_reentrant=True), which gives no gradients with respect to the stream. Switch it "
            "off for the measurement, or set use_reentrant=False."
        )
    for pattern in _SECOND:
        if operation := re.search(pattern, str(error)):
            return (
                f"The operation {operation[1]} has no second derivative, which the products J v need; "
                "run the model with attention that has one (math kernel or eager), or measure only "
                "what J' u gives."
            )
    message = words_of(error, first_line=True)
    return f"The block cannot be differentiated with respect to the stream: {message}"
