"""Run the probes that see blocks as linear maps, part by part, after the passes of a measurement.

A part is one block (or one of its sublayers) of one probe, the chain of all blocks from the last to
the first, or the product up to one site. Its rows are in the record as soon as it has ended, so an
interrupted measurement continues with the next part. One block is linearised at a time and released:
the memory is that of one block's graph, or for a product that of all blocks before its site.

Quantities of several blocks (chains, and what a probe names in `across`) assume that the blocks'
product is the Jacobian of the stack. Where anything but the stream may go from block to block, the
product is compared once per stack with the whole model (`linear.checks.joined`), and refused beyond
`JOINED`. Every block is compared with finite differences (`linear.checks.cut_off`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import nn

from leadline.anatomy import Anatomy, Stack
from leadline.anatomy.stretch.stretch import Function, Stretches
from leadline.errors import ProbeError
from leadline.instruments.passes.linear.checks import (
    JOINED,
    NOT_COMPARED,
    cut_off,
    joined,
    not_the_product,
    plainly,
    refuse_other,
)
from leadline.instruments.passes.probe import At, Kind, Refused, Result, Sight, Single
from leadline.instruments.passes.probe_plan import Plan
from leadline.numerics.linear.linear_maps import LinearMap
from leadline.numerics.linear.linearised import Linearised
from leadline.record import Quantity, Reading, Site
from leadline.record.file.unfinished import GrowingRecord, Refusal

__all__ = ["Linearising", "Part"]

Tensor = torch.Tensor
Say = Callable[[str, int], None]
"""Called with a description of the current step and the steps done."""


@dataclass(frozen=True)
class Part:
    """One piece of work of one probe; `steps` are what progress counts."""

    name: str
    probe: Any
    kind: Kind
    stack: Stack
    site: Site
    steps: tuple[str, ...]

    @property
    def key(self) -> str:
        """Its name in the record."""
        write = "" if self.site.sublayer is None else f".{self.site.sublayer}"
        return f"{self.name} {self.kind} {self.stack.name} {self.site.layer}{write}"

    @property
    def words(self) -> str:
        """What progress says."""
        several = {"chain": "", "product": f", sites 0 to {self.site.layer}"}
        write = "" if self.kind != "sublayer" else f" {self.site.point}"
        return f"{self.name}{several.get(self.kind, f', layer {self.site.layer}{write}')}"


@dataclass
class _Gathered:
    """The readings and refusals of one part."""

    readings: list[Reading] = field(default_factory=list[Reading])
    refused: list[Refusal] = field(default_factory=list[Refusal])
    quantities: list[Quantity] = field(default_factory=list[Quantity])


class Linearising:
    """All parts of the planned probes on one model. `forward` runs it once on the inputs."""

    def __init__(
        self, module: nn.Module, anatomy: Anatomy, plan: Plan, forward: Callable[[], object]
    ) -> None:
        self.module = module
        self.forward = forward
        self.plan = plan
        self.parts = [part for stack in anatomy.stacks for part in _parts(plan, stack)]
        self.facts: dict[str, dict[str, Any]] = {}
        """How each stack was run: the attention kernel, the number type, what was held fixed."""

    @property
    def steps(self) -> int:
        """How many steps progress counts in all."""
        return sum(len(part.steps) for part in self.parts)

    def run(self, growing: GrowingRecord, say: Say) -> None:
        """Do the parts that the record does not hold yet."""
        for parameter in self.module.parameters():
            parameter.requires_grad_(False)  # only gradients of the stream are asked for
        with plainly() as remarks:
            self._run(growing, say, remarks)

    def _run(self, growing: GrowingRecord, say: Say, remarks: tuple[str, ...]) -> None:
        finished = growing.finished
        carried = growing.carried
        self.facts |= carried.get("stacks", {})
        for choice, probe in zip(self.plan.choices, self.plan.probes, strict=True):
            if state := carried.get("probes", {}).get(choice.name):
                probe.carry_on(state)
        steps_done = sum(len(part.steps) for part in self.parts if part.key in finished)
        stack_maps: _StackMaps | None = None
        for part in self.parts:
            if part.key in finished:
                continue
            if stack_maps is None or stack_maps.stack is not part.stack:
                say(f"{part.words}: forward pass", steps_done)
                stack_maps = None  # let go of the streams before others are held
                earlier_remarks = self.facts.get(part.stack.name, {}).get("remarks", [])
                stack_maps = _StackMaps(
                    self.module, part.stack, self.forward, [*earlier_remarks, *remarks]
                )
            gathered = _gathered(part, stack_maps, lambda what, at, n=steps_done: say(what, n + at))
            self.facts[part.stack.name] = stack_maps.facts
            growing.add(
                part.key,
                gathered.quantities,
                gathered.readings,
                refused=gathered.refused,
                carried=self._carried(),
            )
            steps_done += len(part.steps)

    def _carried(self) -> dict[str, Any]:
        probes = {
            choice.name: probe.carried()
            for choice, probe in zip(self.plan.choices, self.plan.probes, strict=True)
            if probe in self.plan.linear
        }
        return {"probes": probes, "stacks": self.facts}


class _StackMaps:
    """The linear maps of one stack, one at a time; ProbeError says why one is not available."""

    def __init__(
        self, module: nn.Module, stack: Stack, forward: Callable[[], object], remarks: Iterable[str]
    ) -> None:
        self.stack = stack
        self.refusal: str | None = None
        self.cut: list[tuple[int, str]] = []
        """(layer, why) of blocks that differ from finite differences and are not reported yet."""
        self._latest: tuple[tuple[int, int], LinearMap] | None = None
        self._remarks = dict.fromkeys(remarks)
        self._checked: set[int] = set()
        try:
            self.stretches = Stretches(module, stack, forward)
        except ProbeError as error:
            self.refusal = str(error)

    @property
    def facts(self) -> dict[str, Any]:
        if self.refusal is not None:
            return {"refused": self.refusal}
        return {
            "kernel": self.stretches.kernel,
            "precision": self.stretches.precision,
            "remarks": list(self._remarks),
        }

    @cached_property
    def parted(self) -> str | None:
        """Why the Jacobian of the stack is not the product of those of its blocks, if it is not."""
        if self.refusal is not None or not self.stretches.finite:
            return None  # no block has a map, and that is said of each
        if not self.stretches.side_by_side:
            return None
        try:
            miss = joined(self.stretches)
        except ProbeError as error:
            message = str(error).rstrip(".")
            return f"the product of the blocks could not be compared with the whole: {message}"
        if miss is None:
            self._remarks |= {NOT_COMPARED: None}
            return None
        if miss <= JOINED:
            return None
        return not_the_product("the Jacobian of the stack", miss)

    def between(self, start: int, end: int) -> LinearMap:
        """The map from one site to another; the latest one is kept."""
        if self._latest is not None and self._latest[0] == (start, end):
            return self._latest[1]
        self._latest = None  # its graph goes before the next is built
        f, x = self._finite_function(lambda stretches: stretches.function(start, end))
        linear_map = self._linearised(f, x)
        if end == start + 1:
            with self.stretches.running():
                refuse_other(self.stretches, end, linear_map)
                self._compare(f, x, linear_map, end)
        self._remarks |= dict.fromkeys(self.stretches.remarks(start, end))
        self._latest = ((start, end), linear_map)
        return linear_map

    def sublayer(self, layer: int, sublayer: int) -> LinearMap:
        """The map of one write."""
        return self._linearised(
            *self._finite_function(lambda stretches: stretches.sublayer(layer, sublayer))
        )

    def backwards(self) -> Iterator[tuple[int, LinearMap]]:
        """(layer, map) from the last block to the first."""
        for layer in range(self.stack.depth, 0, -1):
            yield layer, self.between(layer - 1, layer)

    def _compare(self, f: Function, x: Tensor, linear_map: LinearMap, layer: int) -> None:
        """Compare a block with finite differences, once."""
        if layer in self._checked:
            return
        self._checked.add(layer)
        why = cut_off(f, x, linear_map, f"Layer {layer}")
        if why is not None and why not in self._remarks:
            self._remarks[why] = None
            self.cut.append((layer, why.rstrip(".")))

    def _finite_function(
        self, ask: Callable[[Stretches], tuple[Function, Tensor]]
    ) -> tuple[Function, Tensor]:
        if self.refusal is not None:
            raise ProbeError(self.refusal)
        f, x = ask(self.stretches)
        if not bool(torch.isfinite(x).all()):
            raise ProbeError("The stream that enters is not finite, so there is no Jacobian.")
        return f, x

    def _linearised(self, f: Function, x: Tensor) -> LinearMap:
        with self.stretches.running():
            linear_map = Linearised(f, x)
        if self.stretches.refusal is not None:
            return _BackwardsOnly(linear_map, self.stretches.refusal)
        return linear_map


class _BackwardsOnly:
    """A map whose products J v are refused with a reason."""

    def __init__(self, linear_map: LinearMap, why: str) -> None:
        self.linear_map = linear_map
        self.why = why
        self.shape = linear_map.shape
        self.dtype = linear_map.dtype
        self.device = linear_map.device

    def forward(self, v: Tensor) -> Tensor:
        raise ProbeError(f"Products J v are not available: {self.why}.")

    def adjoint(self, u: Tensor) -> Tensor:
        """J' u."""
        return self.linear_map.adjoint(u)


