"""Look at every block by itself: what its output is, where its norms stand, which update is lost.

Discovery reads one block of every kind and carries its equation to the others; where that does not
balance the model is refused. This survey runs every block again on its own, on the arguments of a
real pass, and says of each what it does, so that one odd layer can be told from its neighbours.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn

from leadline.anatomy.find.block_terms import STREAM, Term, Terms, hands_on, terms_text
from leadline.anatomy.find.fit import BlockFit, FittedWrite, fit_block, fit_stream_alone
from leadline.anatomy.find.imbalance import BlockCall
from leadline.anatomy.find.replay import (
    UNRUNNABLE,
    Arguments,
    Replay,
    ReplayedCall,
    branch_shares,
    capture_arguments,
    replay_block,
    sleeps,
    zero_gates,
)
from leadline.anatomy.find.sublayer_roles import mark_parallel, placement_of
from leadline.anatomy.tensors import first_tensor, stream_input

__all__ = ["BlockFault", "BlockReport", "WriteReport", "survey_blocks"]

Tensor = torch.Tensor


@dataclass(frozen=True)
class WriteReport:
    """One write of a block: names are as seen from the block.

    `norm` is the norm that reads the stream for the branch, None where the branch reads it bare.
    """

    module: str
    keep: float
    gain: float | str
    settle: str | None
    placement: str
    parallel: bool
    norm: str | None


@dataclass(frozen=True)
class BlockFault:
    """One thing that is wrong inside a block; `branch` and `source` are names as seen from it.

    Kinds: `random`, `nothing-written`, `stream-scaled`, `skip-missing`, `skip-multiplied`,
    `skip-from-before`, `skip-from-elsewhere`, `update-unread`, `unexplained`.
    """

    kind: str
    branch: str = ""
    source: str = ""
    formula: str = ""
    number: float | None = None
    reads: str = ""
    """The norm through which the branch reads the stream."""
    certain: bool = True
    """False where the branch is no linear map at its end and could add the stream inside."""


@dataclass(frozen=True)
class BlockReport:
    """What one block does. `formula` is its output; `balances` says that it is stream and updates.

    `kind` is equal for blocks with the same modules apart from norms. `norms` are the norms that
    ran, with what each took in; `idle_norms` are those that did not run.
    """

    layer: int
    module: str
    class_name: str
    kind: int
    balances: bool
    formula: str
    writes: tuple[WriteReport, ...] = ()
    opening: str | None = None
    norms: Mapping[str, str] | None = None
    idle_norms: tuple[str, ...] = ()
    faults: tuple[BlockFault, ...] = ()
    gates: tuple[str, ...] = ()
    largest_share: float | None = None
    """The largest branch output over the stream; asked only of blocks that write nothing."""

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return asdict(self)


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
            point = _stream_point(terms, write.call)
            reports.append(
                WriteReport(
                    module=_branch_name(terms, write.call),
                    keep=write.keep + _stream_inside(write),
                    gain=_gain(write, replay),
                    settle=None if write.settle is None else terms.name(write.settle),
                    placement=placement_of(replay, write, earlier),
                    parallel=write.parallel,
                    norm=None if point is None or point.norm is None else terms.name(point.norm),
                )
            )
            if point is not None and not write.parallel:
                faults += _lost_on_the_way(terms, writes, write, point)
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
            norms=_norm_readers(terms),
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
        for others in ({}, self.earlier, self._other_inputs(replay), _products(replay)):
            terms = Terms(replay, others)
            path = _back_to_stream(terms)
            if path is not None:
                formula, faults = path
                return self._report(
                    replay, balances=False, formula=formula, faults=tuple(faults),
                    norms=_norm_readers(terms),
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


@dataclass(frozen=True)
class _StreamPoint:
    """The stream as a branch reads it, through a norm or bare; `order` is that of the reader."""

    value: Tensor
    order: int
    norm: ReplayedCall | None


def _stream_point(terms: Terms, call: ReplayedCall) -> _StreamPoint | None:
    """Go back from the call that returned an update to the tensor of the stream that it is made of."""
    outer = call
    for _ in range(6):
        outer = _outermost(terms, outer)
        value, order = outer.entered, outer.order
        if value is None:
            return None
        maker = next(
            (
                c
                for c in reversed(terms.replay.calls)
                if c.order < order
                and c is not outer
                and _equal(c.returned, value)
                and not hands_on(c)
            ),
            None,
        )
        if maker is not None and maker.norm and terms.fits(maker.entered):
            assert maker.entered is not None
            return _StreamPoint(maker.entered, maker.order, maker)
        if maker is None:
            fits = terms.fits(value)
            return _StreamPoint(value, _first_inside(terms, outer), None) if fits else None
        outer = maker
    return None


def _outermost(terms: Terms, call: ReplayedCall) -> ReplayedCall:
    """The call of the block's own child around this call."""
    child = terms.replay.path + "." + terms.name(call).split(".")[0]
    return next((c for c in terms.replay.calls if c.path == child and c.order >= call.order), call)


