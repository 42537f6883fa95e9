"""The Jacobian of one block, of one write, or of any stretch of blocks.

The Jacobian J of a stretch of blocks is an N x N matrix per example, N = tokens x width, known by
its products alone (`numerics.linear`): J' u by one backward pass, J v by two. From them come

    singular values       block Golub-Kahan bidiagonalisation (`bidiagonal`)
    |J|_F and |J - I|_F    random probes with standard errors (`frobenius`)

The blocks are run again as they ran in a real forward pass, and every run is compared with it
(`anatomy.stretch`). Two things are proved on the way, exactly (`leak`): that examples do
not see each other, and that no token sees a later one, where that is so.

For several blocks the Jacobian is that of the model itself between two sites. Whether it is the
product of the Jacobians of its blocks is measured with one random vector: beyond `JOINED` something
else than the stream goes from block to block (a history, a router's memory), and the product of the
blocks' norms is left out. Finite differences along one direction show whether a part of the blocks
is cut off from the gradient (`linear.checks`); a remark says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from leadline.anatomy import Anatomy, Declaration, Stack
from leadline.anatomy.stretch.stretch import Function, Stretches
from leadline.errors import InputError, ProbeError, Progress, check_count, check_seed, shown
from leadline.instruments.jacobian import bidiagonal
from leadline.instruments.jacobian.bidiagonal import Singular
from leadline.instruments.jacobian.frobenius import Estimate, both_norms
from leadline.instruments.jacobian.inputs import ReadyModel, Steps, array_of, open_model, sites_of
from leadline.instruments.jacobian.leak import CUTS, leak_of
from leadline.instruments.jacobian.result import Direction, Jacobian
from leadline.instruments.passes.linear.checks import (
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

__all__ = ["compute_jacobian"]

Tensor = torch.Tensor


def compute_jacobian(
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
    """Measure the Jacobian as numbers alone; the arguments are those of `leadline.jacobian`."""
    request = _Request(
        sublayer=sublayer,
        k=check_count(k, "k"),
        smallest=check_count(smallest, "smallest", least=0),
        probes=check_count(probes, "probes", least=2),
        seed=check_seed(seed),
        tolerance=_checked_tolerance(tolerance),
        vectors=vectors,
    )
    sites = (0, 0)
    steps = Steps(progress, 5 + bool(request.smallest))

    def check(chosen: Stack) -> None:
        nonlocal sites
        sites = sites_of(layer, sublayer, chosen)
        steps.total += 0 if sites[1] == sites[0] + 1 else sites[1] - sites[0]

    with open_model(
        model,
        inputs,
        stack=stack,
        anatomy=anatomy,
        families=families,
        seed=request.seed,
        math=True,
        check=check,
        step=steps.next,
    ) as ready:
        return _measure(ready, *sites, request=request, steps=steps)


@dataclass(frozen=True, kw_only=True)
class _Request:
    """What is measured of a stretch: `compute_jacobian`'s arguments of the same names, checked."""

    sublayer: int | None
    k: int
    smallest: int
    probes: int
    tolerance: float
    vectors: bool
    seed: int


def _checked_tolerance(tolerance: float) -> float:
    if not isinstance(tolerance, int | float) or not 0 < tolerance < 1:
        raise InputError(
            f"A tolerance of {shown(tolerance)} was asked for; give one between 0 and 1."
        )
    return tolerance


def _measure(
    ready: ReadyModel, start: int, end: int, *, request: _Request, steps: Steps
) -> Jacobian:
    """The Jacobian between two sites of a model that is ready, or of one write of block `end`."""
    stretches, sublayer = ready.stretches, request.sublayer
    if sublayer is None:
        f, x = stretches.function(start, end)
    else:
        f, x = stretches.sublayer(end, sublayer)
    run = _JacobianRun(Linearised(f, x), stretches, request, steps)
    steps.next("probing the norms")
    if end == start + 1:
        block = run.map if sublayer is None else Linearised(*stretches.function(start, end))
        run.products += refuse_other(stretches, end, block, seed=request.seed)
    run.compare(f, x, _where(start, end, sublayer))
    leak, causal = run.leak()
    norm, distance = run.norms()
    top, branch, low = run.singular()
    blocks = run.blocks(start, end) if end > start + 1 else None
    steps.end()
    values, errors = run.values_of(top)
    smallest, smallest_errors = run.values_of(low)
    branch_norm, branch_error = run.values_of(branch, absent=1)
    root = run.size**0.5
    vectors = top if request.vectors else None
    return Jacobian(
        model=ready.name,
        stack=ready.stack.name,
        start=start,
        end=end,
        sublayer=sublayer,
        shape=run.map.shape,
        values=values,
        errors=errors,
        smallest=smallest,
        smallest_errors=smallest_errors,
        norm=array_of(norm.value) / root,
        norm_error=array_of(norm.error) / root,
        distance=array_of(distance.value) / root,
        distance_error=array_of(distance.error) / root,
        branch=branch_norm[:, 0],
        branch_error=branch_error[:, 0],
        blocks=blocks,
        leak=leak,
        causal=causal,
        strongest=_direction(top),
        weakest=_direction(low),
        left=None if vectors is None else array_of(vectors.left),
        right=None if vectors is None else array_of(vectors.right),
        probes=request.probes,
        products=run.products,
        precision=stretches.precision,
        kernel=stretches.kernel,
        remarks=(*ready.remarks, *stretches.remarks(start, end), *run.remarks),
    )


