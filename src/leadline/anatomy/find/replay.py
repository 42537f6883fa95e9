"""Run one block again on its own and record every call inside it.

The arguments are those of a real forward pass (a block called alone without its mask can lose
causality), as they were when the block was entered: a key-value cache that the pass has filled
since would show the block its own keys a second time, and without gradients. The stream is made a
leaf of the graph, so that gradients inside the block tell which branch mixes tokens. A block in
half precision is replayed on a float32 copy: in bfloat16 an update smaller than 1/256 of the stream
would be invisible to any fit.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from leadline.anatomy.spread import whole
from leadline.anatomy.tensors import first_tensor, mapped, stream_input

__all__ = [
    "UNRUNNABLE",
    "Arguments",
    "Replay",
    "ReplayedCall",
    "branch_shares",
    "capture_arguments",
    "copied_arguments",
    "is_cache",
    "replay_block",
    "sleeps",
    "uncached",
    "zero_gates",
]

Tensor = torch.Tensor
Arguments = tuple[tuple[Any, ...], dict[str, Any]]

UNRUNNABLE = (RuntimeError, TypeError, ValueError, LookupError, AttributeError, AssertionError)
"""What a block may raise when it is called on its own."""


@dataclass(eq=False)
class ReplayedCall:
    """One module call inside a replayed block: copies of its values, and its output in the graph.

    `order` counts all calls of the block, `number` those of this module, both from 0. `live` is the
    output itself; a later module may change it in place (Falcon adds the attention's update into the
    MLP's output), so `frozen` is a copy in the graph that was made at once.
    """

    path: str
    module: nn.Module
    order: int
    number: int
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
    """A block that was run again: its stream as a leaf of the graph, and the calls inside it."""

    path: str
    block: nn.Module
    stream: Tensor
    before: Tensor
    after: Tensor
    calls: list[ReplayedCall]
    others: list[Tensor] = field(default_factory=list)
    woken_scalars: dict[float, str] = field(default_factory=dict[float, str])
    """Scalar parameters that are zero in the model: the value given to them, and their name."""


def capture_arguments(
    model: nn.Module, forward: Callable[[], object], keys: Collection[tuple[str, int]]
) -> dict[tuple[str, int], Arguments]:
    """The arguments of the calls `keys` (path, number), cloned when each was entered."""
    captured: dict[tuple[str, int], Arguments] = {}
    counts: dict[str, int] = {}

    def watch(path: str) -> Callable[..., None]:
        def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            number = counts.get(path, 0)
            counts[path] = number + 1
            if (path, number) in keys:
                captured[path, number] = copied_arguments(args, kwargs)

        return hook

    modules = dict(model.named_modules())
    handles = [
        modules[path].register_forward_pre_hook(watch(path), with_kwargs=True)
        for path in {path for path, _ in keys}
    ]
    try:
        with torch.no_grad():
            forward()
    finally:
        for handle in handles:
            handle.remove()
    return captured


def copied_arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
    """Copies of what a module is called with, as it stands now."""
    return mapped(
        (tuple(map(_as_it_stands, args)), _as_they_stand(kwargs)),
        _Once(lambda t: t.detach().clone()),
    )


def replay_block(
    path: str, block: nn.Module, arguments: Arguments, shape: torch.Size, *, awake: bool = False
) -> Replay:
    """Run the block on captured arguments and record what its modules took in and returned.

    With `awake` a copy runs in which parameters that are zero throughout have random values.
    """
    args, kwargs = arguments
    stream = stream_input(args, kwargs, like=shape)
    assert stream is not None
    woken: dict[float, str] = {}
    if awake:
        block = copy.deepcopy(block).eval()
        woken = _wake(path, block)
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
    calls: list[ReplayedCall] = []
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
            returned = first_tensor(output)
            like = returned.shape if returned is not None else None
            entered = stream_input(a, k, like=like)
            # Of a tensor that is spread over processes every one sees the whole.
            live = None if returned is None else whole(returned)
            calls.append(
                ReplayedCall(
                    path=f"{path}.{name}",
                    module=module,
                    order=len(calls),
                    number=sum(earlier.module is module for earlier in calls),
                    leaf=not children,
                    entered=None if entered is None else whole(entered.detach()).clone(),
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
    before = leaf.detach().clone()
    return Replay(path, block, leaf, before, after.detach().clone(), calls, others, woken)


def sleeps(block: nn.Module) -> bool:
    """Whether a parameter of the block is zero throughout, as training often starts."""
    return any(_is_zero(parameter) for parameter in block.parameters())


def zero_gates(replay: Replay) -> list[str]:
    """Parameters that are zero and may scale a branch: single numbers, or used by no module's call.

    A bias that is zero is none of them.
    """
    called_paths = {call.path for call in replay.calls}
    names = [
        (f"{replay.path}.{name}", parameter)
        for name, parameter in replay.block.named_parameters()
        if _is_zero(parameter) and not name.endswith("bias")
    ]
    return [
        name for name, p in names if p.numel() == 1 or name.rpartition(".")[0] not in called_paths
    ]


def branch_shares(replay: Replay) -> list[float]:
    """The norm of what each child of the block returned, over that of the stream; no norms."""
    size = replay.before.double().norm()
    return [
        float(call.returned.double().norm() / size)
        for call in replay.calls
        if call.returned is not None
        and call.returned.numel() == replay.before.numel()
        and not call.norm
        and "." not in call.path.removeprefix(f"{replay.path}.")
    ]


def _is_zero(parameter: Tensor) -> bool:
    """Whether all entries are zero; False for one-byte types, some of which torch cannot test."""
    return parameter.dtype.itemsize > 1 and not bool(parameter.any())


def _wake(path: str, block: nn.Module) -> dict[float, str]:
    """Give random values to parameters that are zero throughout; scalars by value and name."""
    generator = torch.Generator().manual_seed(0)
    scalars: dict[float, str] = {}
    with torch.no_grad():
        for name, parameter in block.named_parameters():
            if not _is_zero(parameter):
                continue
            values = torch.randn(parameter.shape, generator=generator)
            if parameter.ndim > 1:
                values = values / max(parameter.shape) ** 0.5
            parameter.copy_(values)
            if parameter.numel() == 1:
                scalars[float(parameter)] = f"{path}.{name}"
    return scalars


class _Once:
    """Changes each tensor once, so that a query that is also the key stays one tensor."""

    def __init__(self, change: Callable[[Tensor], Tensor]) -> None:
        self.change = change
        self.copies: dict[int, tuple[Tensor, Tensor]] = {}

    def __call__(self, tensor: Tensor) -> Tensor:
        if id(tensor) not in self.copies:
            self.copies[id(tensor)] = (tensor, self.change(tensor))
        return self.copies[id(tensor)][1]


_CACHES = ("past_key_values", "past_key_value", "layer_past", "cache_params", "past_bucket_states")


def is_cache(value: object) -> bool:
    """Whether a value is a key-value cache of transformers, which grows while a model runs."""
    return hasattr(value, "get_seq_length") and hasattr(value, "update")


def uncached(kwargs: dict[str, Any]) -> dict[str, Any]:
    """The keyword arguments without the key-value cache, to which a replay would append."""
    without = {name: None if name in _CACHES else value for name, value in kwargs.items()}
    return {name: False if name == "use_cache" else value for name, value in without.items()}


def _as_it_stands(value: Any) -> Any:
    return copy.deepcopy(value) if is_cache(value) else value


def _as_they_stand(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Copies of the caches of transformers (a tuned prefix is in them); other caches are dropped."""
    caches = {name: _as_it_stands(value) for name, value in kwargs.items() if is_cache(value)}
    return {**uncached(kwargs), **caches}


def _upcast(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.is_floating_point() else tensor
