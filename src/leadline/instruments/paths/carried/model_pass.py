"""One forward pass of a model with its stream carried: hooks on the blocks, and nothing stored.

The stream is exchanged where it enters the first block of the stack. Where it leaves a block its
components are computed and what they came from is let go, so memory does not grow with depth. A
frozen stream is refused there, with the operation that froze it. Attention runs as softmax and
products (`plain_kernels`), because a fused kernel has no pattern to freeze.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from leadline.anatomy import MIXING, Block, Stack, Sublayer
from leadline.anatomy.tensors import first_tensor
from leadline.errors import LeadlineError, ProbeError
from leadline.instruments.paths.carried.books import ByLength
from leadline.instruments.paths.carried.carried import Carried, Event, Journey, enter
from leadline.instruments.paths.carried.heads import LayerHeads, declared_heads, heads_of_layer
from leadline.instruments.paths.carried.rows import ENTRY, Ways
from leadline.instruments.paths.carried.tokens import Tokens

__all__ = ["AttentionLayer", "Passed", "carry_through", "check_stack", "plain_kernels"]

Tensor = torch.Tensor
_AFFINE = (
    "Paths are followed through attention with softmax, LayerNorm, RMSNorm, ReLU, GELU, SiLU and "
    "products gated by them"
)


@dataclass(frozen=True)
class AttentionLayer:
    """The hops that lie side by side in one layer, and whether a path may skip them.

    `held` says which heads each hop holds, (first, number); None: not known. `doubt` says why the
    heads are not known.
    """

    layer: int
    hops: tuple[Event, ...]
    skip: bool
    heads: int | None
    held: tuple[tuple[int, int], ...] | None = None
    doubt: str = ""


@dataclass(frozen=True)
class Passed:
    """What came out: the stream after the last block, what the model returned, its attention."""

    stream: Carried
    output: Any
    attentions: tuple[AttentionLayer, ...]


class _Enough(Exception):
    """The stream has left the last block, and nothing after it is needed."""


@dataclass
class _CarriedWalk:
    """Where the pass stands in the stack."""

    model: nn.Module
    stack: Stack
    journey: Journey
    to_the_end: bool
    say: Callable[[int], None]
    index: int = -1
    inside: bool = False
    rows: int = 1
    ways: Ways = ENTRY
    events: int = 0
    places: int = 0
    tokens: int = 0
    entered: Tokens = ()
    stream: Carried | None = None
    attentions: list[AttentionLayer] = field(default_factory=list[AttentionLayer])

    def entering(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        if self.inside:
            return None
        self.index += 1
        if self.index >= self.stack.depth:
            raise ProbeError(
                f"The forward pass runs through the {self.stack.name} again after its "
                f"{self.stack.depth} layers; measure the part that is used twice on its own."
            )
        self.inside = self.journey.inside = True
        self.events = len(self.journey.events)
        if self.index > 0:
            return None
        x = _stream_among(args, kwargs, self.stack)
        axis = self.stack.token_axis
        self.places = x.shape[:-1].numel()
        self.tokens = self.places // (1 if x.ndim == 2 else x.shape[0 if x.ndim > 3 else 1 - axis])
        carried = enter(x, self.journey, token_axis=axis)
        self.entered = carried.tokens
        return _exchanged(args, x, carried), _exchanged(kwargs, x, carried)

    def leaving(self, module: nn.Module, args: Any, output: object) -> None:
        if not self.inside:
            return
        self.inside = self.journey.inside = False
        block = self.stack.blocks[self.index]
        stream = first_tensor(output)
        _refuse_frozen(stream, block)
        assert isinstance(stream, Carried) and stream.parts is not None
        if not bool(torch.isfinite(stream.value).all()):
            raise ProbeError(
                f"The stream is not finite behind layer {block.layer} ('{block.module}'), so it "
                "has no shares; measure the model with leadline.measure to see where it grows."
            )
        rows = stream.parts.rows
        rows.hold()
        if isinstance(self.journey.book, ByLength):
            hops = [e for e in self.journey.events[self.events :] if e.index in self.journey.taken]
            self.attentions += self._attention_of(block, hops)
            self.rows, self.ways = rows.inputs, rows.ways
        stream.tokens = self._labels(stream)
        self.journey.ledger.turn()
        self.say(self.index + 1)
        if self.index + 1 == self.stack.depth:
            self.stream = stream
            if not self.to_the_end:
                raise _Enough

    def _labels(self, stream: Carried) -> Tokens:
        """The owners of the stream, as the very object that they were at the first block.

        So the ledger knows in the next block what it was asked in this one.
        """
        same = [
            bool(torch.equal(one, other))
            for one, other in zip(stream.tokens, self.entered, strict=False)
        ]
        if len(same) == len(self.entered) == len(stream.tokens) and all(same):
            return self.entered
        return stream.tokens

    def _attention_of(self, block: Block, hops: list[Event]) -> list[AttentionLayer]:
        """The hops of a block; those that lie side by side are one attention layer."""
        # A layer that takes keys and values from an earlier one does not mix what enters it.
        reading_stream = [hop for hop in hops if self.ways.last <= hop.ways.last]
        mixing = [s for s in block.sublayers if s.role in MIXING]
        if hops and not reading_stream and not mixing:
            mixing = list(block.sublayers[:1])
        levels: dict[int, list[Event]] = {}
        for hop in hops:
            levels.setdefault(max(0, hop.entered - self.rows), []).append(hop)
        _refuse_odd(block, reading_stream, mixing, levels=len(levels), tokens=self.tokens)
        declared = declared_heads(self.model, block.module)
        layers: list[AttentionLayer] = []
        for sublayer, at in zip(mixing, sorted(levels), strict=False):
            met = [hop.meeting for hop in levels[at] if hop.meeting is not None]
            counted = self.journey.ledger.answer(
                ("heads", *map(id, met)),
                lambda met=met: heads_of_layer(met, places=self.places, tokens=self.tokens),
                about=met,
            )
            skip = sublayer.law is not None or sublayer.keep != 0
            doubt = _doubt(counted.number, declared, block)
            counted = LayerHeads(None) if doubt else counted
            layers.append(AttentionLayer(block.layer, tuple(levels[at]), skip, *counted, doubt))
        return layers


def carry_through(
    model: nn.Module,
    stack: Stack,
    forward: Callable[[], Any],
    journey: Journey,
    *,
    to_the_end: bool = True,
    say: Callable[[int], None] = lambda layer: None,
) -> Passed:
    """Run `forward` with the stream of the stack carried; `say` gets every finished layer."""
    walk = _CarriedWalk(model, stack, journey, to_the_end, say)
    output = None
    with torch.no_grad(), plain_kernels(), _hooks(walk):
        try:
            output = forward()
        except _Enough:
            pass
        except (LeadlineError, MemoryError, torch.OutOfMemoryError):
            raise
        except Exception as error:
            raise ProbeError(
                f"The components of the stream cannot be followed through "
                f"'{journey.module}': {type(error).__name__}: {error}"
            ) from error
    if walk.stream is None:
        raise ProbeError(
            f"The forward pass went through {walk.index + 1} of the {stack.depth} layers of the "
            f"{stack.name}; the anatomy does not fit these inputs."
        )
    return Passed(walk.stream, output, tuple(walk.attentions))


def check_stack(stack: Stack) -> None:
    """Refuse what has no stream that one tensor could stand for."""
    if stack.lanes > 1:
        raise ProbeError(
            f"The {stack.name} has {stack.lanes} lanes, so a path has no single stream to follow; "
            "paths are for models with one stream."
        )
    for block in stack.blocks:
        if not block.entry.module == block.exit.module == block.module:
            raise ProbeError(
                f"Layer {block.layer} of the {stack.name} is no module of its own (it enters at "
                f"'{block.entry.module}' and leaves at '{block.exit.module}'), so the stream "
                "cannot be exchanged there; paths are for models whose blocks are modules."
            )


@contextmanager
def plain_kernels() -> Iterator[None]:
    """Attention as softmax and products: no fused kernel, no fast path of torch's own layers."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel([SDPBackend.MATH]):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


