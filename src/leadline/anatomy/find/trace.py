"""Trace one forward pass as a tree of module calls, and find the rows of blocks in it.

A row is a run of calls of the children of one container (or of same-class siblings) through
which a tensor of one shape passes. One module called twice is two calls: shared layers make a
row like any others.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from leadline.anatomy.find.replay import Arguments, copied_arguments
from leadline.anatomy.spread import whole
from leadline.anatomy.tensors import first_tensor, stream_input

__all__ = ["CallRow", "ModuleCall", "find_rows", "kind_of", "trace_calls"]

Tensor = torch.Tensor
_CONTAINERS = (nn.ModuleList, nn.Sequential, nn.ModuleDict)


@dataclass(eq=False)
class ModuleCall:
    """One call of one module. `number` counts the calls of this module from 0."""

    path: str
    module: nn.Module
    parent: ModuleCall | None
    number: int
    entered: Tensor | None = None
    returned: Tensor | None = None
    in_place: bool = False
    arguments: Arguments | None = None
    """What it was called with, copied when it was entered; None where nobody asked."""

    def inside(self, others: set[int]) -> bool:
        """Whether this call happened inside one of the calls whose ids are given."""
        outer = self.parent
        while outer is not None:
            if id(outer) in others:
                return True
            outer = outer.parent
        return False


@dataclass(frozen=True)
class CallRow:
    """Calls in a row through which one stream seems to pass."""

    where: str
    calls: tuple[ModuleCall, ...]
    linked: int = 0

    @property
    def unbroken(self) -> bool:
        """Whether what leaves a call is what enters the next, from the first to the last."""
        return self.linked == len(self.calls) - 1

    @property
    def shape(self) -> torch.Size:
        entered = self.calls[0].entered
        assert entered is not None
        return entered.shape


@dataclass
class _Tracer:
    leaves: bool
    copied: set[str]
    """The paths of modules of whose first call the arguments are kept."""
    calls: list[ModuleCall] = field(default_factory=list)
    open: list[ModuleCall] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    versions: dict[int, tuple[Tensor, int]] = field(default_factory=dict)

    def begin(self, *_: object) -> None:
        """Forget the calls of a pass that the model broke off: another one begins."""
        for one in (self.calls, self.open, self.counts, self.versions):
            one.clear()

    def enter(self, path: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            number = self.counts.get(path, 0)
            self.counts[path] = number + 1
            call = ModuleCall(path, module, self.open[-1] if self.open else None, number)
            if number == 0 and path in self.copied:
                call.arguments = copied_arguments(args, kwargs)
            entered = stream_input(args, kwargs)
            if entered is not None:
                call.entered = whole(entered)
                self.versions[id(call)] = (entered, entered._version)
            self.calls.append(call)
            self.open.append(call)

        return hook

    def leave(self) -> Callable[..., None]:
        def hook(
            module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: object
        ) -> None:
            call = self.open.pop()
            returned = first_tensor(output)
            call.returned = None if returned is None else whole(returned)
            if call.returned is not None and call.entered is not None:
                matching = stream_input(args, kwargs, like=call.returned.shape)
                if matching is not None and matching is not call.entered:
                    call.entered = whole(matching)
            entered, version = self.versions.pop(id(call), (None, 0))
            call.in_place = entered is not None and entered._version != version
            if not self.leaves and next(module.children(), None) is None:
                call.entered, call.returned = (
                    _shape_alone(call.entered),
                    _shape_alone(call.returned),
                )

        return hook


def _shape_alone(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else torch.empty_like(tensor, device="meta")


def trace_calls(
    model: nn.Module,
    forward: Callable[[], object],
    *,
    leaves: bool = True,
    arguments: bool = False,
) -> list[ModuleCall]:
    """Run `forward` once without gradients and return every module call in the order of entry.

    Without `leaves`, of modules without children the shapes alone are kept: no row is made of them,
    and together they are most of what a pass computes. With `arguments`, the first call of every
    kind of module that stands among its like keeps what it was called with.
    """
    modules = dict(model.named_modules())
    calls = _traced(model, modules, forward, leaves=leaves, arguments=arguments)
    if len(dict(model.named_modules())) > len(modules):  # it makes some in its first pass
        modules = dict(model.named_modules())
        calls = _traced(model, modules, forward, leaves=leaves, arguments=arguments)
    return calls


def _traced(
    model: nn.Module,
    modules: Mapping[str, nn.Module],
    forward: Callable[[], object],
    *,
    leaves: bool,
    arguments: bool,
) -> list[ModuleCall]:
    tracer = _Tracer(leaves, _first_of_kinds(modules) if arguments else set())
    handles: list[Any] = [model.register_forward_pre_hook(tracer.begin)]
    try:
        for path, module in modules.items():
            if path:
                handles.append(
                    module.register_forward_pre_hook(tracer.enter(path), with_kwargs=True)
                )
                handles.append(module.register_forward_hook(tracer.leave(), with_kwargs=True))
        with torch.no_grad():
            forward()
    finally:
        for handle in handles:
            handle.remove()
    return tracer.calls


def _first_of_kinds(modules: Mapping[str, nn.Module]) -> set[str]:
    """The first module of every kind among the children of a container or of the same class."""
    groups: dict[tuple[str, str], list[str]] = {}
    for path, module in modules.items():
        if path and next(module.children(), None) is not None:
            parent = path.rpartition(".")[0]
            kind = "" if isinstance(modules.get(parent), _CONTAINERS) else type(module).__name__
            groups.setdefault((parent, kind), []).append(path)
    first = set[str]()
    for paths in groups.values():
        if len(paths) > 1:
            kinds = {kind_of(modules[path]): path for path in reversed(paths)}
            first |= set(kinds.values())
    return first


def kind_of(module: nn.Module) -> tuple[object, ...]:
    """Blocks with the same modules under the same names are of one kind."""
    return tuple((name, type(inner).__name__) for name, inner in module.named_modules())


def find_rows(model: nn.Module, calls: list[ModuleCall]) -> list[CallRow]:
    """Every row of at least two calls, outermost first, the longest first among equals."""
    modules = dict(model.named_modules())
    groups: dict[tuple[str, str], list[ModuleCall]] = {}
    for call in calls:
        if next(call.module.children(), None) is None:
            # A block holds at least one module that writes; a norm alone is no block.
            continue
        parent, _, _ = call.path.rpartition(".")
        kind = type(call.module).__name__
        if isinstance(modules.get(parent), _CONTAINERS):
            groups.setdefault((parent, ""), []).append(call)
        groups.setdefault((parent, kind), []).append(call)
    rows: list[CallRow] = []
    known_runs: set[tuple[int, ...]] = set()
    for (parent, _), members in groups.items():
        for run in _runs(members):
            key = tuple(id(call) for call in run)
            if len(run) >= 2 and key not in known_runs:
                known_runs.add(key)
                rows.append(CallRow(parent, run, _links(run)))
    # Rows whose calls hand the stream on come first; others are tried after them: something may
    # happen to the stream between the blocks (YOLOS adds position embeddings there).
    return sorted(
        rows,
        key=lambda row: (
            2 * row.linked < len(row.calls) - 1,
            row.calls[0].path.count("."),
            -len(row.calls),
        ),
    )


def _runs(calls: list[ModuleCall]) -> list[tuple[ModuleCall, ...]]:
    """Cut the calls wherever the shape changes or no stream passes through."""
    runs: list[list[ModuleCall]] = [[]]
    for call in calls:
        entered, returned = call.entered, call.returned
        if entered is None or returned is None or entered.shape != returned.shape:
            runs.append([])
            continue
        last = runs[-1][-1].returned if runs[-1] else None
        if last is not None and last.shape != returned.shape:
            runs.append([])
        runs[-1].append(call)
    return [tuple(run) for run in runs]


def _links(run: tuple[ModuleCall, ...]) -> int:
    """How often what left one call is what entered the next."""
    return sum(_same(first.returned, second.entered) for first, second in itertools.pairwise(run))


def _same(first: Tensor | None, second: Tensor | None) -> bool:
    if first is None or second is None or first.shape != second.shape:
        return False
    return first is second or bool(torch.equal(first, second))
