"""Find the anatomy of a model that says nothing about itself.

1. One forward pass gives the tree of calls; rows of calls with one shape are candidate stacks.
2. One block of every kind is replayed and its equation fitted (`fit`), roles are read (`roles`).
3. The equation is carried to all blocks of that kind. Whether it holds there, on fresh inputs,
   is for the balance to say; a block that misses gets an equation of its own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import nn

from leadline.anatomy.find.fit import MOST_UPDATES, FittedWrite, fit_block
from leadline.anatomy.find.imbalance import DECLARE, BlockCall, causes_in_words, explain_blocks
from leadline.anatomy.find.replay import (
    UNRUNNABLE,
    Replay,
    ReplayedCall,
    capture_arguments,
    replay_block,
    sleeps,
)
from leadline.anatomy.find.sublayer_roles import (
    Mixing,
    mark_parallel,
    mixing,
    placement_of,
    role_of,
)
from leadline.anatomy.find.trace import CallRow, ModuleCall, find_rows, kind_of, trace_calls
from leadline.anatomy.structure import Anatomy, Block, Port, Stack, Sublayer
from leadline.errors import AnatomyError, words_of

__all__ = ["block_calls", "discover", "name_stacks", "parameters_of", "refit"]

Forward = Callable[[], object]


@dataclass(frozen=True)
class _BlockReading:
    """The equation of one block: its sublayers, with paths relative to the block, and their mixing."""

    sublayers: tuple[Sublayer, ...]
    mixing: tuple[Mixing, ...]
    opening: str | None
    sleeps: bool = False
    """Whether a module returned zeros or an update depends on nothing, for weights that are zero."""


def discover(model: nn.Module, forward: Forward) -> Anatomy:
    """The stacks of the model on the inputs that `forward` runs; AnatomyError when none is found."""
    calls = trace_calls(model, forward, leaves=False, arguments=True)
    rows = find_rows(model, calls)
    if not rows:
        raise AnatomyError(
            f"{type(model).__name__} has no row of repeated blocks through which a tensor of one "
            "shape passes (at least two are needed), so no residual stream was found. If it has "
            f"one, declare it: {DECLARE}."
        )
    stacks: list[Stack] = []
    remarks: list[str] = []
    claimed_calls: set[int] = set()
    failures: list[_Unread] = []
    for row in rows:
        if any(id(c) in claimed_calls or c.inside(claimed_calls) for c in row.calls):
            continue
        try:
            stack = _read_row(model, forward, row)
        except _Unread as problem:
            failures.append(problem)
            continue
        stacks.append(stack)
        if not row.unbroken:
            remarks.append(
                f"Between the blocks of '{row.where}' something else changes the stream; what "
                "enters a block is not always what left the one before."
            )
        claimed_calls |= {id(call) for call in row.calls}
    if not stacks:
        failures.sort(key=lambda problem: isinstance(problem, _Convolutional))
        first = failures[0]
        raise AnatomyError(
            f"No anatomy of {type(model).__name__} balances. {first}{_what_next(first)}"
        )
    return Anatomy(tuple(_name_stacks(stacks)), "discovery", remarks=tuple(remarks))


def refit(model: nn.Module, forward: Forward, stack: Stack, layers: set[int]) -> Stack:
    """Read the given layers one by one: their equation may differ from the others' (gains)."""
    if not layers:
        return stack
    calls = {(call.path, call.number): call for call in trace_calls(model, forward, leaves=False)}
    blocks = list(stack.blocks)
    for index, (block, address) in enumerate(zip(blocks, block_calls(stack), strict=True)):
        call = calls.get((address.path, address.number))
        if block.layer not in layers or call is None:
            continue
        try:
            reading = _read_block(model, forward, call)
        except _Unread:
            continue
        blocks[index] = replace(
            block,
            sublayers=_placed(reading.sublayers, block.module),
            opening=_under(block.module, reading.opening),
        )
    return replace(stack, blocks=tuple(blocks))


