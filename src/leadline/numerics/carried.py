"""A tensor that knows of what paths it is made.

    x = sum_k z_k + sum_k b_k

z_k is what came from the stream as it entered, over k hops of attention; b_k what joined on the
way (biases, and any tensor that was not computed from the stream), with k hops since. `Carried`
stands in the place of the stream in a model's own forward pass. Every operation of torch runs as
it would, on x; then a rule (`carried_rules`) says what it did to the components:

    linear, shapes      the same to every component; what is added is a b_0
    norms               statistics frozen at x:  z -> (z - mean z) / sd(x) * gain
    activations         frozen gate: ReLU x > 0, GELU Phi(x), SiLU sigmoid(x):  z -> gate(x) z
    gated MLP           the activated factor is frozen as a whole
    pattern @ values    frozen pattern, one hop more

Anything else gives a frozen tensor: x without components. Frozen tensors multiply carried ones
(patterns, statistics and gates do). A sum with one is frozen, too, so a stream that is not affine
once everything is frozen arrives frozen, with the name of the operation that did it. No operation
can lose components in silence: an unknown one freezes, one that cannot be followed at all raises.
Numbers read out of a tensor (`item`) and writes into foreign tensors are of that kind.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_flatten, tree_map

from leadline.errors import ProbeError
from leadline.numerics.carried_rows import Book, ByLength, Rows

__all__ = ["Carried", "Event", "Journey", "Origin", "Parts", "Rule", "carried", "enter"]

Tensor = torch.Tensor


class Parts(NamedTuple):
    """The components of a tensor. `activated`: it came through an activation or a gate."""

    inputs: Rows
    sources: Rows | None = None
    activated: bool = False

    @property
    def coarsest(self) -> torch.dtype:
        """The number type with the largest eps that the components went through."""
        families = [rows for rows in (self.inputs, self.sources) if rows is not None]
        types = [rows.coarsest for rows in families]
        return max(types, key=lambda one: torch.finfo(one).eps)


class Origin(NamedTuple):
    """The operation that froze a tensor, and the module in which it ran."""

    operation: str
    module: str


@dataclass(frozen=True)
class Event:
    """One product of a pattern with values, in the order in which they were met."""

    index: int
    module: str
    heads: int
    entered: int
    """Rows of the values before it: the hops that the longest path had behind it, plus one."""


@dataclass
class Journey:
    """What all tensors of one pass share: the book of rows, where the pass is, what it met."""

    book: Book = field(default_factory=ByLength)
    examples: int = 1
    running: list[str] = field(default_factory=list[str])
    """The paths of the modules that are running, the innermost last."""
    events: list[Event] = field(default_factory=list[Event])
    taken: set[int] = field(default_factory=set[int])
    """The hops whose results were asked for: scores of frozen queries and keys are no hops."""
    inside: bool = False
    """Whether a block is running: behind the last one tokens may be pooled."""
    joined: set[str] = field(default_factory=set[str])
    """Modules in which a plain tensor as large as the stream was added to it."""

    @property
    def module(self) -> str:
        return self.running[-1] if self.running else ""

    def hop(self, batch: int, rows: Rows) -> Event:
        """Note a hop. A batched product holds `batch` matrices, examples times heads."""
        if batch % self.examples:
            raise ProbeError(
                f"'{self.module}' multiplies {batch} patterns with values for {self.examples} "
                "examples, so heads cannot be counted; measure one example."
            )
        event = Event(len(self.events), self.module, batch // self.examples, rows.count)
        self.events.append(event)
        return event


Rule = Callable[[Journey, Any, tuple[Any, ...], dict[str, Any], Any], Any]
"""(journey, operation, arguments, keywords, result) -> components of the result; None: frozen."""


class Carried(torch.Tensor):
    """x with its components, or x frozen: see the module's first lines."""

    value: Tensor
    parts: Parts | None
    origin: Origin | None
    journey: Journey

    # Every function comes apart into torch's own operations before it is looked at.
    __torch_function__ = torch._C._disabled_torch_function_impl  # pyright: ignore

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        return _carry(func, args, kwargs or {})

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        if self.parts is None:
            return f"Carried(frozen by {self.origin}, {list(self.shape)})"
        return f"Carried({self.parts.inputs.count} lengths, {list(self.shape)})"


