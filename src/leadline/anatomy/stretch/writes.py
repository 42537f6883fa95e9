"""One write of a block as a function of the stream before it.

    sequential:  z_1 = x,   z_(s+1) = settle(keep z_s + gain u_s(z_s)),   f_s: z_s -> z_(s+1)
                 so the block is f_m o ... o f_1 and its Jacobian the product of theirs
    parallel:    after = keep x + gain_1 u_1(x) + ... + gain_m u_m(x),   f_s: x -> keep x + gain_s u_s(x)
                 so the block's Jacobian is J_1 + ... + J_m - (m - 1) keep I

The block runs as a whole, on the arguments of the real pass. The stream between two writes is no
argument of anything; it is moved by adding (z - z_s) / gain to what the module of the write before
returned, or z - z_s to what its settling norm returned. The last write ends where the block ends; a
first one begins where the block begins, so that a norm through which the stream itself goes first
belongs to it. A write that is a law (gates, lanes) can be the last one only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from leadline.anatomy.structure import Sublayer
from leadline.anatomy.tensors import first_tensor, mapped
from leadline.errors import ProbeError

if TYPE_CHECKING:
    from leadline.anatomy.stretch.stretch import CapturedCall, Function, Stretches

__all__ = ["write_function"]

Tensor = torch.Tensor
Change = Callable[[Tensor], Tensor]


def write_function(
    stretches: Stretches, call: CapturedCall, number: int
) -> tuple[Function, Tensor]:
    """The function of one write and the stream before it, both in the model's own order."""
    block = call.block
    writes = block.sublayers
    if not 1 <= number <= len(writes):
        raise ProbeError(
            f"Sublayer {number} was asked for; layer {block.layer} ('{block.module}') has "
            f"sublayers 1 to {len(writes)}."
        )
    if block.exit.module != block.module:
        raise ProbeError(
            f"Layer {block.layer} is no module of its own (it reaches from '{block.entry.module}' "
            f"to '{block.exit.module}'), so its sublayers cannot be run alone; ask for the layer."
        )
    if len(writes) == 1:
        return (lambda x: stretches.run(call, x)), call.stream
    _refuse(stretches.model, call, number)
    if block.parallel:
        return (lambda x: _branch(stretches, call, writes[number - 1], x)), call.stream
    before = _states(stretches, call)[number - 1] if number > 1 else call.stream
    return (lambda z: _step(stretches, call, number, z, before)), before


def _refuse(model: nn.Module, call: CapturedCall, number: int) -> None:
    block = call.block
    where = f"Layer {block.layer} ('{block.module}')"
    hint = "ask for the whole layer"
    for s in block.sublayers if block.parallel else block.sublayers[:-1]:
        if s.law is not None:
            raise ProbeError(
                f"{where}: write {s.sublayer} is no sum of stream and update ({s.law.formula}), so "
                f"the stream behind it is not seen by a module; {hint}."
            )
        gain = s.gain if isinstance(s.gain, float | int) else model.get_parameter(s.gain).detach()
        if not torch.as_tensor(gain != 0).all() and s.settle is None:
            raise ProbeError(
                f"{where}: write {s.sublayer} has a gain of zero, so the stream behind it cannot "
                f"be moved; {hint}."
            )
    if block.parallel and (
        any(not s.parallel for s in block.sublayers[1:])
        or any(s.settle is not None for s in block.sublayers)
    ):
        raise ProbeError(
            f"{where} joins its branches in more than one step, so its writes have no maps of "
            f"their own; {hint}."
        )


def _branch(stretches: Stretches, call: CapturedCall, s: Sublayer, x: Tensor) -> Tensor:
    """keep x + gain u of one write of a parallel block."""
    with _watching(stretches, call) as outputs:
        stretches.run(call, x)
    start = outputs.opened if outputs.opened is not None else x
    kept = start * call.block.sublayers[0].keep
    return kept + _scaled(stretches, s, outputs.update(s), kept)


def _step(
    stretches: Stretches, call: CapturedCall, number: int, z: Tensor, before: Tensor
) -> Tensor:
    """The stream after a write of a sequential block, with the stream before it moved to z."""
    writes = call.block.sublayers
    moved: Change | None = None
    if number > 1:
        # Exactly zero where z is the real stream.
        shift = z - before.to(z.dtype)
        moved = _mover(stretches, writes[number - 2], shift)
    x = z if number == 1 else stretches.typed(call.stream)
    with _watching(stretches, call, mover=(number - 2, moved)) as outputs:
        after = stretches.run(call, x)
    if number == len(writes):
        return after
    s = writes[number - 1]
    start = z if number > 1 or outputs.opened is None else outputs.opened
    return _after(stretches, s, start, outputs)


