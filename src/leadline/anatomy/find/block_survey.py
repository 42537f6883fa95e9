"""Look at every block by itself: what its output is, where its norms stand, which update is lost.

Discovery reads one block of every kind and carries its equation to the others; where that does not
balance the model is refused. This survey runs every block again on its own, on the arguments of a
real pass, and says of each what it does, so that one odd layer can be told from its neighbours.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from leadline.anatomy.find.block_path import (
    back_to_stream,
    branch_name,
    lost_on_the_way,
    norm_readers,
    stream_point,
    stream_products,
)
from leadline.anatomy.find.block_report import BlockFault, BlockReport, WriteReport
from leadline.anatomy.find.block_terms import STREAM, Terms, hands_on
from leadline.anatomy.find.fit import BlockFit, FittedWrite, fit_block, fit_stream_alone
from leadline.anatomy.find.imbalance import BlockCall
from leadline.anatomy.find.replay import (
    UNRUNNABLE,
    Arguments,
    Replay,
    branch_shares,
    capture_arguments,
    replay_block,
    sleeps,
    zero_gates,
)
from leadline.anatomy.find.sublayer_roles import mark_parallel, placement_of
from leadline.anatomy.tensors import first_tensor, stream_input

__all__ = ["survey_blocks"]

Tensor = torch.Tensor


def survey_blocks(
    model: nn.Module, forward: Callable[[], object], calls: Sequence[BlockCall], shape: torch.Size
) -> list[BlockReport]:
    """The report of every block that could be run again on its own, in order."""
    captured = capture_arguments(model, forward, {(call.path, call.number) for call in calls})
    modules = dict(model.named_modules(remove_duplicate=False))
    entries = {
        call.layer: stream
        for call in calls
        if (call.path, call.number) in captured
        and (stream := _entry(captured[call.path, call.number], shape)) is not None
    }
    kinds: dict[tuple[object, ...], int] = {}
    reports: list[BlockReport] = []
    for call in calls:
        arguments = captured.get((call.path, call.number))
        if arguments is None:
            continue
        block = modules[call.path]
        kind = kinds.setdefault(_kind(block), len(kinds))
        earlier = {
            f"the stream that entered layer {layer}": entry
            for layer, entry in entries.items()
            if layer < call.layer
        }
        report = _Examination(call, block, arguments, shape, kind, earlier).report()
        if report is not None:
            reports.append(report)
    return reports


def _entry(arguments: Arguments, shape: torch.Size) -> Tensor | None:
    return stream_input(*arguments, like=shape)


def _kind(block: nn.Module) -> tuple[object, ...]:
    return tuple(
        (name, type(module).__name__)
        for name, module in block.named_modules()
        if name and not _is_norm(module) and not isinstance(module, nn.Identity | nn.Dropout)
    )


def _is_norm(module: nn.Module) -> bool:
    return "norm" in type(module).__name__.lower()


class _Examination:
    """One block under examination."""

    def __init__(
        self,
        call: BlockCall,
        block: nn.Module,
        arguments: Arguments,
        shape: torch.Size,
        kind: int,
        earlier: Mapping[str, Tensor],
    ) -> None:
        self.call, self.block, self.arguments, self.shape = call, block, arguments, shape
        self.kind, self.earlier = kind, earlier

    def report(self) -> BlockReport | None:
        try:
            replay = replay_block(self.call.path, self.block, self.arguments, self.shape)
        except UNRUNNABLE:
            return None
        if not bool(torch.isfinite(replay.after).all()):
            return None
        fit = fit_block(replay)
        repeats = None if fit is not None else self._repeats(replay)
        if fit is None and repeats is None:
            return None
        if repeats is False:
            fault = BlockFault("random", formula="another output at every run")
            return self._report(replay, balances=False, formula=fault.formula, faults=(fault,))
        if (fit is None or _silent(replay)) and sleeps(self.block):
            awake = self._awake()
            fit_awake = None if awake is None else fit_block(awake)
            if awake is not None and fit_awake is not None:
                replay, fit = awake, fit_awake
        if fit is not None:
            return self._balanced(replay, fit)
        return self._faulty(replay)

    def _awake(self) -> Replay | None:
        try:
            return replay_block(self.call.path, self.block, self.arguments, self.shape, awake=True)
        except UNRUNNABLE:
            return None

    def _repeats(self, replay: Replay) -> bool | None:
        """Whether another run gives the same output; None where a run changes its arguments."""
        try:
            again = replay_block(self.call.path, self.block, self.arguments, self.shape)
        except UNRUNNABLE:
            return None
        return torch.equal(replay.after, again.after)

    def _report(
        self,
        replay: Replay,
        *,
        balances: bool,
        formula: str,
        faults: tuple[BlockFault, ...] = (),
        **more: Any,
    ) -> BlockReport:
        called = {call.path for call in replay.calls}
        inside = [(f"{replay.path}.{name}", m) for name, m in self.block.named_modules() if name]
        idle = tuple(
            path.removeprefix(f"{replay.path}.")
            for path, module in inside
            if _is_norm(module) and path not in called
        )
        return BlockReport(
            layer=self.call.layer,
            module=self.call.path,
            class_name=type(self.block).__name__,
            kind=self.kind,
            balances=balances,
            formula=formula,
            idle_norms=idle,
            faults=faults,
            **more,
        )

    # --- a block that balances ---------------------------------------------------------------

    def _balanced(self, replay: Replay, fit: BlockFit) -> BlockReport:
        writes = list(fit.writes)
        mark_parallel(replay, writes)
        terms = Terms(replay)
        reports: list[WriteReport] = []
        faults: list[BlockFault] = []
        earlier = -1
        for write in writes:
            point = stream_point(terms, write.call)
            reports.append(
                WriteReport(
                    module=branch_name(terms, write.call),
                    keep=write.keep + _stream_inside(write, replay),
                    gain=_gain(write, replay),
                    settle=None if write.settle is None else terms.name(write.settle),
                    placement=placement_of(replay, write, earlier),
                    parallel=write.parallel,
                    norm=None if point is None or point.norm is None else terms.name(point.norm),
                )
            )
            if point is not None and not write.parallel:
                faults += lost_on_the_way(terms, writes, write, point)
            earlier = write.call.order
        lost = {fault.source for fault in faults}
        faults += [
            BlockFault("update-unread", branch=name)
            for name in self._unread(terms, writes)
            if name not in lost
        ]
        formula = " then ".join(_formula(one) for one in reports)
        opening = None if fit.opening is None else terms.name(fit.opening)
        return self._report(
            replay,
            balances=True,
            formula=formula,
            faults=tuple(faults),
            writes=tuple(reports),
            opening=opening,
            norms=norm_readers(terms),
        )

    def _unread(self, terms: Terms, writes: Sequence[FittedWrite]) -> list[str]:
        """Children that ran, write nothing, and whose output the block's output does not depend on."""
        replay = terms.replay
        paths = [write.call.path for write in writes]
        children: dict[str, nn.Module] = {}
        for call in replay.calls:
            if terms.name(call).count(".") or hands_on(call) or call.norm:
                continue
            if not terms.fits(call.returned):
                continue
            related = any(_related(path, call.path) for path in paths)
            if not related and any(True for _ in call.module.parameters()):
                children[terms.name(call)] = call.module
        return [name for name, module in children.items() if not self._matters(replay, module)]

    def _matters(self, replay: Replay, module: nn.Module) -> bool:
        """Whether the output of the block changes when what this module returns is changed."""

        def disturb(_: nn.Module, args: object, output: Any) -> Any:
            tensor = first_tensor(output)
            if tensor is not None:
                with torch.no_grad():
                    tensor.add_(torch.randn_like(tensor) * (tensor.detach().abs().max() + 1.0))
            return None

        if replay.block is not self.block:  # an awake or widened copy ran instead
            return True
        handle = module.register_forward_hook(disturb)
        try:
            with torch.no_grad():
                again = replay_block(self.call.path, self.block, self.arguments, self.shape)
        except UNRUNNABLE:
            return True
        finally:
            handle.remove()
        return not torch.equal(again.after, replay.after)

    # --- a block that does not ---------------------------------------------------------------

    def _faulty(self, replay: Replay) -> BlockReport:
        factor = fit_stream_alone(replay)
        if factor is not None:
            kind = "nothing-written" if factor == 1.0 else "stream-scaled"
            formula = STREAM if factor == 1.0 else f"{factor:.6g} {STREAM}"
            gates = tuple(name.removeprefix(f"{replay.path}.") for name in zero_gates(replay))
            fault = BlockFault(kind, formula=formula, number=factor)
            return self._report(
                replay, balances=False, formula=formula, faults=(fault,), gates=gates,
                largest_share=max(branch_shares(replay), default=None),
            )  # fmt: skip
        for others in ({}, self.earlier, self._other_inputs(replay), stream_products(replay)):
            terms = Terms(replay, others)
            path = back_to_stream(terms)
            if path is not None:
                formula, faults = path
                return self._report(
                    replay, balances=False, formula=formula, faults=tuple(faults),
                    norms=norm_readers(terms),
                )  # fmt: skip
        fault = BlockFault("unexplained")
        return self._report(replay, balances=False, formula="", faults=(fault,))

    def _other_inputs(self, replay: Replay) -> dict[str, Tensor]:
        """What else is handed to the block in the shape of the stream, such as an encoder's output."""
        positional, named = self.arguments
        names = list(inspect.signature(self.block.forward).parameters)
        every = {**dict(zip(names, positional, strict=False)), **named}
        return {
            f"the other input '{name}'": value
            for name, value in every.items()
            if isinstance(value, Tensor)
            and value.shape == replay.before.shape
            and value.is_floating_point()
            and not torch.equal(value, replay.before)
        }


