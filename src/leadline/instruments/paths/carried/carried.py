"""A tensor that knows of what paths it is made.

    x = sum_k z_k + sum_k b_k

z_k is what came from the stream as it entered, over k hops of attention; b_k what joined on the
way (biases, and any tensor that was not computed from the stream), with k hops since. `Carried`
stands in the place of the stream in a model's own forward pass. Every operation of torch runs as
it would, on x; then a rule (`rules`) says what it did to the components:

    linear, shapes      the same to every component; what is added is a b_0
    norms               statistics frozen at x:  z -> (z - mean z) / sd(x) * gain
    activations         frozen gate: ReLU x > 0, GELU Phi(x), SiLU sigmoid(x):  z -> gate(x) z
    gated MLP           the activated factor is frozen as a whole
    pattern @ values    frozen pattern, one hop more

Anything else gives a frozen tensor: x without components. Frozen tensors multiply carried ones
(patterns, statistics and gates do). A sum with one is frozen, too, so a stream that is not affine
once everything is frozen arrives frozen, with the name of the operation that did it. An unknown
operation freezes, one that cannot be followed at all raises: numbers read out of a tensor (`item`)
and writes into foreign tensors are of that kind.

That the components add up to x shows that none was lost. It cannot show that each has the right
number of hops: a hop that is not counted, or a product that is none and is, changes no sum. So
every number is followed with the token that it belongs to (`tokens`). A hop is a sum over
the tokens of the values with a weight for each pair of tokens, and nothing else; inside a block a
carried tensor that belongs to no single token is frozen, and a gate is made of its own token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from leadline.errors import ProbeError
from leadline.instruments.paths.carried.journey import (
    Event,
    FrozenBy,
    Journey,
    Parts,
    storage_of,
)
from leadline.instruments.paths.carried.tokens import (
    ALLOCATED,
    CHOOSING,
    Tokens,
    follow_owners,
    owners,
)

__all__ = [
    "RULES",
    "Carried",
    "Event",
    "FrozenBy",
    "Journey",
    "Parts",
    "Rule",
    "carried",
    "enter",
]

Tensor = torch.Tensor


Rule = Callable[[Journey, Any, tuple[Any, ...], dict[str, Any], Any], Any]
"""(journey, operation, arguments, keywords, result) -> components of the result.

None: frozen; a `FrozenBy`: frozen, and that is why.
"""
RULES: dict[str, Rule] = {}
"""Operation -> rule, filled in by `rules`. What is not here freezes."""


class Carried(torch.Tensor):
    """A tensor with its components, or a frozen one, that takes the place of the stream."""

    value: Tensor
    parts: Parts | None
    origin: FrozenBy | None
    journey: Journey
    tokens: Tokens

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
    value: Tensor,
    parts: Parts | None,
    journey: Journey,
    *,
    origin: FrozenBy | None = None,
    tokens: Tokens = (),
) -> Carried:
    """A value with its components; without any it is frozen. `tokens`: whose its numbers are."""
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
    made.tokens = tokens
    return made


def enter(x: Tensor, journey: Journey, *, token_axis: int = 1) -> Carried:
    """The stream where the paths begin: all of it is z_0."""
    tokens = (owners(x, token_axis=token_axis),)
    return carried(x, Parts(journey.book.opened(x)), journey, tokens=tokens)


@dataclass(frozen=True, eq=False)
class _Operation:
    """What is known of one of torch's operations before it runs."""

    name: str
    writes: tuple[tuple[int, str], ...] | None
    """The arguments that it writes into; None where it writes into none."""
    makes_memory: bool
    is_choice: bool


