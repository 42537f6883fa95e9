"""One block run again on its own, with every tensor inside it in view.

The arguments are those of a real forward pass (a block called alone without its mask can lose
causality). The stream is made a leaf of the graph, so that gradients inside the block tell which
branch mixes tokens. A block in half precision is replayed on a float32 copy: in bfloat16 an
update smaller than 1/256 of the stream would be invisible to any fit.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from leadline.anatomy.tensors import first_tensor, mapped, stream_input

__all__ = ["Arguments", "Replay", "Seen", "capture_arguments", "replay_block", "uncached"]

Tensor = torch.Tensor
Arguments = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass(eq=False)
class Seen:
    """One module call inside a block: values as they were then, and the tensor in the graph.

    `frozen` is a copy in the graph made at once: `live` may be changed in place later on
    (Falcon adds the attention's update into the MLP's output).
    """

    path: str
    module: nn.Module
    order: int
    call: int
    leaf: bool
    entered: Tensor | None
    returned: Tensor | None
    live: Tensor | None
    frozen: Tensor | None

    @property
    def norm(self) -> bool:
        return "norm" in type(self.module).__name__.lower()


@dataclass
class Replay:
    """A block that was run again: its stream as a leaf of the graph, and all that was seen."""

    path: str
    block: nn.Module
    stream: Tensor
    before: Tensor
    after: Tensor
    seen: list[Seen]
    others: list[Tensor] = field(default_factory=list)


def capture_arguments(
    model: nn.Module, forward: Callable[[], object], wanted: Collection[tuple[str, int]]
) -> dict[tuple[str, int], Arguments]:
    """The arguments of the wanted calls (path, number), cloned as they stood at entry."""
    found: dict[tuple[str, int], Arguments] = {}
    counts: dict[str, int] = {}

    def watch(path: str) -> Callable[..., None]:
        def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            number = counts.get(path, 0)
            counts[path] = number + 1
            if (path, number) in wanted:
                found[path, number] = mapped(
                    (args, uncached(kwargs)), _Once(lambda t: t.detach().clone())
                )

        return hook

    modules = dict(model.named_modules())
    handles = [
        modules[path].register_forward_pre_hook(watch(path), with_kwargs=True)
        for path in {path for path, _ in wanted}
    ]
    try:
        with torch.no_grad():
            forward()
    finally:
        for handle in handles:
            handle.remove()
    return found


def replay_block(path: str, block: nn.Module, arguments: Arguments, shape: torch.Size) -> Replay:
    """Run the block on captured arguments and return everything its modules took and gave."""
    args, kwargs = arguments
    stream = stream_input(args, kwargs, like=shape)
    assert stream is not None
    if stream.dtype in (torch.float16, torch.bfloat16):
        block = copy.deepcopy(block).float()
        block.eval()
        args, kwargs = mapped((args, kwargs), _Once(_upcast))
        stream = stream_input(args, kwargs, like=shape)
        assert stream is not None
    others: list[Tensor] = []

    def as_leaf(tensor: Tensor) -> Tensor:
        if tensor is stream:
            return entering
        if tensor.is_floating_point() and tensor.ndim == 3:
            other = tensor.clone().requires_grad_(True)
            others.append(other)
            return other
        return tensor

    leaf = stream.clone().requires_grad_(True)
    # A copy enters the block: a leaf itself must not be changed in place.
    entering = leaf.clone()
    change = _Once(as_leaf)
    args = tuple(change(a) if isinstance(a, Tensor) else a for a in args)
    kwargs = {k: change(v) if isinstance(v, Tensor) else v for k, v in kwargs.items()}
    seen: list[Seen] = []
    active: list[set[str]] = []

    def enter(name: str) -> Callable[..., None]:
        def hook(_: nn.Module, a: tuple[Any, ...], k: dict[str, Any]) -> None:
            if active:
                active[-1].add(name)
            active.append(set())

        return hook

    def leave(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, a: tuple[Any, ...], k: dict[str, Any], output: object) -> None:
            children = active.pop()
            live = first_tensor(output)
            like = live.shape if live is not None else None
            entered = stream_input(a, k, like=like)
            seen.append(
                Seen(
                    path=f"{path}.{name}",
                    module=module,
                    order=len(seen),
                    call=sum(s.module is module for s in seen),
                    leaf=not children,
                    entered=None if entered is None else entered.detach().clone(),
                    returned=None if live is None else live.detach().clone(),
                    live=live,
                    frozen=None if live is None else live.clone(),
                )
            )

        return hook

    handles: list[Any] = []
    try:
        for name, module in block.named_modules():
            if name:
                handles.append(module.register_forward_pre_hook(enter(name), with_kwargs=True))
                handles.append(module.register_forward_hook(leave(name), with_kwargs=True))
        with torch.enable_grad():
            after = first_tensor(block(*args, **kwargs))
    finally:
        for handle in handles:
            handle.remove()
    assert after is not None
    return Replay(path, block, leaf, leaf.detach().clone(), after.detach().clone(), seen, others)


class _Once:
    """Changes every tensor once: a query that is also the key stays one tensor."""

    def __init__(self, change: Callable[[Tensor], Tensor]) -> None:
        self.change = change
        self.done: dict[int, tuple[Tensor, Tensor]] = {}

    def __call__(self, tensor: Tensor) -> Tensor:
        if id(tensor) not in self.done:
            self.done[id(tensor)] = (tensor, self.change(tensor))
        return self.done[id(tensor)][1]


_CACHES = ("past_key_values", "past_key_value", "layer_past", "cache_params", "past_bucket_states")


def uncached(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Without the key-value cache of the real pass, to which a replay would append."""
    kept = {name: None if name in _CACHES else value for name, value in kwargs.items()}
    return {name: False if name == "use_cache" else value for name, value in kept.items()}


def _upcast(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.is_floating_point() else tensor