def _stream_inside(write: FittedWrite, replay: Replay) -> float:
    """The stream that a branch has in its own output, where it says so: a mended skip does.

    2 x + (u - x) is x + u. The write may be named by a dropout that passed the output on.
    """
    value = write.call.returned
    if not isinstance(write.gain, float) or value is None:
        return 0.0
    for call in replay.calls:
        factor = getattr(call.module, "stream_factor", None)
        if (
            isinstance(factor, float)
            and call.returned is not None
            and torch.equal(call.returned, value)
        ):
            return write.gain * factor
    return 0.0


def _gain(write: FittedWrite, replay: Replay) -> float | str:
    """The gain; by the name of its parameter where a zero one was woken for the fit."""
    if not isinstance(write.gain, float):
        return terms_name(write, replay)
    for value, name in replay.woken_scalars.items():
        if abs(write.gain - value) <= 1e-5 * abs(value):
            return name.removeprefix(f"{replay.path}.")
    return write.gain


def terms_name(write: FittedWrite, replay: Replay) -> str:
    """The name of the parameter that scales a write, as seen from the block."""
    return str(write.gain).removeprefix(f"{replay.path}.")


def _formula(one: WriteReport) -> str:
    keep = "" if one.keep == 1.0 else f"{one.keep:.6g} "
    gain = "" if one.gain == 1.0 else f"{one.gain:.6g} " if isinstance(one.gain, float) else f"{one.gain} "  # fmt: skip
    text = f"{keep}x + {gain}{one.module}"
    return text if one.settle is None else f"{one.settle}({text})"


def _silent(replay: Replay) -> bool:
    return any(c.returned is not None and not bool(c.returned.any()) for c in replay.calls)


def _related(first: str, second: str) -> bool:
    """Whether one module is the other, or inside of it."""
    return first == second or first.startswith(f"{second}.") or second.startswith(f"{first}.")