@contextmanager
def _hooks(walk: _CarriedWalk) -> Iterator[None]:
    running = walk.journey.running
    handles: list[Any] = []

    def push(path: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any) -> None:
            running.append(path)

        return hook

    def pop(module: nn.Module, args: Any, output: object) -> None:
        running.pop()

    try:
        # A module that raises stays on the list: its name is for the error.
        for path, module in walk.model.named_modules():
            handles.append(module.register_forward_pre_hook(push(path)))
        for path in dict.fromkeys(block.module for block in walk.stack.blocks):
            module = walk.model.get_submodule(path)
            handles.append(module.register_forward_pre_hook(walk.entering, with_kwargs=True))
            handles.append(module.register_forward_hook(walk.leaving))
        for module in walk.model.modules():
            handles.append(module.register_forward_hook(pop))
        yield
    finally:
        for handle in handles:
            handle.remove()


def _stream_among(args: tuple[Any, ...], kwargs: dict[str, Any], stack: Stack) -> Tensor:
    """The first tensor among the arguments that can be the stream."""
    for argument in [*args, kwargs.get("hidden_states"), *kwargs.values()]:
        if isinstance(argument, tuple) and first_tensor(argument) is not None:
            raise ProbeError(
                f"The blocks of the {stack.name} hand on a state of several tensors (lanes or a "
                "history), so a path has no single stream to follow; paths are for models with "
                "one stream."
            )
        if (
            isinstance(argument, Tensor)
            and argument.is_floating_point()
            and argument.ndim >= 2
            and argument.shape[-1] == stack.width
        ):
            return argument
    raise ProbeError(
        f"Nothing that enters '{stack.blocks[0].module}' has the width {stack.width} of the "
        "stream; the anatomy does not fit these inputs."
    )