class _JacobianRun:
    """One linear map and what is measured of it; counts products and collects remarks."""

    def __init__(
        self, linear_map: LinearMap, stretches: Stretches, request: _Request, steps: Steps
    ) -> None:
        self.map = linear_map
        self.stretches = stretches
        self.request = request
        self.steps = steps
        self.products = 0
        self.remarks: list[str] = []
        self.size = linear_map.shape[1] * linear_map.shape[2]
        most = max(request.k, request.smallest)
        if most > self.size:
            raise InputError(
                f"{most} singular values were asked for; this Jacobian has {self.size}."
            )

    def values_of(
        self, singular: Singular | None, *, absent: int = 0
    ) -> tuple[np.ndarray, np.ndarray]:
        """Values and errors [example, k]; `absent` columns of NaN where they were left out."""
        if singular is None:
            none = np.full((self.map.shape[0], absent), np.nan)
            return none, none.copy()
        return array_of(singular.values), array_of(singular.errors)

    def norms(self) -> tuple[Estimate, Estimate]:
        """|J|_F and |J - I|_F by random probes."""
        self.products += self.request.probes
        return both_norms(self.map, probes=self.request.probes, seed=self.request.seed)

    def compare(self, f: Function, x: Tensor, where: str) -> None:
        """Compare with finite differences, and remark where they say something else."""
        self.products += ACROSS
        if (cut := cut_off(f, x, self.map, where, seed=self.request.seed)) is not None:
            self.remarks.append(cut)

    def leak(self) -> tuple[float, bool | None]:
        """The largest |J' u| later than the tokens of u, and whether that proves causality.

        0 and None where there is one token only; None too where no leak was seen in a text that
        was not cut at all places.
        """
        leak = leak_of(self.map, seed=self.request.seed)
        self.products += leak.products
        worst = float(leak.values.nan_to_num(0.0).max())
        if worst == 0.0 and self.map.shape[1] > 1 and not leak.proved:
            self.remarks.append(
                f"Causality: no leak was seen at {CUTS} of the {self.map.shape[1] - 1} places of "
                "the text, which is no proof; give fewer tokens for one."
            )
        known = self.map.shape[1] > 1 and (worst > 0.0 or leak.proved)
        return worst, worst == 0.0 if known else None

    def singular(self) -> tuple[Singular | None, Singular | None, Singular | None]:
        """The largest values of J, the largest of J - I, the smallest of J; None where refused."""
        if self.stretches.refusal is not None:
            return self._left_out(self.stretches.refusal)
        options = {"tolerance": self.request.tolerance, "seed": self.request.seed}
        try:
            self.steps.next("largest singular values")
            top = bidiagonal.largest(self.map, self.request.k, **options)
            self.steps.next("distance to the identity")
            branch = bidiagonal.largest(Shifted(self.map, 1.0), 1, **options)
            low = None
            if self.request.smallest:
                self.steps.next("smallest singular values")
                low = bidiagonal.smallest(self.map, self.request.smallest, seed=self.request.seed)
        except ProbeError as error:
            return self._left_out(str(error).removesuffix("."))
        for values, what in ((top, "largest"), (branch, "J - I"), (low, "smallest")):
            if values is None:
                continue
            self.products += values.products
            late = int((~values.converged).sum())
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
        norms: list[Tensor] = []
        try:
            if not self._joined(start, end):
                return None
            for layer in range(start + 1, end + 1):
                self.steps.next("single blocks")
                block = Linearised(*self.stretches.function(layer - 1, layer))
                one = bidiagonal.largest(
                    block, 1, tolerance=self.request.tolerance, seed=self.request.seed
                )
                self.products += one.products
                norms.append(one.values[:, 0])
        except ProbeError as error:
            self.remarks.append(f"Product of the blocks' norms: left out. {error}")
            return None
        return array_of(torch.stack(norms))

    def _joined(self, start: int, end: int) -> bool:
        """Whether J is the product of the Jacobians of its blocks; a remark where it is not."""
        difference = joined(self.stretches, start, end, whole=self.map, seed=self.request.seed)
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
        reason = why[:1].lower() + why[1:] if why[1:2].islower() else why
        self.remarks.append(f"Singular values: left out, because {reason}.")
        return None, None, None


def _where(start: int, end: int, sublayer: int | None) -> str:
    if end > start + 1:
        return f"Sites {start} to {end}"
    return f"Layer {end}" + ("" if sublayer is None else f", sublayer {sublayer}")


def _direction(singular: Singular | None) -> Direction | None:
    if singular is None:
        return None
    left, right = singular.left[0].double(), singular.right[0].double()
    return Direction(
        value=array_of(singular.values[:, 0]),
        entry=array_of(right.square().sum(2)),
        exit=array_of(left.square().sum(2)),
        overlap=array_of((left * right).sum((1, 2))),
    )
