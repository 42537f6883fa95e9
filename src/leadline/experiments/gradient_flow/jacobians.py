"""Block Jacobians of an untrained design, and what their product is.

    sigma_1 of every block        the largest singular value of J_l = dx_l / dx_(l-1)
    |J_l - I|_F / sqrt(N)         how far the block is from the identity, in the mean over directions
    product of the norms          sigma_1(J_L) ... sigma_1(J_1), the Lipschitz argument of the notes
    norm of the product           sigma_1(J_L ... J_1), what the stack really does at this point

For post-norm the product is also taken without the norms that follow the additions: with
J = D (I + F'), D = the LayerNorm's own Jacobian at the sum, the chain of the I + F' alone, each at
the point where the real pass has it. What D takes away is the difference.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from leadline.experiments.gradient_flow.starts import plain_attention, seen_writes
from leadline.instruments.jacobian.bidiagonal import largest
from leadline.instruments.jacobian.frobenius import frobenius
from leadline.instruments.jacobian.measure import compute_jacobian
from leadline.lab.tasks import Batch
from leadline.numerics.linear.linear_maps import Chain, LinearMap
from leadline.numerics.linear.linearised import Linearised
from leadline.parts import Transformer
from leadline.parts.sublayer import Sublayer

__all__ = ["Blocks", "Norms", "blocks_of", "norms_apart"]

TOLERANCE = 1e-3
"""Relative accuracy of the singular values, which are compared on a logarithmic axis."""
PROBES = 16
Told = Callable[[], None]


@dataclass(frozen=True)
class Blocks:
    """The Jacobians of the blocks of one model on one example."""

    design: str
    depth: int
    largest: tuple[float, ...]
    distance: tuple[float, ...]
    whole: float
    """sigma_1 of the product."""
    refused: str = ""
    """Why a singular value is not there (NaN)."""

    @property
    def product(self) -> float:
        """log10 of the product of the single norms."""
        return sum(math.log10(one) for one in self.largest)


@dataclass(frozen=True)
class Norms:
    """The product of a post-norm stack with and without its norms, in log10."""

    depth: int
    with_largest: float
    without_largest: float
    with_size: float
    """log10 of |P|_F / sqrt(N), the root mean square over directions."""
    without_size: float
    shrink: float
    """log10 of the product over the norms of |D|_F / sqrt(N) of each."""


def blocks_of(model: Transformer, batch: Batch, *, design: str, told: Told) -> Blocks:
    """The Jacobian of every block on the first example, and that of the whole stack."""
    model = model.double()
    ids, depth = batch.ids[:1], model.recipe.depth
    values: list[float] = []
    distances: list[float] = []
    refused: list[str] = []
    # The kernel is fixed around everything, so that none has to be switched and judged inside.
    with plain_attention():
        for layer in [*range(1, depth + 1), (0, depth)]:
            found = compute_jacobian(
                model, ids, layer=layer, k=1, probes=PROBES, tolerance=TOLERANCE
            )
            values.append(float(found.values[0, 0]) if found.values.size else math.nan)
            distances.append(float(found.distance[0]))
            refused += [] if found.values.size else found.remarks
            told()
    *largest_ones, whole = values
    return Blocks(
        design, depth, tuple(largest_ones), tuple(distances[:-1]), whole, next(iter(refused), "")
    )


def norms_apart(model: Transformer, batch: Batch) -> Norms:
    """Take the product of a post-norm stack with and without the Jacobians of its norms."""
    model = model.double()
    sums: list[LinearMap] = []
    norms: list[LinearMap] = []
    with plain_attention():
        with torch.no_grad(), seen_writes(model) as seen:
            model.stream(batch.ids[:1])
        for sublayer, x, run in zip(model.sublayers(), seen.states, seen.runs, strict=False):
            bare = _without_norm(sublayer)
            added = Linearised(lambda v, f=bare, r=run: f(v, r), x)
            sums.append(added)
            norms.append(Linearised(lambda v, one=sublayer: _settled(one, v), added.y))
        whole = Chain([one for pair in zip(sums, norms, strict=True) for one in pair])
        bare_chain = Chain(sums)
        root = math.sqrt(whole.shape[1] * whole.shape[2])
        return Norms(
            depth=model.recipe.depth,
            with_largest=_log_largest(whole),
            without_largest=_log_largest(bare_chain),
            with_size=_log_size(whole, root),
            without_size=_log_size(bare_chain, root),
            shrink=sum(_log_size(one, root) for one in norms),
        )


def _without_norm(sublayer: Sublayer) -> Sublayer:
    """The same sublayer, with the same modules, that leaves the sum as it is."""
    return Sublayer(
        sublayer.branch,
        sublayer.connection,
        enter=sublayer.enter,
        exit=sublayer.exit,
        settle=None,
    ).train(sublayer.training)


def _settled(sublayer: Sublayer, x: Tensor) -> Tensor:
    assert sublayer.settle is not None
    return sublayer.connection.settle(x, sublayer.settle)


def _log_largest(given: LinearMap) -> float:
    return math.log10(float(largest(given, 1, tolerance=TOLERANCE).values[0, 0]))


def _log_size(given: LinearMap, root: float) -> float:
    return math.log10(float(frobenius(given, probes=PROBES).value[0]) / root)
