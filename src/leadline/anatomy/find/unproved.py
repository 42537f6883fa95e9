"""What can be said of a model whose books do not balance: its blocks, and the writes of those that do.

The anatomy that comes of it is no proof: blocks that do not balance stand in it without writes, so
that the stream is still read before and after them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from leadline.anatomy.find.discover import discover, name_stacks, refit
from leadline.anatomy.find.reading import TOLERANCE, judge
from leadline.anatomy.find.trace import CallRow, ModuleCall, find_rows, trace_calls
from leadline.anatomy.structure import Anatomy, Balance, Block, Port, Stack
from leadline.anatomy.tensors import first_tensor, stream_input
from leadline.errors import AnatomyError

__all__ = ["Unproved", "stacks_beside", "unproved_anatomy"]

Forward = Callable[[], object]


@dataclass(frozen=True)
class Unproved:
    """An anatomy without the writes of blocks that do not balance; `missed` are those, with eps.

    The eps of a block for which no equation was found is infinite.
    """

    anatomy: Anatomy
    missed: dict[tuple[str, int], float]


def unproved_anatomy(model: nn.Module, fit: Forward, fresh: Forward) -> Unproved:
    """The blocks of a model whose anatomy was refused; AnatomyError where it has no row of blocks."""
    try:
        anatomy = discover(model, fit)
    except AnatomyError:
        stacks = stacks_beside(model, fit, ())
        if not stacks:
            raise
        anatomy = Anatomy(tuple(stacks), "rows of blocks")
        return Unproved(
            anatomy, {(s.name, b.layer): float("inf") for s in stacks for b in s.blocks}
        )
    balance = judge(model, anatomy, fresh)
    missed = _missed(balance)
    if missed:
        anatomy = replace(
            anatomy,
            stacks=tuple(
                refit(model, fit, stack, {layer for name, layer in missed if name == stack.name})
                for stack in anatomy.stacks
            ),
        )
        missed = _missed(judge(model, anatomy, fresh))
    return Unproved(_without_writes(anatomy, missed), missed)


def _missed(balance: Balance) -> dict[tuple[str, int], float]:
    return {place: eps for place, eps in balance.per_layer.items() if eps > TOLERANCE}


def _without_writes(anatomy: Anatomy, missed: Collection[tuple[str, int]]) -> Anatomy:
    def cut(stack: Stack, block: Block) -> Block:
        if (stack.name, block.layer) not in missed:
            return block
        return replace(block, sublayers=(), opening=None)

    return replace(
        anatomy,
        stacks=tuple(
            replace(stack, blocks=tuple(cut(stack, block) for block in stack.blocks))
            for stack in anatomy.stacks
        ),
    )


def stacks_beside(model: nn.Module, forward: Forward, claimed: Collection[str]) -> list[Stack]:
    """Rows of blocks with attention that are none of the `claimed` blocks, as stacks without writes."""
    taken = set(claimed)
    stacks: list[Stack] = []
    for row in find_rows(model, trace_calls(model, forward)):
        paths = [call.path for call in row.calls]
        if not row.unbroken or any(_touches(path, other) for path in paths for other in taken):
            continue
        if not all(_attends(call.module) for call in row.calls):
            continue
        taken |= set(paths)
        shape = row.shape
        stacks.append(
            Stack(
                name=row.where,
                blocks=tuple(_blocks(row.calls)),
                width=shape[-1],
                lanes=shape[2] if len(shape) == 4 else 1,
                causal=_causal(model, forward, row),
            )
        )
    return name_stacks(stacks)


def _touches(first: str, second: str) -> bool:
    return first == second or first.startswith(f"{second}.") or second.startswith(f"{first}.")


def _attends(block: nn.Module) -> bool:
    """Whether a module inside is called attention: a row of plain layers is no Transformer."""
    return any(
        "att" in f"{name} {type(module).__name__}".lower() for name, module in block.named_modules()
    )


def _blocks(calls: tuple[ModuleCall, ...]) -> Iterator[Block]:
    for index, call in enumerate(calls):
        yield Block(
            layer=index + 1,
            module=call.path,
            entry=Port(call.path, "input"),
            exit=Port(call.path, "output"),
            sublayers=(),
            in_place=call.in_place,
        )


def _causal(model: nn.Module, forward: Forward, row: CallRow) -> bool | None:
    """Whether a change of the last token before the first block leaves earlier tokens alone."""
    outputs: list[torch.Tensor] = []
    first, last = row.calls[0], row.calls[-1]
    if len(row.shape) != 3 or row.shape[1] < 2:
        return None

    def disturb(
        _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        stream = stream_input(args, kwargs, like=row.shape)

        def change(value: Any) -> Any:
            if value is not stream or stream is None:
                return value
            other = stream.clone()
            other[:, -1] = other[:, -1].flip(-1) + 1.0
            return other

        return tuple(map(change, args)), {name: change(one) for name, one in kwargs.items()}

    def keep(_: nn.Module, args: object, output: object) -> None:
        tensor = first_tensor(output)
        if tensor is not None:
            outputs.append(tensor.detach())

    reading = last.module.register_forward_hook(keep)
    try:
        with torch.no_grad():
            forward()
            count = len(outputs)
            changing = first.module.register_forward_pre_hook(disturb, with_kwargs=True)
            try:
                forward()
            finally:
                changing.remove()
    finally:
        reading.remove()
    if not count or len(outputs) != 2 * count:
        return None
    before, after = outputs[count - 1], outputs[-1]
    return bool(torch.equal(before[:, :-1], after[:, :-1]))
