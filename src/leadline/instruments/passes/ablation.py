"""Leave out one block or one write at a time and measure how much the loss rises.

Dropping a block hands its input on as its output; dropping a write replaces the update by zeros
(the norm after the addition still stands). The increase of the loss over the intact model is
recorded. One forward pass each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from leadline.anatomy import Anatomy, Block, Stack
from leadline.anatomy.tensors import first_tensor, stream_input
from leadline.errors import ProbeError, Progress, shown
from leadline.record import Quantity, Reading, Site

__all__ = ["Ablation", "ablate"]

BLOCK = Quantity(
    name="ablation.block",
    title="Loss increase without the block",
    symbol="L(without block l) − L",
    formula="loss with the block's output replaced by its input, minus the loss of the whole model",
    lives_on="layer",
    headline="value",
    high="The model needs this block.",
    low="The model can do without this block; below zero it is better without it.",
    source="Men et al. 2024, arXiv 2403.03853",
    meaning="How much worse the model predicts without a block.",
    leads=True,
)
SUBLAYER = Quantity(
    name="ablation.sublayer",
    title="Loss increase without the write",
    symbol="L(without write) − L",
    formula="loss with one update replaced by zeros, minus the loss of the whole model",
    lives_on="sublayer",
    headline="value",
    high="The model needs this branch.",
    low="The model can do without this branch; below zero it is better without it.",
    meaning="How much worse the model predicts without one write.",
)


@dataclass(frozen=True)
class Ablation:
    """The readings of an ablation, and how many forward passes it took."""

    quantities: tuple[Quantity, ...]
    readings: tuple[Reading, ...]
    passes: int


def ablate(
    model: nn.Module,
    anatomy: Anatomy,
    loss: Callable[[], torch.Tensor],
    *,
    unit: str = "block",
    progress: Progress | None = None,
) -> Ablation:
    """The loss increase for every block, or for every sublayer. `loss` runs the model once."""
    if unit not in ("block", "sublayer"):
        raise ProbeError(f"ablate is {shown(unit)}; give 'block' or 'sublayer'.")
    with torch.no_grad():
        intact_loss = float(loss())
        cuts = _cuts(model, anatomy, unit)
        readings: list[Reading] = []
        for count, (site, path, hook) in enumerate(cuts):
            if progress is not None:
                progress(f"leaving out one {unit} at a time", count, len(cuts))
            handle = model.get_submodule(path).register_forward_hook(hook, with_kwargs=True)
            try:
                without = float(loss())
            finally:
                handle.remove()
            name = BLOCK.name if unit == "block" else SUBLAYER.name
            readings.append(Reading(name, site, "value", without - intact_loss))
    if progress is not None:
        progress(f"leaving out one {unit} at a time", len(cuts), len(cuts))
    return Ablation((BLOCK if unit == "block" else SUBLAYER,), tuple(readings), len(cuts) + 1)


def _cuts(
    model: nn.Module, anatomy: Anatomy, unit: str
) -> list[tuple[Site, str, Callable[..., Any]]]:
    """Where to cut: the site, the module, and a hook that knows which of its calls is meant.

    Calls are counted by module: one module may serve several layers under one name or several.
    """
    cuts: list[tuple[Site, str, Callable[..., Any]]] = []
    counts: Counter[nn.Module] = Counter()
    for stack in anatomy.stacks:
        for block in stack.blocks:
            if unit == "block":
                module = model.get_submodule(block.module)
                _refuse_uncuttable(stack, block)
                site = Site(stack.name, block.layer, None, "block")
                cuts.append((site, block.module, _at_call(counts[module], _input)))
                counts[module] += 1
                continue
            calls: Counter[nn.Module] = Counter()
            for s in block.sublayers:
                module = model.get_submodule(s.module)
                if getattr(s.law, "gain_bias", None) is not None:
                    raise ProbeError(
                        f"'{s.module}' writes a bias even when it returns zeros, so this write "
                        "cannot be left out; use the unit 'block'."
                    )
                site = Site(stack.name, block.layer, s.sublayer, s.role)
                cuts.append((site, s.module, _at_call(counts[module] + s.call, _zeros)))
                calls[module] = max(calls[module], s.call + 1)
            counts.update(calls)
    return cuts


def _refuse_uncuttable(stack: Stack, block: Block) -> None:
    if block.entry.module != block.exit.module:
        raise ProbeError(
            f"The layers of the {stack.name} are no modules of their own, so a whole block cannot "
            "be left out; use the unit 'sublayer'."
        )
    if block.in_place:
        raise ProbeError(
            f"'{block.module}' changes its input in place, so it cannot be left out whole; use "
            "the unit 'sublayer'."
        )


def _at_call(call: int, replaced: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    """A hook that replaces the first tensor of one call's output and leaves the others alone."""
    count = 0

    def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        nonlocal count
        count += 1
        if count - 1 != call:
            return None
        if replaced is _input and isinstance(output, tuple) and args and type(args[0]) is tuple:
            # A state of several tensors goes in and out: the block hands on all of it.
            return args[0]
        returned = first_tensor(output)
        assert returned is not None
        return _with(output, returned, replaced(args, kwargs, returned))

    return hook


def _input(args: tuple[Any, ...], kwargs: dict[str, Any], after: torch.Tensor) -> torch.Tensor:
    """What entered the block: a block that hands it on does nothing."""
    before = stream_input(args, kwargs, like=after.shape)
    assert before is not None
    return before


def _zeros(args: tuple[Any, ...], kwargs: dict[str, Any], update: torch.Tensor) -> torch.Tensor:
    """A branch that writes nothing."""
    return torch.zeros_like(update)


def _with(output: Any, old: torch.Tensor, new: torch.Tensor) -> Any:
    """The same output with one of its tensors replaced."""
    if output is old:
        return new
    if isinstance(output, (tuple, list)) and any(item is old for item in output):
        items = [new if item is old else item for item in output]
        return type(output)(*items) if hasattr(output, "_fields") else type(output)(items)
    raise ProbeError(f"A module that returns {type(output).__name__} cannot be left out.")