def block_calls(stack: Stack) -> list[BlockCall]:
    """The calls of the blocks of a stack: a module that serves several layers is called again."""
    counts: Counter[str] = Counter()
    calls: list[BlockCall] = []
    for block in stack.blocks:
        calls.append(BlockCall(block.layer, block.module, counts[block.module]))
        counts[block.module] += 1
    return calls


class _Unread(Exception):
    """A row that turns out to be no stack; the message goes into the final refusal."""


class _Unfitted(_Unread):
    """A block whose output is not its input plus outputs of its modules."""


class _Explained(_Unread):
    """A row whose fault is known; the message also says what to do."""


class _Convolutional(_Unread):
    """A row of convolutions, such as many a Transformer has before or behind its blocks."""


def _what_next(failure: _Unread) -> str:
    if isinstance(failure, _Explained):
        return ""
    return f" If you know which modules write to the stream, declare them: {DECLARE}."


def _read_row(model: nn.Module, forward: Forward, row: CallRow) -> Stack:
    kinds: dict[tuple[object, ...], list[ModuleCall]] = {}
    for call in row.calls:
        kinds.setdefault(kind_of(call.module), []).append(call)
    readings: dict[tuple[object, ...], _BlockReading] = {}
    # The first block of a kind may be the odd one: what it lacks is seen when it is judged by the
    # equation of another.
    for start in (0, 1) if row.unbroken else (0,):
        readings = {
            kind: _read_kind(model, forward, calls[start:] or calls, row)
            for kind, calls in kinds.items()
        }
        if any(m.mixes or m.cross for reading in readings.values() for m in reading.mixing):
            break
    mixes = [m for reading in readings.values() for m in reading.mixing]
    if not any(m.mixes or m.cross for m in mixes):
        raise _Unread(
            f"The row '{row.where}' adds updates to a stream, but none of them moves other tokens "
            "of that stream, so no attention was found in it."
        )
    blocks = tuple(
        Block(
            layer=index + 1,
            module=call.path,
            entry=Port(call.path, "input"),
            exit=Port(call.path, "output"),
            sublayers=_placed(readings[kind_of(call.module)].sublayers, call.path),
            opening=_under(call.path, readings[kind_of(call.module)].opening),
            in_place=call.in_place,
        )
        for index, call in enumerate(row.calls)
    )
    shape = row.shape
    lanes = shape[2] if len(shape) == 4 else 1
    swapped = any(m.first_axis and not m.second_axis for m in mixes) and len(shape) > 2
    causal = [m.causal for m in mixes if m.causal is not None]
    return Stack(
        name=row.where,
        blocks=blocks,
        width=shape[-1],
        lanes=lanes,
        token_axis=0 if swapped or len(shape) == 2 else 1,
        causal=all(causal) if causal else None,
    )


def _read_kind(
    model: nn.Module, forward: Forward, calls: list[ModuleCall], row: CallRow
) -> _BlockReading:
    """The equation of the first block of a kind; of another where that one cannot be read.

    Only where one stream passes from block to block of at least three: otherwise the row may be
    no stack at all, and of two blocks neither is the odd one.
    """
    failures: list[_Unread] = []
    several = row.unbroken and len(calls) > 2
    for call in dict.fromkeys([*calls[:2], calls[-1]] if several else calls[:1]):
        try:
            return _read_block(model, forward, call)
        except _Unread as problem:
            failures.append(problem)
    if row.unbroken and isinstance(failures[0], _Unfitted):
        blocks = [BlockCall(i + 1, call.path, call.number) for i, call in enumerate(row.calls)]
        causes = explain_blocks(model, forward, blocks, row.shape)
        if causes and causes[0].call.path == calls[0].path:
            first, depth = causes[0].call, len(row.calls)
            where = f"In layer {first.layer} ('{first.path}')"
            raise _Explained(causes_in_words(causes, where=where, missed=depth, depth=depth))
    raise failures[0]