def carried(
    value: Tensor, parts: Parts | None, journey: Journey, *, origin: Origin | None = None
) -> Carried:
    """A value with its components; without any it is frozen."""
    made = torch.Tensor._make_wrapper_subclass(  # pyright: ignore
        Carried,
        value.shape,
        strides=value.stride(),
        storage_offset=value.storage_offset(),
        dtype=value.dtype,
        device=value.device,
        layout=value.layout,
    )
    made.value, made.parts, made.journey, made.origin = value, parts, journey, origin
    return made


def enter(x: Tensor, journey: Journey) -> Carried:
    """The stream where the paths begin: all of it is z_0."""
    return carried(x, Parts(journey.book.opened(x)), journey)


def _carry(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operation on the values, then on the components by its rule."""
    from leadline.numerics.carried_rules import RULES

    tracked = [leaf for leaf in tree_flatten((args, kwargs))[0] if isinstance(leaf, Carried)]
    journey = tracked[0].journey
    name = func.overloadpacket.__name__
    written = _written(func, args, kwargs)
    if written is not None:
        return _in_place(func, written, args, kwargs, journey=journey)
    if name == "_local_scalar_dense" and tracked[0].value.dtype != torch.bool:
        raise _unfollowed(journey, "reads a number out of the stream")
    out = func(*tree_map(_value, args), **tree_map(_value, kwargs))
    if not any(isinstance(leaf, Tensor) for leaf in tree_flatten(out)[0]):
        return out
    rule = RULES.get(name)
    ruled = None
    if rule is not None and any(one.parts is not None for one in tracked):
        ruled = rule(journey, func, args, kwargs, out)
    if isinstance(out, Tensor):
        ruled, results = (ruled,), (out,)
    else:
        results = tuple(out)
        ruled = (None,) * len(results) if ruled is None else tuple(ruled)
    origin = _origin(name, tracked, journey) if None in ruled else None
    wrapped = [
        carried(value, parts, journey, origin=None if parts else origin)
        if isinstance(value, Tensor)
        else value
        for value, parts in zip(results, ruled, strict=True)
    ]
    return wrapped[0] if isinstance(out, Tensor) else type(out)(wrapped)


def _in_place(
    func: Any,
    written: list[Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    journey: Journey,
) -> Carried:
    """x.add_(y) and its kin: the new value goes into x, whose components are those of x.add(y).

    Other views of the same memory keep their components; the remainder would show it. Components
    are computed later, so the rule sees a copy of what is overwritten.
    """
    name = func.overloadpacket.__name__
    if len(written) != 1 or not isinstance(written[0], Carried) or written[0] is not args[0]:
        raise _unfollowed(journey, f"writes into a tensor of its own ({name})")
    packet = getattr(torch.ops.aten, name.removesuffix("_"), None)
    plain = getattr(packet, func._overloadname, None)
    if not name.endswith("_") or plain is None:
        raise _unfollowed(journey, f"changes the stream in place ({name})")
    x = written[0]
    memory, x.value = x.value, x.value.clone()
    made = _carry(plain, args, kwargs)
    x.value = memory.copy_(made.value)
    x.parts, x.origin = made.parts, made.origin
    return x


def _written(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any] | None:
    """The arguments that an operation writes into; None where it writes into none."""
    if not func._schema.is_mutable:
        return None
    found: list[Any] = []
    for at, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            given = args[at] if at < len(args) else kwargs.get(argument.name)
            found += given if isinstance(given, list | tuple) else [given]
    return found


def _origin(name: str, tracked: list[Carried], journey: Journey) -> Origin:
    """Who froze the result: of frozen arguments the last (the values, not their pattern)."""
    frozen = [one.origin for one in tracked if one.parts is None and one.origin is not None]
    return frozen[-1] if frozen else Origin(name, journey.module)


def _unfollowed(journey: Journey, what: str) -> ProbeError:
    return ProbeError(
        f"The module '{journey.module}' {what}, so the components of the stream cannot be "
        "followed through it."
    )


def _value(leaf: Any) -> Any:
    return leaf.value if isinstance(leaf, Carried) else leaf