def _states(stretches: Stretches, call: CapturedCall) -> list[Tensor]:
    """The streams before all writes of a sequential block, as they really were."""
    with torch.no_grad(), _watching(stretches, call) as outputs:
        stretches.run(call, stretches.typed(call.stream))
        state = stretches.typed(call.stream) if outputs.opened is None else outputs.opened
        states = [call.stream]
        for s in call.block.sublayers[:-1]:
            state = _after(stretches, s, state, outputs)
            states.append(state)
    return states


def _after(stretches: Stretches, s: Sublayer, state: Tensor, outputs: _WriteOutputs) -> Tensor:
    if s.settle is not None:
        return outputs.settled(s).reshape(state.shape)
    return s.keep * state + _scaled(stretches, s, outputs.update(s), state)


def _gain(stretches: Stretches, s: Sublayer) -> float | Tensor:
    if not isinstance(s.gain, str):
        return s.gain
    return stretches.typed(stretches.model.get_parameter(s.gain).detach())


def _scaled(stretches: Stretches, s: Sublayer, update: Tensor, like: Tensor) -> Tensor:
    return update.reshape(like.shape) * _gain(stretches, s)


def _mover(stretches: Stretches, s: Sublayer, shift: Tensor) -> Change:
    """What is added to the output of the module behind which the stream stands."""
    if s.settle is None:
        shift = shift / _gain(stretches, s)
    return lambda returned: returned + shift.reshape(returned.shape)


class _WriteOutputs:
    """The tensors that the modules of the writes returned in one run of the block."""

    def __init__(self) -> None:
        self.opened: Tensor | None = None
        self.updates: dict[int, Tensor] = {}
        self.settles: dict[int, Tensor] = {}

    def update(self, s: Sublayer) -> Tensor:
        return self._look_up(self.updates, s, s.module)

    def settled(self, s: Sublayer) -> Tensor:
        return self._look_up(self.settles, s, s.settle)

    def _look_up(self, table: dict[int, Tensor], s: Sublayer, path: str | None) -> Tensor:
        if s.sublayer not in table:
            raise ProbeError(
                f"'{path}' was not called when its block ran again, so the output of write "
                f"{s.sublayer} is not known."
            )
        return table[s.sublayer]


@contextmanager
def _watching(
    stretches: Stretches, call: CapturedCall, *, mover: tuple[int, Change | None] = (0, None)
) -> Iterator[_WriteOutputs]:
    """Record what the modules of the writes return; `mover` (index, change) changes one of them."""
    outputs = _WriteOutputs()
    counts: Counter[str] = Counter()
    block = call.block
    index, change = mover
    target = block.sublayers[index] if change is not None else None

    def hook_of(path: str) -> Callable[..., Any]:
        def hook(_: nn.Module, args: tuple[Any, ...], output: object) -> Any:
            turn = counts[path]
            counts[path] += 1
            old = first_tensor(output)
            if old is None:
                return None
            moves = target is not None and (
                (target.settle == path and target.settle_call == turn)
                if target.settle is not None
                else (target.module == path and target.call == turn)
            )
            assert not moves or change is not None
            new = change(old) if moves and change is not None else old
            # A copy: some blocks add into what a module returned.
            returned = new.clone()
            if block.opening == path and turn == 0:
                outputs.opened = returned
            for s in block.sublayers:
                if s.module == path and s.call == turn:
                    outputs.updates[s.sublayer] = returned
                if s.settle == path and s.settle_call == turn:
                    outputs.settles[s.sublayer] = returned
            return mapped(output, lambda t: new if t is old else t) if moves else None

        return hook

    paths = {s.module for s in block.sublayers}
    paths |= {s.settle for s in block.sublayers if s.settle is not None}
    paths |= {block.opening} if block.opening is not None else set()
    handles: list[Any] = []
    try:
        for path in sorted(paths):
            module = stretches.model.get_submodule(path)
            handles.append(module.register_forward_hook(hook_of(path)))
        yield outputs
    finally:
        for handle in handles:
            handle.remove()