def _parts(plan: Plan, stack: Stack) -> Iterator[Part]:
    """The parts on one stack: the blocks in their order, then chains, then products."""
    probes = [
        (choice.name, probe)
        for choice, probe in zip(plan.choices, plan.probes, strict=True)
        if probe in plan.linear
    ]

    def of(kind: Kind, sight: Sight, site: Site) -> Iterator[Part]:
        for name, probe in probes:
            steps = probe.steps(kind, stack) if sight in probe.sees else ()
            if steps:
                yield Part(name, probe, kind, stack, site, steps)

    for block in stack.blocks:
        yield from of("block", "linear", Site(stack.name, block.layer, None, "block"))
        for s in block.sublayers:
            site = Site(stack.name, block.layer, s.sublayer, s.role)
            yield from of("sublayer", "linear", site)
    yield from of("chain", "chain", Site(stack.name, 0))
    for layer in range(1, stack.depth + 1):
        yield from of("product", "product", Site(stack.name, layer))


def _gathered(part: Part, stack_maps: _StackMaps, say: Say) -> _Gathered:
    """The rows of one part. What a ProbeError ends is refused, with all that did not come."""
    gathered = _Gathered()

    def tell(step: str, products: int) -> None:
        so_far = f", {products} products" if products else ""
        say(f"{part.words}: {step}{so_far}", part.steps.index(step))

    say(f"{part.words}: {part.steps[0]}", 0)
    across: tuple[Quantity, ...] = part.probe.across
    several = part.kind == "chain" or (part.kind == "block" and bool(across))
    parted = stack_maps.parted if several else None
    if parted is not None and part.kind == "block":
        gathered.refused.append((tuple(q.name for q in across), part.site, parted))
    try:
        if parted is not None and part.kind == "chain":
            raise ProbeError(parted)
        for result in _results(part, stack_maps, tell):
            one = result if parted is None else _without(result, across)
            if one is not None:
                _take(gathered, one, part.site)
    except ProbeError as error:
        answered = {quantity.name for quantity in gathered.quantities}
        answered |= {name for names, *_ in gathered.refused for name in names}
        rest = tuple(q.name for q in part.probe.gives(part.kind) if q.name not in answered)
        if rest:
            gathered.refused.append((rest, part.site, str(error).rstrip(".")))
    for layer, why in stack_maps.cut:
        site = Site(part.stack.name, layer, None, "block")
        gathered.refused.append((("finite differences",), site, why))
    stack_maps.cut.clear()
    return gathered


