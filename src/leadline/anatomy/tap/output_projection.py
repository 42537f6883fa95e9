"""Find the weights that a branch multiplies with: W_O of the heads, W_1 and W_2 of an MLP.

Weights act from the right. Nothing is taken from names; products with weight matrices are kept from
the beginning of a block to its end, and a write tells which of them it was:

    attention   the product that got the heads' outputs side by side, o = (o_1 ... o_H), and returned
                o W_O + b_O = what was written, so head h has its own rows of W_O
    MLP         the product that returned what was written, z -> act(z W_1 + b_1) W_2 + b_2: the
                branch is computed again from z, W_1, b_1, act, W_2, b_2 at some tokens

Both are proved to rounding, in units of the eps of what the product returned; the gain of the write
is taken into W_O and W_2. Where a norm, a gate or a sum stands in between, a sentence says so
instead. z must be the stream or what a norm returned, so that no map before it is forgotten.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from leadline.anatomy.exactness import exactly
from leadline.anatomy.tap.norm_gains import looks_like_a_norm
from leadline.anatomy.tap.projections import WeightProduct
from leadline.anatomy.tap.seen_attention import SeenAttention
from leadline.anatomy.tensors import first_tensor

__all__ = ["ACTIVATIONS", "BranchProducts", "OutputProjection", "Perceptron"]

Tensor = torch.Tensor
_KEPT_PRODUCTS = 16
_KEPT_NORMS = 8
_SAMPLED = 16
_PROVED = 64.0
"""Largest miss of a row, in eps of its size: products of long rows are right to a few eps."""
_PROVED_IN_HALF = 8.0
"""The same where the eps is above that of float32: sums are not taken in half precision."""

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "tanh": torch.tanh,
}
"""The activations with a Lipschitz constant that are tried."""

_BETWEEN = "something stands between attention and its output projection: a norm, a gate or a sum"
_AFTER = (
    "what its output projection returns is not what is written: a norm, a gate or a sum follows it"
)
_SEVERAL = (
    "no single product with a weight matrix returns what it writes: its output is put together from "
    "several (experts), or a norm or a gate follows"
)
_GATED = (
    "it is gated: a product of two functions of the token has no Lipschitz constant on the whole "
    "space"
)
_OTHER = "it is no pair of linear maps with a known activation between them"
_INSIDE = "what enters its first map is neither the stream nor what a norm returned"


@dataclass(frozen=True)
class OutputProjection:
    """W_O of every head, [head, head width, width], and b_O, float64, times the write's gain."""

    weight: Tensor
    bias: Tensor | None


@dataclass(frozen=True)
class Perceptron:
    """z -> act(z up + up_bias) down + down_bias, float64; `down` times the write's gain.

    `activations` are those that fit to rounding: in half precision several may.
    """

    up: Tensor
    up_bias: Tensor | None
    activations: tuple[str, ...]
    down: Tensor
    down_bias: Tensor | None


class BranchProducts:
    """The products and norms of the block that is running. Tensors are kept until it ends."""

    def __init__(self) -> None:
        self._products: deque[WeightProduct] = deque(maxlen=_KEPT_PRODUCTS)
        self._normed: deque[Tensor] = deque(maxlen=_KEPT_NORMS)

    def forget(self) -> None:
        self._products.clear()
        self._normed.clear()

    def product(self, product: WeightProduct) -> None:
        self._products.append(product)

    def passed(self, module: nn.Module, output: object) -> None:
        """Keep the output of a module that has run, if it is a norm."""
        if looks_like_a_norm(module):
            returned = first_tensor(output)
            if returned is not None:
                self._normed.append(returned.detach())

    @exactly()
    def output_of(
        self, attention: SeenAttention, update: Tensor, *, gain: float
    ) -> OutputProjection | str:
        """W_O of the heads, or why there is none.

        `update` is what was written, [example, token, width], with the write's gain in it.
        """
        output = attention.output
        if output.ndim != 4 or output.shape[1] != attention.heads:
            return _BETWEEN
        joined = output.transpose(1, 2).flatten(2)
        for product in reversed(self._products):
            for entered, returned in _by_example(product, update):
                if entered.shape != joined.shape or not torch.equal(
                    entered, joined.to(entered.dtype)
                ):
                    continue
                if not _same_write(returned, update, gain):
                    return _AFTER
                weight = product.matrix.double() * gain
                return OutputProjection(
                    weight.unflatten(0, (attention.heads, -1)), _times(product.bias, gain)
                )
        return _BETWEEN

    @exactly()
    def perceptron_of(self, update: Tensor, stream: Tensor, *, gain: float) -> Perceptron | str:
        """The two maps of an MLP, or why it has no such form; `stream` is what it was added to."""
        products = list(self._products)
        for at in reversed(range(len(products))):
            for hidden, returned in _by_example(products[at], update):
                if _same_write(returned, update, gain):
                    return self._maps(
                        products[at], products[:at], _rows(hidden), update, stream, gain
                    )
        return _SEVERAL

    def _maps(
        self,
        down: WeightProduct,
        earlier: list[WeightProduct],
        hidden: Tensor,
        update: Tensor,
        stream: Tensor,
        gain: float,
    ) -> Perceptron | str:
        eps = torch.finfo(down.returned.dtype).eps
        second, second_bias = down.matrix.double() * gain, _times(down.bias, gain)
        update_rows = _rows(update)
        # A vector of length 1 becomes one of about this length.
        spread = torch.linalg.matrix_norm(second) / second.shape[0] ** 0.5
        for up in reversed(earlier):
            if up.matrix.shape[1] != second.shape[0]:
                continue
            first, first_bias = up.matrix.double(), _times(up.bias, 1.0)
            for entered, _ in _by_example(up, update):
                inner = _affine(_rows(entered), first, first_bias)
                fits = tuple(
                    name
                    for name, act in ACTIVATIONS.items()
                    if _agree(image := act(inner), hidden, eps=eps, scale=inner)
                    and _agree(
                        _affine(image, second, second_bias),
                        update_rows,
                        eps=eps,
                        scale=torch.linalg.vector_norm(inner, dim=-1, keepdim=True) * spread,
                    )
                )
                if not fits:
                    continue
                if not self._outermost(entered, stream):
                    return _INSIDE
                return Perceptron(first, first_bias, fits, second, second_bias)
        return _GATED if _is_gated(earlier, hidden, update, eps) else _OTHER

    def _outermost(self, entered: Tensor, stream: Tensor) -> bool:
        """Whether this is the stream itself or what a norm returned."""
        for candidate in (stream, *self._normed):
            for one in _ordered(candidate, entered):
                if one.shape == entered.shape and torch.equal(one.to(entered.dtype), entered):
                    return True
        return False


