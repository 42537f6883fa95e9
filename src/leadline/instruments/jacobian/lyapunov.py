"""k directions through all blocks, with QR at every layer: Lyapunov exponents of a stack.

The exponents are those of `numerics.linear.frames`. A block is linearised when its turn comes and let go.
They belong to the product of the blocks' Jacobians. Where a block is handed anything but the stream
that the first block was not, one direction is compared with what the whole model makes of it
(`linear.checks`): beyond `JOINED` more than the stream goes from block to block, and the exponents
are refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from leadline.anatomy import Anatomy, Declaration, Stack
from leadline.anatomy.stretch.stretch import Stretches
from leadline.errors import InputError, ProbeError, Progress, check_count, check_seed
from leadline.instruments.jacobian.inputs import Steps, array_of, open_model
from leadline.instruments.jacobian.result import Lyapunov
from leadline.instruments.passes.linear.checks import JOINED, NOT_COMPARED, joined, not_the_product
from leadline.models.loading import LoadedModel
from leadline.numerics.linear.frames import Frame
from leadline.numerics.linear.linearised import Linearised

__all__ = ["compute_lyapunov"]


def compute_lyapunov(
    model: nn.Module | LoadedModel,
    inputs: Any = None,
    *,
    k: int = 8,
    backward: bool = True,
    stack: str | None = None,
    anatomy: Anatomy | Declaration | None = None,
    families: bool = True,
    seed: int = 0,
    progress: Progress | None = None,
) -> Lyapunov:
    """Measure the growth as numbers alone; the arguments are those of `leadline.lyapunov`."""
    k = check_count(k, "k")
    seed = check_seed(seed)
    steps = Steps(progress, 3)

    def check(one: Stack) -> None:
        steps.total += one.depth

    with open_model(
        model,
        inputs,
        stack=stack,
        anatomy=anatomy,
        families=families,
        seed=seed,
        math=not backward,
        check=check,
        step=steps.next,
    ) as ready:
        stretches = ready.stretches
        if not backward and stretches.refusal is not None:
            raise ProbeError(
                f"Directions cannot be carried forward: {stretches.refusal}. Carry them backward."
            )
        carried = _carried(stretches, k, backward=backward, seed=seed, steps=steps)
        steps.end()
        depth = ready.stack.depth
        exponents = np.sort(carried.total / depth, axis=1)[:, ::-1]
        return Lyapunov(
            model=ready.name,
            stack=ready.stack.name,
            backward=backward,
            shape=carried.shape,
            exponents=np.ascontiguousarray(exponents),
            growth=carried.growth,
            log10_norm=carried.log10_norm,
            log10_norm_error=carried.log10_norm_error,
            precision=stretches.precision,
            kernel=stretches.kernel,
            remarks=(*ready.remarks, *stretches.remarks(0, depth), *carried.remarks),
        )


class _Carried:
    """What a frame left behind on its way through all blocks.

    Numbers stay on the device until `fetch`.
    """

    def __init__(self, shape: tuple[int, int, int], remarks: list[str]) -> None:
        self.shape = shape
        self.remarks = remarks
        self._growth: list[torch.Tensor] = []
        self._notes: list[torch.Tensor] = []

    def note(self, frame: Frame) -> None:
        """Keep what is known of a site: its growth, and log |P|_F with the error of its square."""
        squares, level = frame.squares
        mean = squares.mean(1)
        k = squares.shape[1]
        spread = squares.std(1) if k > 1 else torch.full_like(mean, torch.nan)
        self._growth.append(frame.growth)
        self._notes.append(torch.stack([2 * level + mean.log(), spread / k**0.5 / mean]))

    def fetch(self, frame: Frame, *, backward: bool) -> None:
        """Fetch growth [layer, example, k] and log10 norms [site, example], the first site first.

        log10 of |P|_F / sqrt(N) at a site comes with the standard error over the directions.
        """
        way = slice(None, None, -1 if backward else 1)
        size = self.shape[1] * self.shape[2]
        logs, errors = array_of(torch.stack(self._notes, 1))
        self.total = array_of(frame.total)
        # The start has no growth.
        self.growth = np.ascontiguousarray(array_of(torch.stack(self._growth[1:]))[way])
        # A Gaussian start has |u|^2 = N in the mean.
        log10_norm = logs / (2 * np.log(10)) - 0.5 * np.log10(size)
        self.log10_norm = np.ascontiguousarray(log10_norm[way])
        self.log10_norm_error = np.ascontiguousarray(errors[way] / (2 * np.log(10)))


def _carried(stretches: Stretches, k: int, *, backward: bool, seed: int, steps: Steps) -> _Carried:
    """A frame through all blocks, each linearised when its turn comes and let go."""
    depth = stretches.depth
    order = range(depth, 0, -1) if backward else range(1, depth + 1)
    frame: Frame | None = None
    carried: _Carried | None = None
    steps.next("comparing with the whole")
    remarks = _refuse_other_ways(stretches, seed)
    for layer in order:
        steps.next("carrying directions")
        block = Linearised(*stretches.function(layer - 1, layer))
        if frame is None or carried is None:
            size = block.shape[1] * block.shape[2]
            if k > size:
                raise InputError(f"{k} directions were asked for; the stream has {size}.")
            frame = Frame.random(block.shape, k, dtype=block.dtype, seed=seed, device=block.device)
            carried = _Carried(block.shape, remarks)
            carried.note(frame)
        frame = frame.through(block, adjoint=backward)
        carried.note(frame)
    assert frame is not None and carried is not None
    carried.fetch(frame, backward=backward)
    return carried


def _refuse_other_ways(stretches: Stretches, seed: int) -> list[str]:
    """A direction must come out as the whole model makes it, not only its blocks; remarks on it."""
    if not stretches.side_by_side:
        return []
    difference = joined(stretches, seed=seed)
    if difference is None:
        return [NOT_COMPARED]
    if not difference <= JOINED:
        raise ProbeError(
            f"{not_the_product('The Jacobian of this stack', difference)}. Exponents of the stream "
            "alone would be wrong; measure a stretch of layers with jacobian() instead."
        )
    return []
