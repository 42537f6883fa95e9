"""What `jacobian` and `lyapunov` cost: the probes' own counts, for one map or one chain.

The Jacobian of a stretch goes through its blocks as one graph; beside it sigma_1 of every block is
searched. Lyapunov exponents go backward under the model's own kernel.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from leadline.instruments.cost.maps import jacobian_work, map_work, qr_work, search_work
from leadline.instruments.cost.rates import Rates
from leadline.instruments.cost.result import CostPart
from leadline.instruments.cost.sizes import CountedModel
from leadline.instruments.cost.work import BlockWork, Workload
from leadline.instruments.passes.cost import part_of

__all__ = ["jacobian_of", "lyapunov_of"]


@dataclass
class _Asked:
    k: int
    probes: int = 32
    smallest: int = 0
    sublayers: bool = False
    through: bool = False
    branch: bool = True


def jacobian_of(
    model: CountedModel, rates: Rates, *, layer: int | tuple[int, int] | None, k: int, smallest: int
) -> list[CostPart]:
    """One map: the whole first stack, a stretch of it, or one block."""
    size = model.sizes(linear=True)[0]
    blocks = size.depth
    if isinstance(layer, int):
        blocks = 1
    elif layer is not None:
        blocks = max(1, layer[1] - layer[0])
    stretch = replace(size, depth=1, block=_times(size.block, blocks))
    work = 3 * model.forward.forward + map_work(stretch)
    work = work + jacobian_work(stretch, _Asked(k, smallest=smallest))
    if blocks > 1:
        work = work + blocks * (search_work(size, 1) + size.block.plain_forward)
    held = size.stream * (2 * size.sites + 200) + 2 * stretch.block.plain_held
    return [part_of("jacobian", "products with one map", work, rates, memory=held)]


def lyapunov_of(model: CountedModel, rates: Rates, *, k: int) -> list[CostPart]:
    """k directions through all blocks of the first stack."""
    size = model.sizes(linear=True)[0]
    block: Workload = size.block.forward + k * size.block.backward
    work = 2 * model.forward.forward + size.depth * block + qr_work(size, k, times=size.depth)
    held = size.stream * (2 * size.sites + 6 * k) + size.block.held
    return [part_of("lyapunov", f"{k} directions through all blocks", work, rates, memory=held)]


def _times(block: BlockWork, count: int) -> BlockWork:
    return BlockWork(
        forward=count * block.forward,
        backward=count * block.backward,
        plain_forward=count * block.plain_forward,
        plain_backward=count * block.plain_backward,
        held=count * block.held,
        plain_held=count * block.plain_held,
    )