def _read_block(model: nn.Module, forward: Forward, call: ModuleCall) -> _BlockReading:
    """The equation of one block; where some of it sleeps, that of a copy which is awake.

    A branch whose weights are zero, as those of many start, adds nothing that could be seen. What
    is read from the copy has to balance in the model like everything else.
    """
    try:
        reading = _read_replay(model, forward, call)
        if not reading.sleeps:
            return reading
    except _Unread:
        if not sleeps(call.module):
            raise
        reading = None
    try:
        return _read_replay(model, forward, call, awake=True)
    except _Unread:
        if reading is None:
            raise
        return reading


def _read_replay(
    model: nn.Module, forward: Forward, call: ModuleCall, *, awake: bool = False
) -> _BlockReading:
    path, key = call.path, (call.path, call.number)
    assert call.returned is not None
    try:
        captured = call.arguments or capture_arguments(model, forward, {key})[key]
        replay = replay_block(path, call.module, captured, call.returned.shape, awake=awake)
    except UNRUNNABLE as error:
        raise _Unread(f"'{path}' could not be run again on its own: {error}.") from error
    if not torch.isfinite(replay.after).all():
        raise _Unread(f"'{path}' returns values that are not finite.")
    reader = _reader_of_channels(replay)
    if reader is not None:
        raise _Convolutional(
            f"In '{path}' the features stand before the places, as in a convolutional network: "
            f"'{reader.path}' reads {list(replay.stream.shape)} as [example, channel, place], and "
            "only a stream whose last axis is the features can be measured."
        )
    fit = fit_block(replay)
    if fit is None:
        tried_paths = [s.path for s in replay.calls if s.returned is not None]
        raise _Unfitted(
            f"The output of '{path}' is not its input plus outputs of its modules, up to "
            f"{MOST_UPDATES} of them ({len(tried_paths)} tried)."
        )
    try:
        return _sublayers(replay, list(fit.writes), fit.opening)
    except RuntimeError as error:
        raise _Unread(
            f"Gradients inside '{path}' fail: {words_of(error, first_line=True)}"
        ) from error


def _sublayers(
    replay: Replay, writes: list[FittedWrite], opening: ReplayedCall | None
) -> _BlockReading:
    mark_parallel(replay, writes)
    for write in writes:
        write.gain = _named_gain(replay, write.gain)
    owners = parameters_of(replay, writes)
    sublayers: list[Sublayer] = []
    mixes: list[Mixing] = []
    earlier = -1
    for index, write in enumerate(writes):
        mix = mixing(replay, write)
        mixes.append(mix)
        sublayers.append(
            Sublayer(
                sublayer=index + 1,
                role=role_of(mix, replay, write, earlier),
                module=write.call.path,
                gain=write.gain,
                keep=write.keep,
                call=write.call.number,
                settle=write.settle.path if write.settle is not None else None,
                settle_call=write.settle.number if write.settle is not None else 0,
                parallel=write.parallel,
                placement=placement_of(replay, write, earlier),
                parameters=owners[index],
            )
        )
        earlier = write.call.order
    start = len(replay.path) + 1
    stripped = tuple(
        replace(
            s,
            module=s.module[start:],
            settle=None if s.settle is None else s.settle[start:],
            gain=s.gain[start:] if isinstance(s.gain, str) else s.gain,
            parameters=tuple(name[start:] for name in s.parameters),
        )
        for s in sublayers
    )
    silent = any(s.returned is not None and not bool(s.returned.any()) for s in replay.calls)
    constant = any(not (m.same_row or m.mixes or m.cross) for m in mixes)
    return _BlockReading(
        stripped,
        tuple(mixes),
        opening.path[start:] if opening else None,
        sleeps=(silent or constant) and sleeps(replay.block),
    )