def _without(result: Result, across: tuple[Quantity, ...]) -> Result | None:
    """The result, unless it is of these quantities alone."""
    if isinstance(result, Refused):
        rest = tuple(q for q in result.quantities if q not in across)
        return replace(result, quantities=rest) if rest else None
    return None if isinstance(result, Single) and result.quantity in across else result


def _results(
    part: Part, stack_maps: _StackMaps, tell: Callable[[str, int], None]
) -> Iterator[Result]:
    at = At(part.stack, part.site)
    layer, write = part.site.layer, part.site.sublayer
    if part.kind == "chain":
        yield from part.probe.chain(at, stack_maps.backwards(), tell)
    elif part.kind == "product":
        yield from part.probe.product(at, stack_maps.between(0, layer), tell)
    elif write is None:
        yield from part.probe.linear(at, stack_maps.between(layer - 1, layer), tell)
    else:
        yield from part.probe.linear(at, stack_maps.sublayer(layer, write), tell)


def _take(gathered: _Gathered, result: Result, site: Site) -> None:
    if isinstance(result, Refused):
        gathered.refused.append((tuple(q.name for q in result.quantities), site, result.why))
        return
    if not isinstance(result, Single):
        raise ProbeError(
            f"A probe of linear maps gave a {type(result).__name__}; it may give Single and Refused."
        )
    if result.quantity not in gathered.quantities:
        gathered.quantities.append(result.quantity)
    value, lower, upper = (
        None if end is None else float(end) for end in (result.value, result.lower, result.upper)
    )
    assert value is not None
    place = site if result.site is None else result.site
    gathered.readings.append(
        Reading(result.quantity.name, place, result.statistic, value, lower, upper)
    )
