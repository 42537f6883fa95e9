"""A function from stream to stream as its linear map at one point, by autograd.

    J' u   one backward pass through the graph of y = f(x)
    J v    one backward pass through the graph of g(u) = J' u, which is linear in u, so that its
           own adjoint is J (the double-vjp trick). The graph of g is built once, when J v is
           first asked for; k products cost about as much as k backward passes through f.

Several vectors go through one graph together (vmap over the cotangents), as many as hold `TOGETHER`
numbers: on narrow streams most of a product is overhead, on wide ones what is computed together no
longer fits the caches. Where an operation of the graph cannot be vmapped they go one at a time,
which is slower and otherwise the same; `batched` says so.
A map that is asked for J v a second time is being iterated. Then f runs once more under vmap on as
many copies of x as vectors go together, and from there on every product is one plain backward pass
through that graph: many operations (layer norm, softmax, GELU) have a backward pass that vmap does
one vector after the other. Where f does not run that way, products stay what they were.
J v needs a second derivative of every operation. Fused attention has none on the CPU; where it is
missing, a ProbeError names the operation, and J' u still works.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import torch

from leadline.errors import ProbeError, words_of
from leadline.numerics.linear.linear_maps import apart

__all__ = ["Linearised"]

Tensor = torch.Tensor
Function = Callable[[Tensor], Tensor]
TOGETHER = 2**15
"""Numbers in the vectors that go through the graph at once; a larger vector goes alone."""
ITERATED = 2
"""The call of J v at which copies are made: they cost as much as six calls of J v and J' u save, so
that they pay for an iteration and not for the single product of a chain."""


class Linearised:
    """The linear map of f at x, x being [example, token, width] and f(x) of the same shape."""

    def __init__(self, f: Function, x: Tensor) -> None:
        self.shape: tuple[int, int, int] = (x.shape[0], x.shape[1], x.shape[2])
        self.dtype = x.dtype
        self.device = x.device
        self.batched = True
        self._f = f
        self._calls = 0
        self._copies: _BlockCopies | None = None
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
        return self._pulled(self._y, self._x, u, forward=False)

    def forward(self, v: Tensor) -> Tensor:
        """J v."""
        together = min(len(v), TOGETHER // self._x.numel())
        self._calls += 1
        if self._calls == ITERATED and self.batched and together > 1 and self._y.requires_grad:
            self._copies = _copies_of(self._f, self._x.detach(), self.y, together)
        if self._twice is None:
            self._twice = _second_graph(self._y, self._x)
        g, u = self._twice
        return self._pulled(g, u, v, forward=True)

    def _pulled(self, y: Tensor, x: Tensor, vectors: Tensor, *, forward: bool) -> Tensor:
        """The gradient of <y, v> for each of the vectors v."""
        if not y.requires_grad:  # constant in x
            return torch.zeros_like(vectors)
        count = max(1, TOGETHER // x.numel())
        if len(vectors) <= count:
            return self._some(y, x, vectors, forward=forward)
        return torch.cat([self._some(y, x, some, forward=forward) for some in vectors.split(count)])

    def _some(self, y: Tensor, x: Tensor, vectors: Tensor, *, forward: bool) -> Tensor:
        """The gradients of few enough vectors to go through the graph at once."""
        if self._copies is not None and len(vectors) == self._copies.count:
            return self._copies.product(vectors, forward=forward)
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


class _BlockCopies:
    """The graphs of f at several copies of x, for products of as many vectors."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.count = x.shape[0]
        self._first = (y, x)
        self._second = _second_graph(y, x)

    def product(self, vectors: Tensor, *, forward: bool) -> Tensor:
        """J v of each copy, or J' u."""
        y, x = self._second if forward else self._first
        return _gradient(y, x, vectors, batched=False)


def _copies_of(f: Function, x: Tensor, y: Tensor, count: int) -> _BlockCopies | None:
    """f at so many copies of x; None where vmap does not run it, or not to the same values."""
    copies = x.expand(count, *x.shape).clone().requires_grad_(True)
    try:
        with torch.enable_grad():
            several = torch.func.vmap(f)(copies)
        graphs = _BlockCopies(copies, several)
    except (RuntimeError, ProbeError):
        return None
    finally:
        # What f keeps in its modules must not be a tensor of vmap, which is dead outside of it.
        with torch.no_grad():
            f(x)
    # Half of the digits: f is the same, and its sums are taken in another order.
    same = apart(several.detach(), y.expand(several.shape)) <= torch.finfo(x.dtype).eps ** 0.5
    return graphs if same else None


def _second_graph(y: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """g(u) = J' u at u = 0, with its graph."""
    u = torch.zeros_like(y, requires_grad=True)
    if not y.requires_grad:
        return u * 0.0, u
    try:
        (g,) = torch.autograd.grad(
            y, x, u, create_graph=True, allow_unused=True, materialize_grads=True
        )
    except RuntimeError as error:
        raise ProbeError(_refusal(error)) from error
    return g, u


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
