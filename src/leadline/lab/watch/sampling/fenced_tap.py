"""A tap in somebody's forward pass, with a fence around all that it does.

The tap is set on the model when the pass begins and taken off when it ends; gradients come later by
tensor hooks that are set by then. So a block that is computed again during backward, under gradient
checkpointing, is not read twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol
from weakref import ref

import torch
from torch import Tensor, nn

from leadline.anatomy import Anatomy, Listener, Tap
from leadline.anatomy.spread import is_spread
from leadline.anatomy.tensors import mapped
from leadline.lab.watch.fence import Fence
from leadline.lab.watch.sampling.apart import apart, is_surrounded

__all__ = ["FencedTap"]


class Sampling(Protocol):
    """The sample that a tap belongs to."""

    over: bool
    spread: bool
    fence: Fence

    @property
    def looks(self) -> bool: ...

    def give_up(self) -> None: ...


class FencedTap(Tap):
    """A tap whose faults end the sample and never reach the forward pass that it sits in."""

    skips = True

    def __init__(
        self,
        model: nn.Module,
        anatomy: Anatomy,
        listener: Listener,
        *,
        sample: Sampling,
        gradients: bool,
    ) -> None:
        super().__init__(model, anatomy, listener, gradients=gradients)
        self._vectors = _Vectors(model)
        self.sample = sample
        self._in_graph: list[ref[Callable[..., Any]]] = []
        self._last_streams: list[tuple[Any, Tensor, torch.Size, int]] = []

    def _entry_hook(self, path: str, walks: Any) -> Callable[..., Any]:
        hook = self._looking(super()._entry_hook(path, walks))

        def look(*args: Any) -> None:
            # A tap gives a stream that carries no gradient a leaf of its own. That would change
            # the loop: reentrant checkpointing trains nothing without such a leaf.
            hook(*args)

        return look

    def _watch_input(self, path: str, walks: Any) -> Callable[..., None]:
        return self._looking(super()._watch_input(path, walks))

    def _output_hook(self, path: str, walks: Any) -> Callable[..., None]:
        return self._looking(super()._output_hook(path, walks))

    def _start(self, walk: Any, x: Tensor, *, first: bool) -> None:
        super()._start(walk, x, first=first)
        # Under reentrant checkpointing a block runs without gradients, and what it returned has
        # none; the tensor that enters the next block has.
        site = (walk.stack.name, walk.index)
        if walk.index > 0 and site in self.without_gradient and x.requires_grad:
            self.without_gradient.discard(site)
            self._listen_to_gradient(walk, walk.index, None, x, 1.0)

    def _listen_to_gradient(
        self, walk: Any, layer: int, sublayer: int | None, live: Tensor, factor: float
    ) -> None:
        if sublayer is not None:
            return
        if not live.requires_grad and layer == walk.stack.depth and walk.before is not None:
            self._last_streams.append((walk, live, walk.before.shape, live._version))
        super()._listen_to_gradient(walk, layer, sublayer, _Hooked(live, self), factor)  # type: ignore[arg-type]

    def in_graph(self, hook: Callable[..., Any]) -> Callable[..., Any]:
        """Return a hook of a tensor that tells, by being gone, that the graph is."""

        def hook_in_graph(*args: Any) -> Any:
            return hook(*args)

        self._in_graph.append(ref(hook_in_graph))
        return hook_in_graph

    @property
    def graph_is_gone(self) -> bool:
        """Whether nobody can go backward through the pass any more."""
        return bool(self._in_graph) and all(one() is None for one in self._in_graph)

    @property
    def left_out(self) -> int:
        """How many blocks the pass has left out."""
        return sum(walk.skipped + walk.stack.depth - walk.index - 1 for walk in self._walks)

    @property
    def listens_to_gradients(self) -> bool:
        """Whether any site of the stream carries a gradient that is waited for."""
        sites = sum(walk.index + 2 - walk.skipped for walk in self._walks)
        return len(self.without_gradient) < sites

    def listen_to_last_streams(self) -> None:
        """Ask for the gradient behind the last block, which no further block receives.

        Inside of a reentrant checkpoint it carries no gradient; when the checkpoint is over, the
        same tensor does.
        """
        for walk, live, shape, version in self._last_streams:
            if live.requires_grad and live._version == version:
                self._listen_late(walk, live, shape)
        self._last_streams.clear()

    def _listen_late(self, walk: Any, live: Tensor, shape: torch.Size) -> None:
        listener, stack = self.listener, walk.stack

        def hook(gradient: Tensor) -> None:
            with torch.no_grad():
                tokens = self._tokens(walk, gradient.reshape(shape))
                listener.gradient(stack, stack.depth, None, tokens)  # type: ignore[union-attr]

        _Hooked(live, self).register_hook(hook)

    def _looking(self, hook: Callable[..., Any]) -> Callable[..., Any]:
        """Return a hook of a module with a fence around it, for the pass that is read alone."""
        fenced = self.fenced(hook)

        def looking(*args: Any) -> Any:
            try:
                looks = self.sample.looks
            except Exception as error:
                self.sample.fence.fault(error, "Looking at a pass")
                return None
            return fenced(*args) if looks else None

        return looking

    def fenced(self, hook: Callable[..., Any]) -> Callable[..., Any]:
        """Return a hook that raises nothing, and whose work nothing around the pass sees."""

        def fenced(*args: Any) -> Any:
            if torch.compiler.is_compiling():  # compiled out of sight: leave the graph alone
                return None
            sample = self.sample
            if sample.over or sample.fence.off:
                return None
            try:
                if sample.spread and _holds_spread(args):
                    sample.give_up()
                    sample.fence.note(
                        "Streams or updates are spread over processes (DTensors), so layers are "
                        "not read: to read them would need all processes."
                    )
                    return None
                if not is_surrounded():
                    return hook(*args)
                with apart():
                    return hook(*args)
            except Exception as error:
                sample.fence.fault(error, "Reading the stream")
                return None

        return fenced


class _Vectors(dict[str, Tensor]):
    """Parameters by their paths, as they are when they are asked for.

    A sharded parameter is whole only while its block runs.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self._module = module

    def __getitem__(self, path: str) -> Tensor:
        return self._module.get_parameter(path).detach()


def _holds_spread(values: object) -> bool:
    found: list[bool] = []

    def look(tensor: Tensor) -> Tensor:
        found.append(is_spread(tensor))
        return tensor

    mapped(values, look)
    return any(found)


class _Hooked:
    """A tensor of which a tap asks two things; its gradient hook gets a fence of its own."""

    def __init__(self, tensor: Tensor, tap: FencedTap) -> None:
        self._tensor = tensor
        self._tap = tap

    @property
    def requires_grad(self) -> bool:
        return self._tensor.requires_grad

    def register_hook(self, hook: Callable[[Tensor], None]) -> None:
        self._tensor.register_hook(self._tap.in_graph(self._tap.fenced(hook)))
