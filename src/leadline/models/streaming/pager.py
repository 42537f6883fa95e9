"""Hold one block's weights in memory at a time: what runs is read from its file, then let go.

A *unit* is what is read and given back together: every member of a list of modules (a block), and
beside them every module for the parameters that it has itself (embedding, last norm, head).

    a block begins its forward pass      all others are given back, the next one is asked for
    it ends                              it is given back
    a block is computed again            during the backward pass: all others are given back; its
                                         own backward follows, and reads the weights again
    a row begins, a pass ends            what stands beside the blocks is given back

Nothing here can change a number: a page that is needed after it was given back is read again. So
tied weights, shared layers and modules that are called in unusual ways cost time at worst.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn

from leadline.errors import Progress, no_progress
from leadline.models.streaming.mapped import (
    FileMappings,
    Region,
    file_states,
    joined,
    refuse_changed,
)
from leadline.models.streaming.memory import (
    MemoryPeaks,
    in_bytes,
    read_from_disk,
    return_freed_memory,
)

__all__ = ["Pager", "Unit", "heard", "pager_of", "units_of"]


LET_GO_AFTER = 2**26
"""After so many bytes that were read outside of passes all is given back."""


@dataclass(frozen=True, eq=False)
class Unit:
    """What is read and given back together; `row` is the list of modules that a block stands in."""

    name: str
    regions: tuple[Region, ...]
    row: str | None
    number: int = 0
    """The place in the row, from 0."""
    tensors: tuple[torch.Tensor, ...] = ()
    """What lies in the regions: while it is held, nothing else can come to stand there."""

    @property
    def bytes(self) -> int:
        """How much of files it covers."""
        return sum(region.end - region.start for region in self.regions)

    def give_back(self) -> None:
        """Let its pages go, but for those that were written."""
        for region in self.regions:
            region.give_back()


class Pager:
    """The streaming of one model: its hooks, and the books about what was read and held."""

    def __init__(self, model: nn.Module, *, why: str, files: tuple[str, ...], scratch: int) -> None:
        self.why = why
        self.files = files
        self.scratch = scratch
        self.units = {unit.name: unit for unit in units_of(model)}
        self.rows: dict[str, list[Unit]] = {}
        for unit in self.units.values():
            if unit.row is not None:
                self.rows.setdefault(unit.row, []).append(unit)
        mappings = FileMappings()
        tensors = [tensor for unit in self.units.values() for tensor in unit.tensors]
        self._states = file_states({mappings.file_of(tensor) for tensor in tensors})
        self.bytes = sum(r.end - r.start for r in self._all_regions())
        self.requested = 0
        self.passes = 0
        self.recomputed: tuple[int, int] | None = None
        self.peaks = MemoryPeaks()
        self.doing, self.say = "", no_progress
        self._resident: dict[str, Unit] = {}
        self._loose = [unit for unit in self.units.values() if unit.row is None]
        self._read_outside = 0
        self._read_before = read_from_disk()
        # Blocks alone have hooks: some readers ask whether others listen to a single layer.
        for unit in self.units.values():
            if unit.row is not None:
                module = model.get_submodule(unit.name)
                module.register_forward_pre_hook(self._entry_hook(unit))
                module.register_forward_hook(self._exit_hook(unit))
        model.register_forward_hook(lambda *_: self._end_pass())
        _pagers[model] = self
        self.give_back()

    def tell(self, doing: str, say: Progress) -> None:
        """Say from now on which block is being read, and for what."""
        self.doing, self.say = doing, say

    def give_back(self) -> None:
        """Let all weights go."""
        self.peaks.look()
        for unit in self.units.values():
            unit.give_back()
        self._resident.clear()

    def end_reading(self, tensor: torch.Tensor) -> None:
        """Take notice that one weight was read outside of a pass; let go now and then."""
        self.requested += tensor.nbytes
        self._read_outside += tensor.nbytes
        if self._read_outside > LET_GO_AFTER:
            self._read_outside = 0
            self.give_back()

    def compute_again(self, path: str) -> None:
        """Make room for a block whose forward pass runs again, and whose backward pass follows."""
        unit = self._unit_around(path)
        self.peaks.look()
        if unit is not None:
            self._make_room(unit, first=len(self.rows[unit.row or ""]) - 1)
            self._take(unit, step=-1)

    @property
    def largest(self) -> Unit:
        """The unit that needs most memory."""
        return max(self.units.values(), key=lambda unit: unit.bytes)

    def facts(self) -> dict[str, Any]:
        """What the record says about the streaming, of files that nobody has written meanwhile."""
        refuse_changed(self._states)
        disk = read_from_disk()
        before = self._read_before
        self.peaks.look()
        return {
            "why": self.why,
            "files": list(self.files),
            "bytes": self.bytes,
            "converted_bytes": self.scratch,
            "largest_unit": {"module": self.largest.name, "bytes": self.largest.bytes},
            "units": len(self.units),
            "passes": self.passes,
            "bytes_requested": self.requested,
            "bytes_from_disk": None if disk is None or before is None else disk - before,
            "peak_bytes": {
                "own": self.peaks.own,
                "files": self.peaks.files,
                "both": self.peaks.both,
            },
            **(
                {}
                if self.recomputed is None
                else {"recomputed_blocks": self.recomputed[0], "blocks": self.recomputed[1]}
            ),
        }

    def in_words(self) -> str:
        """What was streamed, and what it took, in a sentence or two."""
        facts = self.facts()
        written = f", {in_bytes(self.scratch)} of them converted" if self.scratch else ""
        return (
            f"Streamed, because {self.why}: {in_bytes(self.bytes)} of weights{written}, at most "
            f"{in_bytes(self.largest.bytes)} at a time ('{self.largest.name}'), read "
            f"{in_bytes(self.requested)} in all. Peak memory: "
            f"{in_bytes(facts['peak_bytes']['own'])} of its own and "
            f"{in_bytes(facts['peak_bytes']['files'])} of mapped files."
        )

    def _all_regions(self) -> list[Region]:
        return joined({r for unit in self.units.values() for r in unit.regions})

    def _unit_around(self, path: str) -> Unit | None:
        while path:
            if path in self.units and self.units[path].row is not None:
                return self.units[path]
            path = path.rpartition(".")[0]
        return None

    def _make_room(self, unit: Unit, *, first: int) -> None:
        """Let all other blocks go; and what stands beside them, where the row begins with it."""
        for other in [one for one in self._resident.values() if one.name != unit.name]:
            other.give_back()
            del self._resident[other.name]
        if unit.number == first:
            for other in self._loose:
                other.give_back()

    def _take(self, unit: Unit, *, step: int) -> None:
        """Note a unit that is about to be read, and have the one after it fetched meanwhile."""
        self._resident[unit.name] = unit
        self.requested += unit.bytes
        row = self.rows[unit.row or ""]
        if 0 <= unit.number + step < len(row):
            for region in row[unit.number + step].regions:
                region.read_ahead()
        at = unit.number if step > 0 else len(row) - 1 - unit.number
        self.say(f"{self.doing}, {'forward' if step > 0 else 'backward'}", at, len(row))
        refuse_changed(self._states)

    def _entry_hook(self, unit: Unit) -> Callable[..., None]:
        def hook(*_: object) -> None:
            self._make_room(unit, first=0)
            self._take(unit, step=1)

        return hook

    def _exit_hook(self, unit: Unit) -> Callable[..., None]:
        def hook(*_: object) -> None:
            self.peaks.look()
            unit.give_back()
            self._resident.pop(unit.name, None)

        return hook

    def _end_pass(self) -> None:
        self.passes += 1
        self.requested += sum(unit.bytes for unit in self._loose)
        self.give_back()
        return_freed_memory()


def units_of(model: nn.Module) -> list[Unit]:
    """The units of a model: members of the outermost lists of modules, and all modules beside them."""
    mappings = FileMappings()
    units: list[Unit] = []
    reached: set[int] = set()

    def walk(module: nn.Module, path: str) -> None:
        if id(module) in reached:
            return
        reached.add(id(module))
        if isinstance(module, nn.ModuleList):
            for number, (name, member) in enumerate(module.named_children()):
                inside = [*member.parameters(), *member.buffers()]
                _add(f"{path}.{name}", inside, row=path, number=number)
            return
        _add(path, [*module.parameters(recurse=False), *module.buffers(recurse=False)])
        for name, child in module.named_children():
            walk(child, f"{path}.{name}" if path else name)

    def _add(path: str, tensors: list[torch.Tensor], row: str | None = None, number: int = 0):
        regions = [mappings.region_of(tensor) for tensor in tensors]
        held = tuple(tensor.detach() for tensor in tensors)  # `tensor.data` may be exchanged
        there = joined(region for region in regions if region is not None)
        if there or row is not None:
            units.append(Unit(path, tuple(there), row, number, held))

    walk(model, "")
    return units


def pager_of(module: nn.Module) -> Pager | None:
    """The streaming of a model; None where it is wholly in memory."""
    return _pagers.get(module)


@contextmanager
def heard(module: nn.Module) -> Iterator[Pager | None]:
    """The streaming of a model; whatever listens to it meanwhile hears nothing of later passes."""
    pager = pager_of(module)
    if pager is None:
        yield None
        return
    doing, say = pager.doing, pager.say
    try:
        yield pager
    finally:
        pager.tell(doing, say)


_pagers: WeakKeyDictionary[nn.Module, Pager] = WeakKeyDictionary()
