"""Find where the queries and keys of an attention come from: which weights, behind which norm.

Nothing is taken from names. Every product with a weight matrix and every norm that ran shortly
before the attention is a candidate; a query of head h comes from the features a..b of a candidate
if its norm is that of those features, times one factor, at every token. Norms are compared
because rotary positions turn queries and keys without changing their length; where the features
themselves agree, they have not been turned. Values are found in the same way; nothing turns them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from leadline.anatomy.tap.norm_gains import AGREE, NormReach, looks_like_a_norm, norm_reach
from leadline.anatomy.tensors import first_tensor

__all__ = ["Projections", "Source", "WeightProduct"]

Tensor = torch.Tensor
_KEPT_PRODUCTS = 8
_KEPT_NORMS = 8
_TOGETHER = 3
"""Products that are compared at once: those of queries, keys and values are the last three."""
_SAMPLED = 64
"""About so many tokens are compared with a candidate."""
_TELLING = 4
"""With fewer tokens than this, lengths can agree by chance."""
_ROUNDING = 4.0
"""A factor within so many eps of 1 is 1."""


@dataclass(frozen=True)
class Source:
    """Where one side's vectors come from, head by head.

    `weight` is [head, head width, width] and `bias` [head, head width], already times the factor
    between the product and what the attention got; both None where a norm stands last (QK-norm),
    whose reach is `norm` then, for the features `features` of each head. Otherwise `norm` is the
    norm whose output entered the product, if there is one. `entered` is that input, only lent.
    """

    module: str
    turned: bool
    weight: Tensor | None = None
    bias: Tensor | None = None
    norm: NormReach | None = None
    features: tuple[slice, ...] = ()
    entered: Tensor | None = None


@dataclass(frozen=True)
class WeightProduct:
    """One product with a weight matrix; `by_rows`: the matrix is [out, in]. Tensors are only lent."""

    entered: Tensor
    weight: Tensor
    bias: Tensor | None
    returned: Tensor
    by_rows: bool

    @property
    def matrix(self) -> Tensor:
        """[in, out]: what multiplies from the right."""
        return self.weight.T if self.by_rows else self.weight


@dataclass(frozen=True)
class _NormOutput:
    path: str
    module: nn.Module
    returned: Tensor


class Projections:
    """The candidates of the last moments. Tensors are kept only until the attention is found."""

    def __init__(self) -> None:
        self._products: deque[WeightProduct] = deque(maxlen=_KEPT_PRODUCTS)
        self._normed: deque[_NormOutput] = deque(maxlen=_KEPT_NORMS)
        self._reaches: dict[int, NormReach | None] = {}

    def forget(self) -> None:
        self.forget_products()
        self._normed.clear()

    def forget_products(self) -> None:
        self._products.clear()

    def product(
        self, entered: Tensor, weight: Tensor, bias: Any, returned: Tensor, *, by_rows: bool
    ) -> WeightProduct | None:
        """Keep a product with a weight matrix and return it; `by_rows`: the matrix is [out, in]."""
        if weight.ndim != 2:
            return None
        bias_values = bias.detach() if isinstance(bias, Tensor) else None
        product = WeightProduct(
            entered.detach(), weight.detach(), bias_values, returned.detach(), by_rows
        )
        self._products.append(product)
        return product

    def passed(self, path: str, module: nn.Module, output: object) -> None:
        """Keep the output of a module that has run, if it is a norm."""
        if not looks_like_a_norm(module):
            return
        returned = first_tensor(output)
        if returned is not None:
            self._normed.append(_NormOutput(path, module, returned.detach()))

    def source(self, vectors: Tensor | None) -> Source | None:
        """Where [example, head, token, feature] come from; None where nothing fits."""
        if vectors is None or vectors.ndim != 4 or vectors.shape[0] == 0:
            return None
        with torch.no_grad():
            sample = _Sample(vectors)
            products = list(reversed(self._products))
            for first in range(0, len(products), _TOGETHER):
                candidates = products[first : first + _TOGETHER]
                fit = _fit(sample, [product.returned for product in candidates])
                if fit is not None:
                    return self._from_product(sample, candidates[fit.number], fit)
            for normed in reversed(self._normed):
                source = self._from_norm(sample, normed)
                if source is not None:
                    return source
        return None

    def _from_product(self, sample: _Sample, product: WeightProduct, fit: _Fit) -> Source:
        places, factor, width = fit.places, fit.factor, sample.width
        weight = product.matrix.T
        rows = [slice(place, place + width) for place in places]
        bias = None
        if product.bias is not None and product.bias.ndim == 1:
            bias = _times(_rows(product.bias, rows), factor)
        return Source(
            module="",
            turned=fit.turned,
            weight=_times(_rows(weight, rows), factor),
            bias=bias,
            norm=self._norm_of(product.entered),
            features=tuple(rows),
            entered=product.entered,
        )

    def _from_norm(self, sample: _Sample, normed: _NormOutput) -> Source | None:
        returned = normed.returned
        orders = [returned]
        if returned.ndim == 4 and returned.shape[-1] == sample.width:
            # [example, token, head, feature] or [example, head, token, feature]
            orders = [returned.flatten(2), returned.transpose(1, 2).flatten(2)]
        fit = _fit(sample, orders)
        if fit is None or abs(fit.factor - 1.0) > AGREE:
            return None
        reach = self._reach(normed)
        if reach is None:
            return None
        width = sample.width
        per_head = reach.width == width
        rows = tuple(
            slice(0, width) if per_head else slice(place, place + width) for place in fit.places
        )
        return Source(module=normed.path, turned=fit.turned, norm=reach, features=rows)

    def _norm_of(self, entered: Tensor) -> NormReach | None:
        """The norm whose output this is."""
        for normed in reversed(self._normed):
            returned = normed.returned
            if returned.numel() != entered.numel() or returned.shape[-1] != entered.shape[-1]:
                continue
            same = returned.data_ptr() == entered.data_ptr()
            if same or torch.equal(returned.reshape(entered.shape), entered):
                reach = self._reach(normed)
                return reach if reach is not None and reach.width == entered.shape[-1] else None
        return None

    def _reach(self, normed: _NormOutput) -> NormReach | None:
        key = id(normed.module)
        if key not in self._reaches:
            self._reaches[key] = norm_reach(normed.path, normed.module, normed.returned)
        return self._reaches[key]


class _Sample:
    """Some tokens of [example, head, token, feature]: enough to tell where they come from."""

    def __init__(self, vectors: Tensor) -> None:
        self.examples, self.heads, self.tokens, self.width = vectors.shape
        step = max(1, self.examples * self.tokens // _SAMPLED)
        rows = torch.arange(0, self.examples * self.tokens, step, device=vectors.device)
        self.example, self.token = rows // self.tokens, rows % self.tokens
        # [token, head, feature]
        self.vectors = vectors[self.example, :, self.token].float()
        self.sizes = torch.linalg.vector_norm(self.vectors, dim=-1)
        # Lengths are compared in float32, whatever the vectors are in.
        self.eps = max(torch.finfo(vectors.dtype).eps, torch.finfo(torch.float32).eps)

    def of(self, returned: Tensor) -> Tensor | None:
        """The same tokens of a candidate, [token, feature]; None where it has other tokens."""
        features = returned.shape[-1]
        if returned.numel() != self.examples * self.tokens * features:
            return None
        swapped = returned.ndim == 3 and returned.shape[:2] == (self.tokens, self.examples)
        if swapped and self.tokens != self.examples:
            return returned[self.token, self.example].float()
        return returned.reshape(self.examples, self.tokens, features)[
            self.example, self.token
        ].float()


def _rows(tensor: Tensor, rows: Sequence[slice]) -> Tensor:
    """The rows of every head, [head, row, ...]; a view where they follow one another."""
    first, height = rows[0].start, rows[0].stop - rows[0].start
    if all(row.start == first + number * height for number, row in enumerate(rows)):
        return tensor[first : first + len(rows) * height].unflatten(0, (len(rows), height))
    return torch.stack([tensor[row] for row in rows])


def _times(tensor: Tensor, factor: float) -> Tensor:
    """In float64, times the factor; a copy in any case."""
    raised = tensor.to(torch.float64, copy=True)
    return raised if factor == 1.0 else raised.mul_(factor)


@dataclass(frozen=True)
class _Fit:
    """Which features of which candidate are which head: their first places, the factor, turned."""

    number: int
    places: list[int]
    factor: float
    turned: bool


def _fit(sample: _Sample, returned: Sequence[Tensor]) -> _Fit | None:
    """The first of the candidates that fits. All are compared together and their numbers fetched once."""
    width = sample.width
    candidates: dict[int, Tensor] = {}
    for number, one in enumerate(returned):
        theirs = None if width == 0 or one.shape[-1] % width else sample.of(one)
        if theirs is not None:
            candidates[number] = theirs
    if not candidates:
        return None
    answers = [_compared(sample, one) for one in candidates.values()]
    fetched = iter(torch.cat(answers).cpu().split([len(one) for one in answers]))
    for (number, theirs), answer in zip(candidates.items(), fetched, strict=True):
        fits, factor, turned, *blocks = answer.tolist()
        # Lengths of so few tokens agree by chance; the vectors themselves do not.
        if fits and (not turned or len(theirs) >= _TELLING):
            return _Fit(number, [int(block) * width for block in blocks], factor, bool(turned))
    return None


def _compared(sample: _Sample, theirs: Tensor) -> Tensor:
    """Whether a candidate fits, its factor, whether it is turned, and the block of every head.

    Everything stays on the device: the numbers of all candidates are fetched together.
    """
    blocks = theirs.unflatten(-1, (-1, sample.width))
    # [token, head, block]: a head is a block if this does not depend on the token.
    ratio = sample.sizes.unsqueeze(-1) / torch.linalg.vector_norm(blocks, dim=-1).unsqueeze(1)
    factors = ratio.mean(0)
    spread = (ratio / factors - 1).abs().amax(0).nan_to_num(float("inf"))
    best = spread.argmin(-1)
    best_factors = factors.gather(-1, best.unsqueeze(-1)).squeeze(-1)
    factor = best_factors.median()
    fits = (spread.amin(-1) < AGREE).all() & ((best_factors / factor - 1).abs() < AGREE).all()
    factor = torch.where((factor - 1).abs() <= _ROUNDING * sample.eps, 1.0, factor)
    apart = (blocks[:, best] * factor - sample.vectors).abs().max()
    turned = apart > AGREE * sample.vectors.abs().max()
    return torch.cat([torch.stack([fits, factor, turned]), best.float()])
