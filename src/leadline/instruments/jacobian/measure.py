"""jacobian(model, inputs, layer=3) -> Jacobian: one block, one write, or any stretch of blocks.

The Jacobian J of a stretch of blocks is an N x N matrix per example, N = tokens x width, known by
its products alone (`numerics.linearised`): J' u by one backward pass, J v by two. From them come

    singular values       block Golub-Kahan bidiagonalisation (`numerics.bidiagonal`)
    |J|_F and |J - I|_F    random probes with standard errors (`numerics.frobenius`)

The blocks are run again as they ran in a real forward pass, and every run is compared with it
(`anatomy.stretch`). Two things are proved on the way, exactly (`numerics.leak`): that examples do
not see each other, and that no token sees a later one, where that is so.

For several blocks the Jacobian is that of the model itself between two sites. Whether it is the
product of the Jacobians of its blocks is measured with one random vector: beyond `JOINED` something
else than the stream goes from block to block (a history, a router's memory), and the product of the
blocks' norms is left out. Finite differences along one direction say whether a part of the blocks is
cut off from the gradient (`linear_checks`); a remark says so.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from leadline.anatomy import Anatomy, Declaration, Stack
from leadline.anatomy.stretch.stretch import Function, Stretches
from leadline.errors import InputError, ProbeError, Progress, check_count, check_seed, shown
from leadline.instruments.jacobian import bidiagonal
from leadline.instruments.jacobian.bidiagonal import Singular
from leadline.instruments.jacobian.frobenius import both_norms
from leadline.instruments.jacobian.inputs import Steps, array_of, opened, sites_of
from leadline.instruments.jacobian.leak import CUTS, leak_of
from leadline.instruments.jacobian.result import Direction, Jacobian
from leadline.instruments.passes.linear_checks import (
    ACROSS,
    JOINED,
    NOT_COMPARED,
    cut_off,
    joined,
    not_the_product,
    refuse_other,
)
from leadline.models.loading import LoadedModel
from leadline.numerics.linear.linear_maps import LinearMap, Shifted
from leadline.numerics.linear.linearised import Linearised

__all__ = ["jacobian"]

Tensor = torch.Tensor


def jacobian(
    model: nn.Module | LoadedModel,
    inputs: Any = None,
    *,
    layer: int | tuple[int, int] | None = None,
    sublayer: int | None = None,
    k: int = 4,
    smallest: int = 0,
    probes: int = 32,
    tolerance: float = 1e-6,
    vectors: bool = False,
    stack: str | None = None,
    anatomy: Anatomy | Declaration | None = None,
    families: bool = True,
    seed: int = 0,
    progress: Progress | None = None,
) -> Jacobian:
    """Measure the Jacobian of one block, of one write, or of any stretch of blocks.

    `layer=3` is block 3, `layer=(0, 6)` the first six blocks (site 0 to site 6), None the whole
    stack; `sublayer` one write of a block. `k` largest and `smallest` smallest singular values are
    looked for, to `tolerance` of their size; `probes` random vectors give the two norms. `vectors`
    keeps the singular vectors. `model`, `inputs`, `anatomy` and `families` are those of `measure`;
    `stack` is needed where a model has several. A block in half precision is computed on float32
    copies. Attention is switched to a kernel with second derivatives only if the output of the
    model stays the same; otherwise the singular values are left out, and the remarks say why.
    """
    k = check_count(k, "k")
    smallest = check_count(smallest, "smallest", least=0)
    probes = check_count(probes, "probes", least=2)
    seed = check_seed(seed)
    if not isinstance(tolerance, int | float) or not 0 < tolerance < 1:
        raise InputError(
            f"A tolerance of {shown(tolerance)} was asked for; give one between 0 and 1."
        )
    sites = (0, 0)
    steps = Steps(progress, 5 + bool(smallest))

    def check(one: Stack) -> None:
        nonlocal sites
        sites = sites_of(layer, sublayer, one)
        steps.total += 0 if sites[1] == sites[0] + 1 else sites[1] - sites[0]

    with opened(
        model,
        inputs,
        stack=stack,
        anatomy=anatomy,
        families=families,
        seed=seed,
        math=True,
        check=check,
        step=steps.next,
    ) as asked:
        start, end = sites
        stretches = asked.stretches
        if sublayer is None:
            f, x = stretches.function(start, end)
        else:
            f, x = stretches.sublayer(end, sublayer)
        given = Linearised(f, x)
        size = given.shape[1] * given.shape[2]
        if max(k, smallest) > size:
            raise InputError(
                f"{max(k, smallest)} singular values were asked for; this Jacobian has {size}."
            )
        run = _Run(given, stretches, k, smallest, tolerance, seed, steps)
        steps.next("probing the norms")
        if end == start + 1:
            block = given if sublayer is None else Linearised(*stretches.function(start, end))
            run.products += refuse_other(stretches, end, block, seed=seed)
        run.compare(f, x, _where(start, end, sublayer))
        leak, causal = run.leak()
        norm, distance = both_norms(given, probes=probes, seed=seed)
        run.products += probes
        top, branch, low = run.singular()
        blocks = run.blocks(start, end) if end > start + 1 else None
        steps.end()
        root = size**0.5
        return Jacobian(
            model=asked.name,
            stack=asked.stack.name,
            start=start,
            end=end,
            sublayer=sublayer,
            shape=given.shape,
            values=array_of(top.values) if top is not None else run.none(0),
            errors=array_of(top.errors) if top is not None else run.none(0),
            smallest=array_of(low.values) if low is not None else run.none(0),
            smallest_errors=array_of(low.errors) if low is not None else run.none(0),
            norm=array_of(norm.value) / root,
            norm_error=array_of(norm.error) / root,
            distance=array_of(distance.value) / root,
            distance_error=array_of(distance.error) / root,
            branch=array_of(branch.values)[:, 0] if branch is not None else run.none(),
            branch_error=array_of(branch.errors)[:, 0] if branch is not None else run.none(),
            blocks=blocks,
            leak=leak,
            causal=causal,
            strongest=_direction(top),
            weakest=_direction(low),
            left=array_of(top.left) if vectors and top is not None else None,
            right=array_of(top.right) if vectors and top is not None else None,
            probes=probes,
            products=run.products,
            precision=stretches.precision,
            kernel=stretches.kernel,
            remarks=(*asked.remarks, *stretches.remarks(start, end), *run.remarks),
        )


class _Run:
    """One linear map and what is asked about it; counts products and collects remarks."""

    def __init__(
        self,
        given: LinearMap,
        stretches: Stretches,
        k: int,
        smallest: int,
        tolerance: float,
        seed: int,
        steps: Steps,
    ) -> None:
        self.map = given
        self.stretches = stretches
        self.k = k
        self.smallest = smallest
        self.tolerance = tolerance
        self.seed = seed
        self.steps = steps
        self.products = 0
        self.remarks: list[str] = []

    def none(self, *columns: int) -> np.ndarray:
        """No values: NaN per example, or no columns."""
        return np.full((self.map.shape[0], *columns), np.nan)

    def compare(self, f: Function, x: Tensor, where: str) -> None:
        """A remark where finite differences say something else."""
        self.products += ACROSS
        if (cut := cut_off(f, x, self.map, where, seed=self.seed)) is not None:
            self.remarks.append(cut)

    def leak(self) -> tuple[float, bool | None]:
        """The largest |J' u| later than the tokens of u, and whether that proves causality.

        0 and None where there is one token only; None too where no leak was seen in a text that
        was not cut at all places.
        """
        found = leak_of(self.map, seed=self.seed)
        self.products += found.products
        worst = float(found.values.nan_to_num(0.0).max())
        if worst == 0.0 and self.map.shape[1] > 1 and not found.proved:
            self.remarks.append(
                f"Causality: no leak was seen at {CUTS} of the {self.map.shape[1] - 1} places of "
                "the text, which is no proof; give fewer tokens for one."
            )
        known = self.map.shape[1] > 1 and (worst > 0.0 or found.proved)
        return worst, worst == 0.0 if known else None

    def singular(self) -> tuple[Singular | None, Singular | None, Singular | None]:
        """The largest values of J, the largest of J - I, the smallest of J; None where refused."""
        if self.stretches.refusal is not None:
            return self._left_out(self.stretches.refusal)
        options = {"tolerance": self.tolerance, "seed": self.seed}
        try:
            self.steps.next("largest singular values")
            top = bidiagonal.largest(self.map, self.k, **options)
            self.steps.next("distance to the identity")
            branch = bidiagonal.largest(Shifted(self.map, 1.0), 1, **options)
            low = None
            if self.smallest:
                self.steps.next("smallest singular values")
                low = bidiagonal.smallest(self.map, self.smallest, seed=self.seed)
        except ProbeError as error:
            return self._left_out(str(error).removesuffix("."))
        for found, what in ((top, "largest"), (branch, "J - I"), (low, "smallest")):
            if found is None:
                continue
            self.products += found.products
            late = int((~found.converged).sum())
            if late:
                self.remarks.append(
                    f"Singular values ({what}): {late} of {self.map.shape[0]} examples did not "
                    "reach the tolerance; their errors say how far they came."
                )
        return top, branch, low

    def blocks(self, start: int, end: int) -> np.ndarray | None:
        """sigma_1 of every block [block, example]; None where J is not their product."""
        if self.stretches.refusal is not None:
            return None
        found: list[Tensor] = []
        try:
            if not self._joined(start, end):
                return None
            for layer in range(start + 1, end + 1):
                self.steps.next("single blocks")
                block = Linearised(*self.stretches.function(layer - 1, layer))
                one = bidiagonal.largest(block, 1, tolerance=self.tolerance, seed=self.seed)
                self.products += one.products
                found.append(one.values[:, 0])
        except ProbeError as error:
            self.remarks.append(f"Product of the blocks' norms: left out. {error}")
            return None
        return array_of(torch.stack(found))

    def _joined(self, start: int, end: int) -> bool:
        """Whether J is the product of the Jacobians of its blocks; a remark where it is not."""
        difference = joined(self.stretches, start, end, whole=self.map, seed=self.seed)
        self.products += end - start
        if difference is None:
            self.remarks.append(NOT_COMPARED)
            return True
        self.products += 1
        if not difference <= JOINED:
            why = not_the_product("the Jacobian", difference)
            self.remarks.append(f"Product of the blocks' norms: left out, because {why}.")
        return difference <= JOINED

    def _left_out(self, why: str) -> tuple[None, None, None]:
        # A sentence of its own becomes a part of one; "J v" stays.
        said = why[:1].lower() + why[1:] if why[1:2].islower() else why
        self.remarks.append(f"Singular values: left out, because {said}.")
        return None, None, None


def _where(start: int, end: int, sublayer: int | None) -> str:
    if end > start + 1:
        return f"Sites {start} to {end}"
    return f"Layer {end}" + ("" if sublayer is None else f", sublayer {sublayer}")


def _direction(found: Singular | None) -> Direction | None:
    if found is None:
        return None
    left, right = found.left[0].double(), found.right[0].double()
    return Direction(
        value=array_of(found.values[:, 0]),
        entry=array_of(right.square().sum(2)),
        exit=array_of(left.square().sum(2)),
        overlap=array_of((left * right).sum((1, 2))),
    )