def _first_inside(terms: Terms, call: ReplayedCall) -> int:
    """The order of the first call inside this one: what came before it was there when it began."""
    inside = [c.order for c in terms.replay.calls if c.path.startswith(f"{call.path}.")]
    return min([call.order, *(order for order in inside if order < call.order)])


def _stream_inside(write: FittedWrite) -> float:
    """The stream that a branch has in its own output, where it says so: a mended skip does.

    2 x + (u - x) is x + u.
    """
    factor = getattr(write.call.module, "stream_factor", None)
    if not isinstance(factor, float) or not isinstance(write.gain, float):
        return 0.0
    return write.gain * factor


def _branch_name(terms: Terms, call: ReplayedCall) -> str:
    """The name of what computed an update: not that of a dropout behind it."""
    parts = None if call.returned is None else terms.explain(call.returned)
    return parts[0].name if parts is not None and len(parts) == 1 else terms.name(call)


def _lost_on_the_way(
    terms: Terms, writes: Sequence[FittedWrite], write: FittedWrite, point: _StreamPoint
) -> list[BlockFault]:
    """Updates that a later branch reads together with the stream, and the stream itself never gets."""
    parts = terms.explain(point.value, before=point.order)
    if parts is None or not any(part.name == STREAM for part in parts):
        return []
    # A branch that adds the stream itself, as Bloom's does, brings along what came before it.
    update = write.call.returned
    inside = None if update is None else terms.explain(update, before=write.call.order)
    if any(part.name == STREAM for part in inside or ()):
        return []
    faults: list[BlockFault] = []
    for part in parts:
        if part.call is None or part.norm:
            continue
        if any(_equal(part.call.returned, one.call.returned) for one in writes):
            continue
        faults.append(
            BlockFault(
                "skip-from-before",
                branch=_branch_name(terms, write.call),
                source=part.name,
                formula=f"branch reads {terms_text(parts)}",
            )
        )
    return faults


def _back_to_stream(terms: Terms) -> tuple[str, list[BlockFault]] | None:
    """Go from the output back to the block's input; each addition without the stream is a fault."""
    replay = terms.replay
    value, order = replay.after, len(replay.calls)
    faults: list[BlockFault] = []
    formulas: list[str] = []
    for _ in range(8):
        settle = _norm_that_made(terms, value, order)
        if settle is not None:
            assert settle.entered is not None
            value, order = settle.entered, settle.order
        parts = terms.explain(value, before=order)
        if parts is None:
            return None
        text = terms_text(parts)
        formulas.insert(0, text if settle is None else f"{terms.name(settle)}({text})")
        if any(part.name == STREAM for part in parts):
            break
        if any(_is_foreign(part) for part in parts):
            faults += [_fault_of_source(parts, part) for part in parts if _is_foreign(part)]
            break
        state = next((part.call for part in parts if _is_state(terms, part)), None)
        if state is not None:
            assert state.entered is not None
            value, order = state.entered, state.order
            formulas[0] = formulas[0].replace(terms.name(state), f"h = {terms.name(state)}(...)")
            continue
        first = min(parts, key=lambda part: -1 if part.call is None else part.call.order)
        assert first.call is not None
        point = _stream_point(terms, first.call)
        norm = None if point is None else point.norm
        faults.append(
            BlockFault(
                "skip-missing",
                branch=first.name,
                formula=text,
                reads="" if norm is None else terms.name(norm),
                certain=_ends_linearly(terms, first.call),
            )
        )
        if point is None or torch.equal(terms.flat(point.value), terms.flat(replay.before)):
            break
        value, order = point.value, point.order
    return (" then ".join(formulas), faults) if faults else None


