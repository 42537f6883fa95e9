"""Read streams, updates and gradients out of a running forward pass, and keep the books.

`with Tap(model, anatomy, listener) as tap:` sets hooks on the blocks and on the modules that
return updates, and nowhere else; nothing is stored but the stream now in flight. Every tensor is
handed on as [example, token, width] (lanes side by side in the width). Gradients come by tensor
hooks set from forward hooks: module backward hooks break with in-place operations and give
nothing for keyword calls.

The balance is computed on the way: after every block the predicted stream is compared with the
real one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import nn

from leadline.anatomy.find.fit import misses
from leadline.anatomy.kept_weights import apart_from_pass
from leadline.anatomy.spread import whole
from leadline.anatomy.structure import Anatomy, Balance, Block, Port, Stack, Sublayer
from leadline.anatomy.tap.module_hook import ModuleHook
from leadline.anatomy.tensors import first_tensor, mapped, stream_input
from leadline.errors import AnatomyError

__all__ = ["MIXING", "Listener", "Tap", "stream_among"]

Tensor = torch.Tensor
MIXING = ("attention", "cross-attention", "mixer")
"""The roles of branches in which tokens see other tokens."""


class Listener(Protocol):
    """Receives what the tap reads. Tensors are valid during the call only: reduce them at once."""

    def stream(self, stack: Stack, layer: int, sublayer: int | None, x: Tensor) -> None: ...

    def update(self, stack: Stack, block: Block, write: Sublayer, u: Tensor, x: Tensor) -> None:
        """`u` is what is added to the stream, `x` the stream before."""
        ...

    def block(self, stack: Stack, block: Block, before: Tensor, after: Tensor) -> None: ...

    def gradient(self, stack: Stack, layer: int, sublayer: int | None, g: Tensor) -> None: ...


@dataclass
class _StackWalk:
    """The position of one stack in the running forward pass."""

    stack: Stack
    index: int = -1
    before: Tensor | None = None
    state: Tensor | None = None
    total: Tensor | None = None
    calls: Counter[str] = field(default_factory=Counter)
    watched: dict[str | Port, object] = field(default_factory=dict[str | Port, object])
    sublayers_written: set[int] = field(default_factory=set[int])
    inside: bool = False
    again: bool = False
    skipped: int = 0
    """How many blocks before the one that was entered last the model has left out."""

    @property
    def block(self) -> Block:
        return self.stack.blocks[self.index]


class Tap:
    """Hand streams, updates and gradients of a forward pass to a listener, and keep its balance.

    `gradients` asks for tensor hooks on the stream sites. `without_gradient` holds (stack, layer) of
    the sites whose tensor carries no gradient. With `skips` a pass may leave blocks out, as layerdrop
    does in training: then nothing is handed on there.
    """

    skips = False

    def __init__(
        self,
        model: nn.Module,
        anatomy: Anatomy,
        listener: Listener | None = None,
        *,
        gradients: bool = False,
    ) -> None:
        self.model = model
        self.anatomy = anatomy
        self.listener = listener
        self.gradients = gradients
        self.without_gradient: set[tuple[str, int]] = set()
        self._walks = [_StackWalk(stack) for stack in anatomy.stacks]
        self._handles: list[Any] = []
        self._misses: dict[tuple[str, int], list[Tensor]] = {}
        self._faint: list[Tensor] = []
        self._ends: list[tuple[tuple[str, int, int], Tensor]] = []
        self._uncalled: list[tuple[str, int, int]] = []
        self._dtype = torch.float32
        self._vectors: dict[str, Tensor] = {}

    def __enter__(self) -> Tap:
        modules = dict(self.model.named_modules(remove_duplicate=False))
        entries, others = self._places()
        try:
            for path, walks in self._watched_inputs().items():
                hook = ModuleHook(self._watch_input(path, walks))
                self._handles.append(_module(modules, path).register_forward_pre_hook(hook))
            for path, walks in entries.items():
                hook = ModuleHook(self._entry_hook(path, walks))
                self._handles.append(
                    _module(modules, path).register_forward_pre_hook(hook, with_kwargs=True)
                )
            for path, walks in others.items():
                hook = ModuleHook(self._output_hook(path, walks))
                self._handles.append(
                    _module(modules, path).register_forward_hook(hook, with_kwargs=True)
                )
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _places(self) -> tuple[dict[str, list[_StackWalk]], dict[str, list[_StackWalk]]]:
        """Module paths with the stacks that read at their entry, and at their exit."""
        entries: dict[str, list[_StackWalk]] = {}
        others: dict[str, list[_StackWalk]] = {}
        for walk in self._walks:
            for block in walk.stack.blocks:
                _join(entries, block.entry.module, walk)
                paths = [block.exit.module, block.opening]
                for s in block.sublayers:
                    paths += [s.module, s.settle]
                    if s.law is not None:
                        paths += [watch for watch in s.law.watches if isinstance(watch, str)]
                    if isinstance(s.gain, str):
                        self._vectors[s.gain] = whole(self.model.get_parameter(s.gain).detach())
                for path in paths:
                    if path is not None:
                        _join(others, path, walk)
        return entries, others

    def _watched_inputs(self) -> dict[str, list[_StackWalk]]:
        """Module paths whose first argument a law asks for."""
        places: dict[str, list[_StackWalk]] = {}
        for walk in self._walks:
            for block in walk.stack.blocks:
                for s in block.sublayers:
                    for watch in s.law.watches if s.law is not None else ():
                        if isinstance(watch, Port):
                            _join(places, watch.module, walk)
        return places

    # --- the hooks -------------------------------------------------------------------------

    def _entry_hook(self, path: str, walks: list[_StackWalk]) -> Callable[..., Any]:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            for walk in walks:
                if walk.inside:
                    continue
                first = walk.index < 0
                if self.skips:
                    self._pass_by(walk, path)
                if walk.index + 1 >= walk.stack.depth:
                    walk.again = True
                    continue
                x = stream_among(args, kwargs, walk.stack)
                if x is None:
                    raise AnatomyError(
                        f"Nothing that enters '{walk.stack.blocks[walk.index + 1].module}' has "
                        f"the width {walk.stack.width} of the stream."
                    )
                replaced = None
                if first and self.gradients and not x.requires_grad and _needs_leaf(x):
                    leaf = x.detach().requires_grad_(True)
                    if walk.stack.blocks[0].in_place:
                        leaf = leaf.clone()
                    replaced = _swap(args, kwargs, x, leaf)
                    x = leaf
                self._start(walk, x, first=first)
                if replaced is not None:
                    return replaced
            return None

        return hook

    def _pass_by(self, walk: _StackWalk, path: str) -> None:
        """Go on to the block that is entered, where the model has left out those before it."""
        blocks = walk.stack.blocks
        ahead = range(walk.index + 1, walk.stack.depth)
        entered = next((at for at in ahead if blocks[at].entry.module == path), walk.stack.depth)
        if entered < walk.stack.depth:
            walk.skipped += entered - walk.index - 1
        walk.index = entered - 1

    def _watch_input(self, path: str, walks: list[_StackWalk]) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...]) -> None:
            for walk in walks:
                if walk.inside:
                    walk.watched[Port(path, "input")] = args[0]

        return hook

    def _start(self, walk: _StackWalk, x: Tensor, *, first: bool) -> None:
        walk.index += 1
        walk.inside = True
        walk.calls.clear()
        walk.watched.clear()
        walk.sublayers_written.clear()
        values = x.detach()
        walk.before = values.clone() if walk.block.in_place else values
        walk.state, walk.total = walk.before, None
        if first:
            self._dtype = x.dtype
            self._report_stream(walk, 0, None, walk.before)
            self._listen_to_gradient(walk, 0, None, x, 1.0)

    def _output_hook(self, path: str, walks: list[_StackWalk]) -> Callable[..., None]:
        def hook(
            module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: object
        ) -> None:
            for walk in walks:
                if walk.inside:
                    self._on_output(walk, path, args, kwargs, output)

        return hook

    def _on_output(
        self,
        walk: _StackWalk,
        path: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        output: object,
    ) -> None:
        block = walk.block
        call = walk.calls[path]
        walk.calls[path] += 1
        with apart_from_pass(), torch.no_grad():
            if block.opening == path and call == 0:
                opened = first_tensor(output)
                walk.state = _like(None if opened is None else opened.detach(), walk.state)
            for s in block.sublayers:
                if s.law is not None and path in s.law.watches:
                    walk.watched[path] = output
                if s.module == path and s.call == call:
                    self._write(walk, s, output)
            for s in block.sublayers:
                if s.settle == path and s.settle_call == call and walk.total is not None:
                    self._settle(walk, s, stream_input(args, kwargs), output)
            if block.exit.module == path and call == 0:
                self._leave(walk, output)

    def _write(self, walk: _StackWalk, s: Sublayer, output: object) -> None:
        live = first_tensor(output)
        state, before = walk.state, walk.before
        if live is None or state is None or before is None:
            raise AnatomyError(f"'{s.module}' returned no tensor that could be an update.")
        if s.law is not None:
            kept, u = s.law(state, live.detach(), walk.watched)
            gain: float | None = None
        else:
            if live.numel() != state.numel() or live.shape[-1] != state.shape[-1]:
                raise AnatomyError(
                    f"'{s.module}' returns {list(live.shape)} and the stream is "
                    f"{list(state.shape)}, so it cannot be what is added to it."
                )
            returned = _like(live.detach(), state)
            if isinstance(s.gain, str):
                gain, u = None, returned * self._vectors[s.gain]
            else:
                gain, u = s.gain, _scaled(returned, s.gain)
            kept = _scaled(walk.total if walk.total is not None else state, s.keep)
        if self.listener is not None:
            self.listener.update(
                walk.stack, walk.block, s, self._tokens(walk, u), self._tokens(walk, state)
            )
        # One example is enough to see whether rounding could hide this write.
        self._faint.append(torch.linalg.vector_norm(u[0]) / torch.linalg.vector_norm(state[0]))
        walk.sublayers_written.add(s.sublayer)
        # The smallest and the largest value: `any` takes four times as long on a CPU.
        ends = torch.stack(torch.aminmax(u))
        self._ends.append(((walk.stack.name, walk.block.layer, s.sublayer), ends))
        walk.total = kept + u
        last = s is walk.block.sublayers[-1]
        following = None if last else walk.block.sublayers[s.sublayer]
        if s.settle is None and not (following is not None and following.parallel):
            walk.state, walk.total = walk.total, None
            if not last:
                self._report_stream(walk, walk.block.layer, s.sublayer, walk.state)
                if gain:
                    self._listen_to_gradient(walk, walk.block.layer, s.sublayer, live, 1.0 / gain)

    def _settle(
        self, walk: _StackWalk, s: Sublayer, entered: Tensor | None, output: object
    ) -> None:
        settled = first_tensor(output)
        if entered is None or settled is None or walk.total is None:
            raise AnatomyError(f"'{s.settle}' did not take and give a stream.")
        self._compare(walk, walk.total, _like(entered.detach(), walk.total))
        walk.state, walk.total = _like(settled.detach(), walk.total), None
        if s is not walk.block.sublayers[-1]:
            self._report_stream(walk, walk.block.layer, s.sublayer, walk.state)
            self._listen_to_gradient(walk, walk.block.layer, s.sublayer, settled, 1.0)

    def _leave(self, walk: _StackWalk, output: object) -> None:
        live = first_tensor(output)
        if live is None or walk.before is None:
            raise AnatomyError(f"'{walk.block.module}' returned no stream.")
        predicted = walk.total if walk.total is not None else walk.state
        after = live.detach()
        assert predicted is not None
        self._compare(walk, _like(predicted, after), after)
        self._uncalled += [
            (walk.stack.name, walk.block.layer, s.sublayer)
            for s in walk.block.sublayers
            if s.sublayer not in walk.sublayers_written
        ]
        if self.listener is not None:
            self.listener.block(
                walk.stack,
                walk.block,
                self._tokens(walk, walk.before),
                self._tokens(walk, after),
            )
        self._report_stream(walk, walk.block.layer, None, after)
        self._listen_to_gradient(walk, walk.block.layer, None, live, 1.0)
        walk.inside = False
        walk.before = walk.state = walk.total = None
        walk.watched.clear()

    # --- what is handed on -----------------------------------------------------------------

    def _compare(self, walk: _StackWalk, predicted: Tensor, real: Tensor) -> None:
        assert walk.before is not None
        miss = misses(predicted, real, walk.before).max()
        self._misses.setdefault((walk.stack.name, walk.block.layer), []).append(miss)

    def _report_stream(self, walk: _StackWalk, layer: int, sublayer: int | None, x: Tensor) -> None:
        if self.listener is not None:
            self.listener.stream(walk.stack, layer, sublayer, self._tokens(walk, x))

    def _listen_to_gradient(
        self, walk: _StackWalk, layer: int, sublayer: int | None, live: Tensor, factor: float
    ) -> None:
        """Ask for the gradient at a stream site: `factor` times that of the live tensor."""
        if not self.gradients or self.listener is None:
            return
        if not live.requires_grad:
            self.without_gradient.add((walk.stack.name, layer))
            return
        listener, stack = self.listener, walk.stack
        assert walk.before is not None
        shape = walk.before.shape

        def hook(gradient: Tensor) -> None:
            with torch.no_grad():
                g = gradient if factor == 1.0 else gradient * factor
                listener.gradient(stack, layer, sublayer, self._tokens(walk, g.reshape(shape)))

        live.register_hook(hook)

    def _tokens(self, walk: _StackWalk, x: Tensor) -> Tensor:
        """[example, token, width], lanes side by side; a stream without examples gets one."""
        if x.ndim == 2:
            return x.unsqueeze(0)
        if walk.stack.token_axis == 0:
            x = x.transpose(0, 1)
        return x.flatten(2)

    @property
    def examples(self) -> int | None:
        """How many examples the stream in flight holds; None between the stacks."""
        return None if self._size is None else self._size[0]

    @property
    def tokens(self) -> int | None:
        """How many tokens an example in flight has; None between the stacks."""
        return None if self._size is None else self._size[1]

    @property
    def _size(self) -> tuple[int, int] | None:
        for walk in reversed(self._walks):
            if walk.inside and walk.before is not None:
                shape = walk.before.shape
                if len(shape) == 2:
                    return 1, shape[0]
                axis = walk.stack.token_axis
                return shape[1 - axis], shape[axis]
        return None

    def locate(self, path: str) -> tuple[Stack, Block, Sublayer] | None:
        """The sublayer that the running module belongs to; None where no block is running.

        A sublayer owns a module if it owns parameters below it. A module without parameters
        belongs to whom its parent belongs to; where that is the block itself, to the next
        sublayer that mixes tokens and has not written yet.
        """
        walk = next((walk for walk in reversed(self._walks) if walk.inside), None)
        if walk is None:
            return None
        block = walk.block
        here = path
        while here and here != block.module:
            owners = [
                s for s in block.sublayers if any(p.startswith(f"{here}.") for p in s.parameters)
            ]
            if len(owners) == 1:
                return walk.stack, block, owners[0]
            mixing = [s for s in owners if s.role in MIXING]
            if len(mixing) == 1:
                return walk.stack, block, mixing[0]
            here = here.rpartition(".")[0]
        waiting = [
            s for s in block.sublayers if s.role in MIXING and walk.calls[s.module] <= s.call
        ]
        return (walk.stack, block, waiting[0]) if waiting else None

    def balance(self) -> Balance:
        """The balance of the pass; AnatomyError when a stack did not run to its end."""
        for walk in self._walks:
            if walk.again:
                raise AnatomyError(
                    f"The forward pass goes through the {walk.stack.name} again after its "
                    f"{walk.stack.depth} layers; measure the part that is used twice on its own."
                )
            to_the_end = walk.index + 1 == walk.stack.depth or (self.skips and walk.index >= 0)
            if walk.inside or not to_the_end:
                raise AnatomyError(
                    f"The forward pass went through {walk.index + 1} of the {walk.stack.depth} "
                    f"layers of the {walk.stack.name}; the anatomy does not fit these inputs."
                )
        # NaN is not zero.
        moved = [(ends != 0).any() for _, ends in self._ends]
        numbers = _numbers([*map(_worst, self._misses.values()), *self._faint, *moved])
        blocks, writes = len(self._misses), len(self._ends)
        worst = dict(zip(self._misses, numbers, strict=False))
        faint, moved = numbers[blocks : blocks + writes], numbers[blocks + writes :]
        finite = {key: value for key, value in worst.items() if value == value}
        unjudged = tuple(key for key, value in worst.items() if value != value)
        (stack, layer), eps = max(
            finite.items(), key=lambda item: item[1], default=(("", 0), float("nan"))
        )
        unit = torch.finfo(self._dtype).eps
        return Balance(
            eps=eps,
            stack=stack,
            layer=layer,
            dtype=str(self._dtype).removeprefix("torch."),
            layers=len(finite),
            per_layer=worst,
            unjudged=unjudged,
            faintest=min((f / unit for f in faint if f == f), default=float("nan")),
            uncalled=tuple(self._uncalled),
            zero=tuple(
                key for (key, _), any_moved in zip(self._ends, moved, strict=True) if not any_moved
            ),
        )


def _worst(misses_of_block: list[Tensor]) -> Tensor:
    return torch.stack(misses_of_block).max()


def _numbers(values: list[Tensor]) -> list[float]:
    """Numbers from the device by one transfer; a model may be spread over several devices."""
    if not values:
        return []
    device = values[-1].device
    return torch.stack([value.to(device, torch.float32) for value in values]).tolist()


def _join(places: dict[str, list[_StackWalk]], path: str, walk: _StackWalk) -> None:
    walks = places.setdefault(path, [])
    if walk not in walks:
        walks.append(walk)


def _module(modules: dict[str, nn.Module], path: str) -> nn.Module:
    if path not in modules:
        raise AnatomyError(f"The model has no module '{path}', which the anatomy names.")
    return modules[path]


def stream_among(args: tuple[Any, ...], kwargs: dict[str, Any], stack: Stack) -> Tensor | None:
    """The first tensor among the arguments that can be the stream of this stack."""
    width = stack.width
    for value in [*args, kwargs.get("hidden_states"), *kwargs.values()]:
        # A state of several tensors starts with the stream.
        tensor = first_tensor(value) if isinstance(value, tuple) else value
        if not isinstance(tensor, Tensor) or not tensor.is_floating_point() or tensor.ndim < 2:
            continue
        if tensor.shape[-1] in (width, width * stack.lanes):
            return tensor
    return None


def _like(tensor: Tensor | None, other: Tensor | None) -> Tensor:
    """The tensor in the shape of the other: some modules flatten examples and tokens."""
    assert tensor is not None and other is not None
    return tensor if tensor.shape == other.shape else tensor.reshape(other.shape)


def _scaled(tensor: Tensor, factor: float) -> Tensor:
    return tensor if factor == 1.0 else tensor * factor


def _needs_leaf(x: Tensor) -> bool:
    return torch.is_grad_enabled() and x.is_leaf


def _swap(
    args: tuple[Any, ...], kwargs: dict[str, Any], old: Tensor, new: Tensor
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    def exchanged(tensor: Tensor) -> Tensor:
        return new if tensor is old else tensor

    return mapped(args, exchanged), mapped(kwargs, exchanged)