@cache
def _known(func: Any) -> _Operation:
    name = func.overloadpacket.__name__
    writes = tuple(
        (at, argument.name)
        for at, argument in enumerate(func._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    )
    writes = writes if func._schema.is_mutable else None
    return _Operation(name, writes, name in ALLOCATED, name in CHOOSING)


def _carry(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operation on the values, then on the components by its rule."""
    operation = _known(func)
    leaves: list[Tensor] = []
    question: list[Any] = [operation]
    plain = _values(args, leaves, question)
    plain_kwargs: dict[str, Any] = {}
    if kwargs:
        plain_kwargs = dict(zip(kwargs, _values(kwargs.values(), leaves, question), strict=True))
        question += kwargs
    tracked = [leaf for leaf in leaves if isinstance(leaf, Carried)]
    journey = tracked[0].journey
    if operation.writes is not None:
        written = _written(operation.writes, args, kwargs)
        return _in_place(func, written, args, kwargs, journey=journey)
    name = operation.name
    if name == "_local_scalar_dense" and tracked[0].value.dtype != torch.bool:
        raise _unfollowed(journey, "reads a number out of the stream")
    out = func(*plain, **plain_kwargs)
    single = isinstance(out, Tensor)
    if not single and not (isinstance(out, list | tuple) and _has_tensor(out)):
        return out
    rule = RULES.get(name)
    ruled = None
    if rule is not None and any(one.parts is not None for one in tracked):
        ruled = rule(journey, func, args, kwargs, out)
    results = (out,) if single else tuple(out)
    components: tuple[Parts | None, ...] = (None,) * len(results)
    if ruled is not None and not isinstance(ruled, FrozenBy):
        components = (ruled,) if single else tuple(ruled)
    kept = any(one is not None for one in components)

    def follow() -> list[Tokens]:
        arguments = [(_value(leaf), *_whose(leaf, kept)) for leaf in leaves]
        return follow_owners(func, arguments, plain, plain_kwargs, out)

    if operation.makes_memory or (operation.is_choice and len(leaves) > 1):
        tokens = follow()
    else:
        question.append(kept)
        question += [one.shape if isinstance(one, Tensor) else None for one in results]
        about = [one.tokens for one in tracked]
        tokens = journey.answer(tuple(question), follow, about=about)
    if operation.makes_memory:
        journey.sheets[storage_of(tokens[0][0])] = tokens[0][0]
    wrapped: list[Any] = []
    for value, parts, whose in zip(results, components, tokens, strict=True):
        why = None
        if parts is None:
            why = ruled if isinstance(ruled, FrozenBy) else _origin(name, tracked, journey)
        elif journey.inside and len(whose) != 1:
            parts, why = None, FrozenBy(name, journey.module, _MIXED)  # noqa: PLW2901
        is_tensor = isinstance(value, Tensor)
        wrapped.append(
            carried(value, parts, journey, origin=why, tokens=whose) if is_tensor else value
        )
    return wrapped[0] if single else type(out)(wrapped)


def _values(arguments: Iterable[Any], leaves: list[Tensor], question: list[Any]) -> list[Any]:
    """Arguments with the values of carried tensors.

    `leaves` gets their tensors, `question` what they say without the numbers in tensors: shapes,
    owners, and everything else as it is. Operations of torch take no deeper containers than lists.
    """
    values: list[Any] = []
    for one in arguments:
        if isinstance(one, Carried):
            leaves.append(one)
            question.append((one.value.shape, one.parts is None, *map(id, one.tokens)))
            values.append(one.value)
        elif isinstance(one, Tensor):
            leaves.append(one)
            question.append((one.shape,))
            values.append(one)
        elif isinstance(one, list | tuple):
            inner: list[Any] = []
            values.append(_values(one, leaves, inner))
            question.append(tuple(inner))
        else:
            question.append(one)
            values.append(one)
    return values


def _has_tensor(results: Iterable[Any]) -> bool:
    return any(isinstance(one, Tensor) for one in results)


_MIXED = "mixes tokens, and not by a pattern that meets values"


def _whose(leaf: Tensor, kept: bool) -> tuple[Tokens, bool]:
    """The owners of an argument, and whether they are those of a result that keeps components."""
    if not isinstance(leaf, Carried):
        return (), False
    return leaf.tokens, kept and leaf.parts is not None


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
    journey.written.add(journey.module)
    x = written[0]
    memory, x.value = x.value, x.value.clone()
    made = _carry(plain, args, kwargs)
    x.value = memory.copy_(made.value)
    x.parts, x.origin = made.parts, made.origin
    if len(x.tokens) == len(made.tokens) == 1 and storage_of(x.tokens[0]) in journey.sheets:
        x.tokens[0].copy_(made.tokens[0])
    else:
        x.tokens = made.tokens
    return x


def _written(
    writes: Iterable[tuple[int, str]], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[Any]:
    """The arguments that an operation writes into."""
    targets: list[Any] = []
    for at, name in writes:
        target = args[at] if at < len(args) else kwargs.get(name)
        targets += target if isinstance(target, list | tuple) else [target]
    return targets


def _origin(name: str, tracked: list[Carried], journey: Journey) -> FrozenBy:
    """Who froze the result: of frozen arguments the last (the values, not their pattern)."""
    frozen = [one.origin for one in tracked if one.parts is None and one.origin is not None]
    return frozen[-1] if frozen else FrozenBy(name, journey.module)


def _unfollowed(journey: Journey, what: str) -> ProbeError:
    return ProbeError(
        f"The module '{journey.module}' {what}, so the components of the stream cannot be "
        "followed through it."
    )


def _value(leaf: Any) -> Any:
    return leaf.value if isinstance(leaf, Carried) else leaf
