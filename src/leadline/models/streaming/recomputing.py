"""Keep no activations of blocks: each is computed again when the gradient comes to it.

What stands between the blocks, the stream and what else enters them, is kept; the rest of a block's
graph holds no tensors until its gradient is asked for. Then its forward pass runs once more on what
entered it, so that one block's activations are there at a time. The hooks that read the model have
been taken off by then: nothing is read twice. Gradients reach the tensors of the first pass, and the
numbers are the same bits, since the same operations run on the same values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import CheckpointError, checkpoint

from leadline.anatomy import Anatomy
from leadline.anatomy.find.replay import is_cache
from leadline.errors import InputError
from leadline.models.streaming.pager import Pager, pager_of

__all__ = ["checkpointed_forward", "recomputed"]


@contextmanager
def recomputed(model: nn.Module, anatomy: Anatomy) -> Iterator[None]:
    """Let the blocks of a streamed model be computed again; of any other, leave all as it is.

    Blocks that change their input in place keep their activations: it cannot be entered again. So
    do blocks that are handed a cache, which grows when they run, and layers that are no modules of
    their own.
    """
    pager = pager_of(model)
    if pager is None:
        yield
        return
    blocks = [block for stack in anatomy.stacks for block in stack.blocks]
    paths = {
        block.module
        for block in blocks
        if block.entry.module == block.exit.module == block.module and not block.in_place
    }
    with_cache: set[str] = set()
    wrapped: dict[int, nn.Module] = {}
    try:
        for path in sorted(paths):
            module = model.get_submodule(path)
            if id(module) not in wrapped and "forward" not in vars(module):
                wrapped[id(module)] = module
                vars(module)["forward"] = checkpointed_forward(
                    module.forward, path, pager, with_cache
                )
        yield
    except CheckpointError as error:
        raise InputError(
            f"A block of {type(model).__name__} computed other tensors when it ran again for its "
            "gradient, so it keeps something between its calls; measure this model without streaming."
        ) from error
    finally:
        again = paths - with_cache
        pager.recomputed = (sum(block.module in again for block in blocks), len(blocks))
        for module in wrapped.values():
            del vars(module)["forward"]
        pager.give_back()


def checkpointed_forward(
    forward: Callable[..., Any], path: str, pager: Pager, with_cache: set[str]
) -> Callable[..., Any]:
    """The forward pass of a block that keeps no activations; `with_cache` takes the path of one
    that is handed a cache and keeps them."""

    def forward_without_keeping(*args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(*args, **kwargs)
        if any(is_cache(value) for value in (*args, *kwargs.values())):
            with_cache.add(path)
            return forward(*args, **kwargs)
        entered = [(tensor, tensor._version) for tensor in _tensors((args, kwargs))]
        runs = 0

        def run() -> Any:
            nonlocal runs
            runs += 1
            if runs > 1:
                pager.compute_again(path)
                if any(tensor._version != version for tensor, version in entered):
                    raise InputError(
                        f"What entered '{path}' was changed in place after the block had run, so it "
                        "cannot be computed again; measure this model without streaming."
                    )
            return forward(*args, **kwargs)

        return checkpoint(run, use_reentrant=False)

    return forward_without_keeping


def _tensors(value: object) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for one in value:
            yield from _tensors(one)
    elif isinstance(value, dict):
        for one in value.values():
            yield from _tensors(one)