def _ends_linearly(terms: Terms, call: ReplayedCall) -> bool:
    """Whether an update is what a linear map returned, in which no stream can have been added."""
    return any(
        c.leaf and _is_linear_map(c.module) and _equal(c.returned, call.returned)
        for c in terms.replay.calls
    )


def _is_linear_map(module: nn.Module) -> bool:
    weight = getattr(module, "weight", None)
    known = type(module).__module__.startswith("torch.nn.") or type(module).__name__ == "Conv1D"
    return known and isinstance(weight, Tensor) and weight.ndim >= 2


def _is_foreign(part: Term) -> bool:
    return part.call is None and part.name != STREAM


def _fault_of_source(parts: tuple[Term, ...], part: Term) -> BlockFault:
    """A sum that holds a tensor from elsewhere in place of the stream."""
    text = terms_text(parts)
    if part.name.startswith(f"{STREAM} * "):
        return BlockFault(
            "skip-multiplied", branch=part.name.removeprefix(f"{STREAM} * "), formula=text
        )
    branch = next((one.name for one in parts if one.call is not None), "")
    return BlockFault("skip-from-elsewhere", branch=branch, source=part.name, formula=text)


def _is_state(terms: Terms, part: Term) -> bool:
    """Whether a term is the stream behind a norm, not a branch whose output is normed."""
    call = part.call
    if call is None or not call.norm or not terms.fits(call.entered):
        return False
    return not any(
        not c.norm and c.order < call.order and _equal(c.returned, call.entered)
        for c in terms.replay.calls
    )


def _norm_that_made(terms: Terms, value: Tensor, order: int) -> ReplayedCall | None:
    """The norm whose output a value is, unless it norms the output of a branch."""
    for call in reversed(terms.replay.calls):
        if call.order < order and call.norm and _equal(call.returned, value):
            return call if _is_state(terms, Term(1.0, terms.name(call), call)) else None
    return None


def _products(replay: Replay) -> dict[str, Tensor]:
    """The stream times what each child returned."""
    return {
        f"{STREAM} * {call.path.removeprefix(replay.path + '.')}": replay.before * call.returned
        for call in replay.calls
        if call.returned is not None
        and call.returned.shape == replay.before.shape
        and "." not in call.path.removeprefix(f"{replay.path}.")
        and not call.norm
    }


def _norm_readers(terms: Terms) -> dict[str, str]:
    """What each norm that runs on tensors of the stream's size takes in, as a sum."""
    readers: dict[str, str] = {}
    for call in terms.replay.calls:
        if call.norm and call.entered is not None and terms.fits(call.entered):
            parts = terms.explain(call.entered, before=call.order)
            readers[terms.name(call)] = "" if parts is None else terms_text(parts)
    return readers


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


def _equal(first: Tensor | None, second: Tensor | None) -> bool:
    return (
        first is not None
        and second is not None
        and first.shape == second.shape
        and torch.equal(first, second)
    )


def _related(first: str, second: str) -> bool:
    """Whether one module is the other, or inside of it."""
    return first == second or first.startswith(f"{second}.") or second.startswith(f"{first}.")
