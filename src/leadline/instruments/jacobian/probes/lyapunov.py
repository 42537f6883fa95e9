"""How fast directions grow or fade through depth: Lyapunov exponents of the stack.

k random directions at the last site go back through the blocks, J' block by block, and are made
orthonormal after every one (`numerics.linear.frames`):

    J_l' Q_l = Q_(l-1) R_l,        growth_i(l) = log R_l,ii
    exponent_i(l) = mean of growth_i over the blocks l + 1 to L, sorted in each example

(Benettin et al. 1980.) With depth the exponents tend to (1/L) log sigma_i of the Jacobian of the
whole stack, also where that product would leave the range of numbers. A gradient is such a
direction, so the first exponent says by how much gradients grow (above 0) or fade (below 0) in a
block on their way to the input. Spread between exponents says how soon all gradients point the same
way. The growth of the first block that is passed, the last of the stack, still hangs on the random
start.

Only J' u is needed: at k = 8 about ten forward passes of the model.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from leadline.anatomy import Stack
from leadline.errors import ProbeError, check_seed
from leadline.instruments.cost.maps import map_work, qr_work, stretches_memory, stretches_work
from leadline.instruments.cost.work import Size, Workload
from leadline.instruments.jacobian.quantities import EXPONENT, GROWTH
from leadline.instruments.passes.linear.probing import Tell, ranked, too_many, whole_number
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
from leadline.numerics.linear.linear_maps import LinearMap
from leadline.record import Quantity, Site


@PROBES.register("lyapunov")
class LyapunovProbe(LinearProbe):
    """Growth of k directions in every block, from the last to the first, and their exponents."""

    sees: tuple[Sight, ...] = ("chain",)
    quantities: tuple[Quantity, ...] = (GROWTH, EXPONENT)

    def __init__(self, k: int = 8, seed: int = 0) -> None:
        self.k = whole_number("lyapunov", "k", k, 1)
        self.seed = check_seed(seed, error=ProbeError)

    def steps(self, kind: Kind, stack: Stack) -> tuple[str, ...]:
        if kind != "chain":
            return ()
        return tuple(_step(layer) for layer in range(stack.depth, 0, -1))

    def cost(self, size: Size) -> Workload:
        """k products and QR a block, and what every block costs until its map is known."""
        block = size.block.plain_backward
        return (
            stretches_work(size)
            + size.depth * (map_work(size) + self.k * block)
            + qr_work(size, self.k, times=size.depth)
        )

    def memory(self, size: Size) -> float:
        """The streams of all sites, and the graph of one block with its directions."""
        return stretches_memory(size) + size.stream * (6 * self.k) + size.block.plain_held

    def gives(self, kind: Kind) -> tuple[Quantity, ...]:
        return self.quantities if kind == "chain" else ()

    def chain(self, at: At, links: Iterator[tuple[int, LinearMap]], tell: Tell) -> Iterator[Result]:
        frame: Frame | None = None
        for layer, linear_map in links:
            tell(_step(layer), 0)
            if frame is None:
                if why := too_many(self.k, "directions", linear_map):
                    yield Refused(self.quantities, why)
                    return
                frame = Frame.random(
                    linear_map.shape,
                    self.k,
                    dtype=linear_map.dtype,
                    seed=self.seed,
                    device=linear_map.device,
                )
            frame = frame.through(linear_map, adjoint=True)
            block = Site(at.stack.name, layer, None, "block")
            yield from ranked(GROWTH, frame.growth, None, block)
            passed = at.stack.depth - layer + 1
            exponents = (frame.total / passed).sort(1, descending=True).values
            yield from ranked(EXPONENT, exponents, None, replace(at.site, layer=layer - 1))


def _step(layer: int) -> str:
    return f"layer {layer} backwards"