def _refuse_frozen(stream: Tensor | None, block: Block) -> None:
    where = f"layer {block.layer} ('{block.module}')"
    if not isinstance(stream, Carried):
        raise ProbeError(
            f"What {where} returns was not computed by torch from the stream that entered it, so "
            "its paths cannot be followed."
        )
    if stream.parts is not None:
        return
    origin = stream.origin
    assert origin is not None
    raise ProbeError(
        f"The stream is not affine when frozen behind {where}: the operation "
        f"'{origin.operation}' in '{origin.module}' {origin.deed}. {_AFFINE}."
    )


def _refuse_odd(
    block: Block, hops: list[Event], mixing: list[Sublayer], *, levels: int, tokens: int
) -> None:
    """Refuse a block whose hops are not the steps of its attention sublayers."""
    if mixing and levels == 0:
        if tokens == 1:
            raise ProbeError(
                f"In layer {block.layer} '{mixing[0].module}' multiplies its pattern element by "
                "element with the values of a single token, so no hop can be seen; give two tokens "
                "or more."
            )
        raise ProbeError(
            f"In layer {block.layer} '{mixing[0].module}' mixes tokens, and no pattern computed "
            f"from the stream was multiplied with values there. {_AFFINE}."
        )
    other = [s for s in block.sublayers if s.role not in MIXING]
    inside = [hop.module for hop in hops if any(_is_within(hop.module, s) for s in other)]
    if hops and (inside or not mixing):
        raise ProbeError(
            f"In layer {block.layer} a pattern was multiplied with values in "
            f"'{(inside or [hops[0].module])[0]}', which by the anatomy mixes no tokens; declare "
            "the writes of this block if the anatomy is wrong."
        )
    if levels > len(mixing):
        raise ProbeError(
            f"In layer {block.layer} ('{block.module}') values pass {levels} patterns one after "
            f"the other and there are {len(mixing)} attention sublayers, so hops are no steps of "
            "attention."
        )


def _is_within(module: str, sublayer: Sublayer) -> bool:
    return f"{module}.".startswith(f"{sublayer.module}.")


def _doubt(counted: int | None, declared: int | None, block: Block) -> str:
    """Why the heads of a layer are not known; empty where they are."""
    if counted is None:
        return (
            f"in layer {block.layer} ('{block.module}') pairs of tokens meet in products unequally "
            "often, so its heads cannot be told apart"
        )
    if declared is not None and declared != counted:
        return (
            f"in layer {block.layer} ('{block.module}') every pair of tokens meets {counted} times "
            f"in products and the configuration gives {declared} heads"
        )
    return ""


def _exchanged(arguments: Any, x: Tensor, carried: Carried) -> Any:
    """The arguments with the stream exchanged; what does not hold it stays the same object."""
    if arguments is x:
        return carried
    if type(arguments) is tuple or type(arguments) is list:
        items = [_exchanged(one, x, carried) for one in arguments]
        same = all(one is other for one, other in zip(items, arguments, strict=True))
        return arguments if same else type(arguments)(items)
    if type(arguments) is dict:
        changed = {key: _exchanged(one, x, carried) for key, one in arguments.items()}
        return arguments if all(changed[key] is arguments[key] for key in arguments) else changed
    return arguments