def _ordered(tensor: Tensor, like: Tensor) -> list[Tensor]:
    """The tensor as [example, token, feature], also where it comes with its tokens first."""
    examples, tokens = like.shape[:2]
    features = tensor.shape[-1]
    if features == 0 or tensor.numel() != examples * tokens * features:
        return []
    orders = [tensor.reshape(examples, tokens, features)]
    if examples > 1 and tokens > 1:
        orders.append(tensor.reshape(tokens, examples, features).transpose(0, 1))
    return orders


def _by_example(product: WeightProduct, like: Tensor) -> list[tuple[Tensor, Tensor]]:
    """What entered and what was returned, in each order of examples and tokens."""
    return list(
        zip(_ordered(product.entered, like), _ordered(product.returned, like), strict=False)
    )


def _rows(tensor: Tensor) -> Tensor:
    """Some tokens, [token, feature], float64."""
    flat = tensor.flatten(0, 1)
    return flat[:: max(1, len(flat) // _SAMPLED)].double()


def _affine(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return x @ weight if bias is None else x @ weight + bias


def _times(bias: Tensor | None, factor: float) -> Tensor | None:
    return None if bias is None else bias.double() * factor


def _same_write(returned: Tensor, update: Tensor, gain: float) -> bool:
    """Whether the product's answer, times the gain, is what was written."""
    if returned.shape != update.shape:
        return False
    expected = returned if gain == 1.0 else returned * gain
    if torch.equal(expected, update):
        return True
    return _agree(_rows(expected), _rows(update), eps=torch.finfo(returned.dtype).eps)


def _agree(first: Tensor, second: Tensor, *, eps: float, scale: Tensor | None = None) -> bool:
    """Row by row to rounding; a row of `scale` may be larger than both."""
    size = torch.linalg.vector_norm(second, dim=-1)
    if scale is not None:
        size = torch.maximum(size, torch.linalg.vector_norm(scale, dim=-1))
    miss = torch.linalg.vector_norm(first - second, dim=-1)
    single = torch.finfo(torch.float32).eps
    limit = _PROVED * eps if eps <= single else max(_PROVED * single, _PROVED_IN_HALF * eps)
    return bool((miss <= limit * size).all())


def _is_gated(earlier: list[WeightProduct], hidden: Tensor, update: Tensor, eps: float) -> bool:
    """Whether what entered the last map is act(a) times b, entry by entry, of earlier products."""
    width = hidden.shape[1]
    halves: list[Tensor] = []
    for product in earlier:
        for _, returned in _by_example(product, update):
            rows = _rows(returned)
            if rows.shape[1] == width:
                halves.append(rows)
            elif rows.shape[1] == 2 * width:
                halves += [rows[:, :width], rows[:, width:], rows[:, ::2], rows[:, 1::2]]
    acts = [*ACTIVATIONS.values(), torch.sigmoid]
    return any(
        _agree(act(gate) * other, hidden, eps=eps)
        for gate in halves
        for other in halves
        if other is not gate
        for act in acts
    )
