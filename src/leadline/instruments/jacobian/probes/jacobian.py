"""What a block does to small changes of the stream: its Jacobian J = dx_l / dx_(l-1).

J of one example is a square matrix of N = token x width rows, known by its products alone.

    sigma_1 >= ... >= sigma_k    how strongly the block stretches its strongest directions, by block
                                 bidiagonalisation (`instruments.jacobian.bidiagonal`)
    |J|_F / sqrt N               the root mean square of all N singular values: 1 for the identity
    |J - I|_F / sqrt N           how far the block is from the identity; both by random probes
                                 (`instruments.jacobian.frobenius`), with one standard error
    sigma_1(J - I)               the branch alone, J = I + F'
    leak                         largest |J' u| on the tokens behind those that u stands on, over
                                 up to 64 places of the text: 0 where no later token is seen

Through depth, with P_(i, j) = J_j ... J_(i+1):

    |P_(l, L)|_F / sqrt N        partial Jacobian norm from site l to the last (Doshi, He and Gromov
                                 2021, arXiv 2111.12143), by Gaussian directions carried backwards
                                 with QR at every block (`numerics.linear.frames`)
    sigma_1(P_(0, l))            the norm of the true product
    prod sigma_1(J_i)            the product of the norms, which is never smaller: what bounds made
                                 block by block (a product of Lipschitz constants) speak of

lower and upper are value -+ the estimated error. Numbers are per example, then mean and largest
over the examples. Padded tokens are tokens of the map like all others. Costs about a hundred
forward passes of every block, so it runs only when named; `through` costs as many of all blocks
before a site, for every site.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch

from leadline.anatomy import Stack
from leadline.errors import ProbeError, check_seed
from leadline.instruments.cost.maps import (
    STEPS,
    jacobian_work,
    map_work,
    stretches_memory,
    stretches_work,
)
from leadline.instruments.cost.work import Size, Workload
from leadline.instruments.jacobian.bidiagonal import SPARE, Singular, largest, smallest
from leadline.instruments.jacobian.frobenius import both_norms
from leadline.instruments.jacobian.leak import leak_of
from leadline.instruments.jacobian.quantities import (
    BRANCH,
    DISTANCE,
    LEAK,
    NORM,
    PARTIAL,
    PRODUCT,
    SINGULAR,
    SMALLEST,
    THROUGH,
)
from leadline.instruments.passes.linear.probing import (
    Tell,
    over_examples,
    ranked,
    too_many,
    whole_number,
)
from leadline.instruments.passes.probe import (
    PROBES,
    At,
    Kind,
    LinearProbe,
    Refused,
    Result,
    Sight,
)
from leadline.numerics.linear.frames import Frame
from leadline.numerics.linear.linear_maps import LinearMap, Shifted
from leadline.record import Quantity, Site

Tensor = torch.Tensor


@PROBES.register("jacobian")
class JacobianProbe(LinearProbe):
    """Singular values of every block's Jacobian, its distance from the identity, and products."""

    sees: tuple[Sight, ...] = ("linear", "chain", "product")
    quantities: tuple[Quantity, ...] = (
        SINGULAR,
        SMALLEST,
        NORM,
        DISTANCE,
        BRANCH,
        LEAK,
        PARTIAL,
        PRODUCT,
        THROUGH,
    )

    across = (PRODUCT,)
    """What speaks of several blocks, though it is given block by block."""

    def __init__(
        self,
        k: int = 4,
        probes: int = 32,
        smallest: int = 0,
        sublayers: bool = False,
        through: bool = False,
        branch: bool = True,
        tolerance: float = 1e-6,
        seed: int = 0,
    ) -> None:
        self.k = whole_number("jacobian", "k", k, 1)
        self.probes = whole_number("jacobian", "probes", probes, 2)
        self.smallest = whole_number("jacobian", "smallest", smallest, 0)
        self.seed = check_seed(seed, error=ProbeError)
        for name, value in (("sublayers", sublayers), ("through", through), ("branch", branch)):
            if not isinstance(value, bool):
                raise ProbeError(
                    f"The option {name} of the probe 'jacobian' is {value!r}; give true or false."
                )
        if not isinstance(tolerance, float) or not 0 < tolerance < 1:
            raise ProbeError(
                f"The tolerance of the probe 'jacobian' is {tolerance!r}; give a number between 0 "
                "and 1."
            )
        self.sublayers, self.through, self.branch = sublayers, through, branch
        self.tolerance = tolerance
        without = {
            SMALLEST.name: not smallest,
            BRANCH.name: not branch,
            THROUGH.name: not through,
        }
        self.quantities = tuple(q for q in type(self).quantities if not without.get(q.name))
        self._logs: dict[str, tuple[int, list[float]]] = {}

    def steps(self, kind: Kind, stack: Stack) -> tuple[str, ...]:
        if kind == "chain":
            return _backwards(stack)
        if kind == "product":
            return ("norm of the product",) if self.through else ()
        if kind == "sublayer" and not self.sublayers:
            return ()
        steps = {
            "singular values": True,
            "branch": self.branch,
            "norms": True,
            "smallest": bool(self.smallest),
        }
        return tuple(step for step, wanted in steps.items() if wanted)

    def cost(self, size: Size) -> Workload:
        """What every block costs until its map is known, and the products of each thing searched."""
        each = size.depth * jacobian_work(size, self)
        return stretches_work(size) + size.depth * map_work(size) + each

    def memory(self, size: Size) -> float:
        """The streams of all sites, two bases of directions, and the graph of one block, twice over."""
        directions = 2 * STEPS * (self.k + SPARE) + 3 * self.probes
        return stretches_memory(size) + size.stream * (directions) + 2 * size.block.plain_held

    def gives(self, kind: Kind) -> tuple[Quantity, ...]:
        through = {PARTIAL: "chain", PRODUCT: "block", THROUGH: "product"}
        single = ("block", "sublayer")
        return tuple(
            q for q in self.quantities if kind == through.get(q, kind if kind in single else None)
        )

    def linear(self, at: At, linear_map: LinearMap, tell: Tell) -> Iterator[Result]:
        site, root = at.site, math.sqrt(linear_map.shape[1] * linear_map.shape[2])
        top = self._search(linear_map, self.k, "singular values", tell)
        if isinstance(top, Singular):
            yield from ranked(SINGULAR, top.values, top.errors, site)
            if site.point == "block":
                yield from self._product_of_norms(at.stack, site.layer, top.values[:, 0])
        else:
            yield Refused((SINGULAR, PRODUCT) if site.point == "block" else (SINGULAR,), top)
        if self.branch:
            apart = self._search(Shifted(linear_map, 1.0), 1, "branch", tell)
            if isinstance(apart, Singular):
                yield from over_examples(BRANCH, apart.values[:, 0], apart.errors[:, 0], site)
            else:
                yield Refused((BRANCH,), apart)
        tell("norms", 0)
        norm, distance = both_norms(linear_map, probes=self.probes, seed=self.seed)
        yield from over_examples(NORM, norm.value / root, norm.error / root, site)
        yield from over_examples(DISTANCE, distance.value / root, distance.error / root, site)
        yield from self._leak(linear_map, site)
        if why := too_many(self.smallest, "smallest singular values", linear_map):
            yield Refused((SMALLEST,), why)
        elif self.smallest:
            tell("smallest", 0)
            low = smallest(
                linear_map, self.smallest, seed=self.seed, tell=lambda n: tell("smallest", n)
            )
            yield from ranked(SMALLEST, low.values, low.errors, site)

    def chain(self, at: At, links: Iterator[tuple[int, LinearMap]], tell: Tell) -> Iterator[Result]:
        frame: Frame | None = None
        for layer, linear_map in links:
            tell(_step(layer), 0)
            size = linear_map.shape[1] * linear_map.shape[2]
            if frame is None:
                # A stream of N features has no more than N independent directions.
                count = min(self.probes, size)
                frame = Frame.random(
                    linear_map.shape,
                    count,
                    dtype=linear_map.dtype,
                    seed=self.seed,
                    device=linear_map.device,
                )
            frame = frame.through(linear_map, adjoint=True)
            values, errors = _root_mean_square(frame, size)
            yield from over_examples(PARTIAL, values, errors, replace(at.site, layer=layer - 1))

    def product(self, at: At, linear_map: LinearMap, tell: Tell) -> Iterator[Result]:
        top = self._search(linear_map, 1, "norm of the product", tell)
        if isinstance(top, Singular):
            yield from over_examples(THROUGH, top.values[:, 0], top.errors[:, 0], at.site)
        else:
            yield Refused((THROUGH,), top)

    def carried(self) -> dict[str, Any]:
        """What a measurement that is continued later must know of the blocks before."""
        return {stack: [layer, logs] for stack, (layer, logs) in self._logs.items()}

    def carry_on(self, known: Mapping[str, Any]) -> None:
        self._logs = {stack: (int(layer), list(logs)) for stack, (layer, logs) in known.items()}

    def _search(self, linear_map: LinearMap, k: int, step: str, tell: Tell) -> Singular | str:
        """The k largest singular values, or why there are none: products J v may be impossible."""
        if why := too_many(k, "singular values", linear_map):
            return why
        tell(step, 0)
        try:
            return largest(
                linear_map,
                k,
                tolerance=self.tolerance,
                seed=self.seed,
                tell=lambda products: tell(step, products),
            )
        except ProbeError as error:
            return str(error).rstrip(".")

    def _product_of_norms(self, stack: Stack, layer: int, norms: Tensor) -> Iterator[Result]:
        """The running product, as a sum of logarithms; the norm of every block before is needed."""
        before, logs = self._logs.get(stack.name, (0, [0.0] * len(norms)))
        if before != layer - 1:
            yield Refused((PRODUCT,), f"the norm of layer {before + 1} is not known")
            return
        total = torch.tensor(logs, dtype=torch.float64) + norms.double().log().cpu()
        self._logs[stack.name] = (layer, total.tolist())
        if not bool((total < math.log(torch.finfo(torch.float64).max)).all()):
            yield Refused((PRODUCT,), "it is beyond the range of float64, 1e308")
            return
        yield from over_examples(PRODUCT, total.exp(), None, Site(stack.name, layer))

    def _leak(self, linear_map: LinearMap, site: Site) -> Iterator[Result]:
        leaks = leak_of(linear_map, seed=self.seed).values
        if linear_map.shape[1] < 2:
            yield Refused((LEAK,), "one token has no later ones")
            return
        yield from over_examples(LEAK, leaks, None, site)


def _root_mean_square(frame: Frame, size: int) -> tuple[Tensor, Tensor]:
    """|P|_F / sqrt N of every example and its standard error, from |P u|^2 of Gaussian u."""
    squares, level = frame.squares
    mean = squares.mean(1)
    value = mean.sqrt()
    error = squares.std(1) / squares.shape[1] ** 0.5 / (2.0 * value)
    scale = level.exp() / math.sqrt(size)
    return value * scale, torch.where(value > 0, error, 0.0) * scale


def _backwards(stack: Stack) -> tuple[str, ...]:
    return tuple(_step(layer) for layer in range(stack.depth, 0, -1))


def _step(layer: int) -> str:
    return f"layer {layer} backwards"