def _named_gain(replay: Replay, gain: float | str) -> float | str:
    """A gain that a parameter of the awake copy has, by the name of the parameter: it is zero."""
    for value, name in replay.woken_scalars.items():
        if isinstance(gain, float) and abs(gain - value) <= 1e-5 * abs(value):
            return name
    return gain


def _reader_of_channels(replay: Replay) -> ReplayedCall | None:
    """The convolution or norm that takes the stream's second axis for its features."""
    shape = replay.stream.shape
    if len(shape) < 3 or shape[1] == shape[-1]:
        return None
    for call in replay.calls:
        module = call.module
        if isinstance(module, nn.modules.conv._ConvNd):
            channels = module.in_channels
        elif isinstance(module, nn.modules.batchnorm._NormBase):
            channels = module.num_features
        elif isinstance(module, nn.GroupNorm):
            channels = module.num_channels
        else:
            continue
        if call.entered is not None and call.entered.shape == shape and channels == shape[1]:
            return call
    return None


def _placed(sublayers: tuple[Sublayer, ...], path: str) -> tuple[Sublayer, ...]:
    """The sublayers of one block carried to another block of its kind."""
    return tuple(
        replace(
            s,
            module=f"{path}.{s.module}",
            settle=_under(path, s.settle),
            gain=f"{path}.{s.gain}" if isinstance(s.gain, str) else s.gain,
            parameters=tuple(f"{path}.{name}" for name in s.parameters),
        )
        for s in sublayers
    )


def _under(path: str, name: str | None) -> str | None:
    return None if name is None else f"{path}.{name}"


def parameters_of(replay: Replay, writes: list[FittedWrite]) -> list[tuple[str, ...]]:
    """Parameters by sublayer: a module serves the first write at or after its first call.

    A settling norm serves the write that it settles; a gain the write that it scales. What is
    never called (a dictionary of parameters, a projection whose weight is used directly) belongs
    to the module around it.
    """
    called_paths = {call.path for call in replay.calls}
    owned: list[list[str]] = [[] for _ in writes]
    settles = {w.settle.path: i for i, w in enumerate(writes) if w.settle is not None}
    visited: set[str] = set()
    for call in replay.calls:
        if call.path in visited:
            continue
        visited.add(call.path)
        index = settles.get(call.path)
        if index is None:
            following = [i for i, w in enumerate(writes) if w.call.order >= call.order]
            index = following[0] if following else len(writes) - 1
        owned[index] += [
            f"{call.path}.{name}"
            for name, _ in call.module.named_parameters()
            if _holder(f"{call.path}.{name}", called_paths) == call.path
        ]
    for index, write in enumerate(writes):
        if isinstance(write.gain, str):
            owned[index].append(write.gain)
    return [tuple(dict.fromkeys(names)) for names in owned]


def name_stacks(stacks: list[Stack]) -> list[Stack]:
    """Stacks with short names: by what their paths say, otherwise by causality."""
    return _name_stacks(stacks)


_HINTS = ("vision", "visual", "audio", "text", "decoder", "encoder")


def _name_stacks(stacks: list[Stack]) -> list[Stack]:
    """Short names by what the path says, otherwise by causality; repeated names are numbered."""
    renamed: list[Stack] = []
    counts: dict[str, int] = {}
    for stack in stacks:
        words = re.split(r"[._\d]+", stack.blocks[0].module.lower())
        hint = next((h for h in _HINTS if any(word.startswith(h) for word in words)), None)
        if hint is None:
            hint = "decoder" if stack.causal else "encoder"
        hint = "vision" if hint == "visual" else hint
        counts[hint] = counts.get(hint, 0) + 1
        renamed.append(replace(stack, name=hint if counts[hint] == 1 else f"{hint}-{counts[hint]}"))
    return renamed


def _holder(parameter: str, called_paths: set[str]) -> str:
    """The innermost module that was called and has the parameter inside."""
    path = parameter.rpartition(".")[0]
    while path not in called_paths:
        path = path.rpartition(".")[0]
    return path
