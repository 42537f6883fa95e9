"""The blocks of one stack as functions of the stream, from one real forward pass.

    f, x = Stretches(model, stack, forward).function(i, j)        f(x) is the stream at site j

Site l is the stream after block l; site 0 is what enters block 1. Streams are handed over as
[example, token, width], lanes side by side in the width, whatever their order in the model.

One block (j = i + 1) is called alone, on the arguments of the real pass with its stream exchanged,
and without key-value caches: a block called without its mask can lose causality. Everything else
that reached the block is held fixed as it was: its f is the block as a function of the stream that
enters it. Several blocks are the model's own forward pass with the stream at site i exchanged, so
whatever lies between the blocks or goes past them (a history, shared values, positions that are
added) is part of f; what was made before site i is fixed. Layers that are no module of their own
(XLM) go the same way.

Every f is compared with the real pass when it is first called with the real stream: token by token,
|f(x) - after| is at most `TOLERANCE` eps of the larger of |x| and |after| (`AGREEMENT` eps for
several blocks, which pass on and amplify what rounding did, and under another attention kernel than
that of the real pass, which rounds otherwise), and never more than `MOST`. Otherwise
ProbeError. eps is that of the coarsest number type of the blocks; weights in half precision are
exchanged for float32 copies while f runs.

Products J v need second derivatives, and fused attention has none. With `math`, f runs under
torch's plain attention (`SDPBackend.MATH`) where the real pass ran any attention of torch, but only
if a whole forward pass under it gives the model's own output to `AGREEMENT` eps; otherwise the
model's own kernel stays and `refusal` says why.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from leadline.anatomy.exactness import exactly
from leadline.anatomy.find.replay import uncached
from leadline.anatomy.stretch.arguments import (
    is_opaque,
    map_tensors,
    other_tensors,
    swap_tensor,
    without_caches,
)
from leadline.anatomy.stretch.kernel import AttentionWatch, attention_watched
from leadline.anatomy.stretch.past import Leaves, graphs_only
from leadline.anatomy.structure import Block, Stack
from leadline.anatomy.tap.tap import stream_among
from leadline.anatomy.tensors import first_tensor
from leadline.errors import ProbeError, words_of

__all__ = ["AGREEMENT", "MOST", "TOLERANCE", "CapturedCall", "Function", "Stretches"]

Tensor = torch.Tensor
Function = Callable[[Tensor], Tensor]

TOLERANCE = 16.0
"""Largest miss of any token by one block that is run again with the same kernels, in eps."""
AGREEMENT = 256.0
"""Largest difference of the output under another attention kernel, in eps of a token's size."""
MOST = 1 / 16
"""A larger miss, as a share of the token, is never rounding, not even in bfloat16."""
_HALF = (torch.float16, torch.bfloat16)


@dataclasses.dataclass(eq=False)
class CapturedCall:
    """One block in the real pass: its arguments, and the stream before and after it.

    `carries`: the state holds more than the stream. `joined`: the stream that enters is the one that
    left the layer before. `opaque`: an argument is an object of an unknown class, which may keep
    state between calls.
    """

    block: Block
    arguments: Any
    stream: Tensor
    carries: bool
    opaque: bool = False
    joined: bool = True
    after: Tensor | None = None


class Stretches:
    """Hold one real forward pass and make functions of its blocks, stretches and writes.

    `forward` runs the model once on the inputs. `math` allows the plain attention kernel, which has
    second derivatives.
    """

    def __init__(
        self,
        model: nn.Module,
        stack: Stack,
        forward: Callable[[], object],
        *,
        math: bool = True,
    ) -> None:
        self.model = model
        self.stack = stack
        self.refusal: str | None = None
        self.kernel = "the model's own"
        self._forward = forward
        self._modules = dict(model.named_modules(remove_duplicate=False))
        self._math = False
        self._carries_past: bool | None = None
        with torch.no_grad():
            with attention_watched() if math else nullcontext(AttentionWatch()) as attention:
                self.calls, output = self._capture(forward)
            self._coarsest = self._coarsest_type()
            if attention.ran:
                self._switch(output)

    # --- streams and functions --------------------------------------------------------------

    @property
    def depth(self) -> int:
        """How many blocks there are."""
        return self.stack.depth

    @property
    def precision(self) -> str:
        """The number type of the products, and that of the model where it is another one."""
        dtype = str(self._coarsest).removeprefix("torch.")
        return f"{dtype} weights, computed on float32 copies" if self._coarsest in _HALF else dtype

    def stream(self, site: int) -> Tensor:
        """The stream at a site as [example, token, width]."""
        raw = self.calls[0].stream if site == 0 else self.calls[site - 1].after
        assert raw is not None
        return self._by_example(raw)

    def function(self, start: int, end: int) -> tuple[Function, Tensor]:
        """The stream at site `end` as a function of that at site `start`, and the latter."""
        if not 0 <= start < end <= self.depth:
            raise ProbeError(
                f"A stretch from site {start} to site {end} was asked for; the {self.stack.name} "
                f"has sites 0 to {self.depth}, and a stretch goes forward."
            )
        call = self.calls[end - 1]
        alone = call.block.exit.module == call.block.module
        if end == start + 1 and alone:
            return self._judged_function(lambda x: self.run(call, x), call.stream, start, end)
        if start == 0 and not alone:
            first = self.calls[0].block
            raise ProbeError(
                f"Layer 1 of the {self.stack.name} is no module of its own (it reaches from "
                f"'{first.entry.module}' to '{first.exit.module}'), so the stream that enters it "
                "cannot be exchanged; ask for a stretch from site 1 on."
            )
        raw = self.calls[0].stream if start == 0 else self.calls[start - 1].after
        assert raw is not None
        return self._judged_function(lambda x: self._through(x, start, end), raw, start, end)

    def sublayer(self, layer: int, sublayer: int) -> tuple[Function, Tensor]:
        """The stream after one write as a function of that before it, and the latter."""
        from leadline.anatomy.stretch.writes import write_function

        f, raw = write_function(self, self.calls[layer - 1], sublayer)
        last = sublayer == len(self.calls[layer - 1].block.sublayers)
        real = last and not self.calls[layer - 1].block.parallel
        return self._judged_function(f, raw, layer - 1, layer, judged=real)

    @property
    def finite(self) -> bool:
        """Whether the stream is finite after the last layer."""
        return bool(torch.isfinite(self.stream(self.depth)).all())

    @property
    def side_by_side(self) -> bool:
        """Whether a block may get anything beside the stream that the first one did not get.

        That may be a history, values of an earlier layer, a step between two layers, or just a mask
        of its own; the caller has to find out which. Where the arguments show nothing, one more pass
        looks for values that bypass them (`past`).
        """
        first = {id(t) for t in other_tensors(self.calls[0].arguments, self.calls[0].stream)}
        if any(
            call.carries
            or call.opaque
            or not call.joined
            or any(id(t) not in first for t in other_tensors(call.arguments, call.stream))
            for call in self.calls
        ):
            return True
        if self._carries_past is None:
            self._carries_past = self._goes_past()
        return self._carries_past

    def in_the_model(self, layer: int) -> tuple[Function, Tensor] | None:
        """The same block inside the model's own pass; None where running it alone is the same.

        A block that is handed an unknown object may find there what it left at its first call. The
        same stream then gives the same output, but another stream gives a wrong one.
        """
        call = self.calls[layer - 1]
        if not call.opaque or not call.joined or call.block.exit.module != call.block.module:
            return None
        return self._judged_function(
            lambda x: self._through(x, layer - 1, layer), call.stream, layer - 1, layer
        )

    def remarks(self, start: int, end: int) -> list[str]:
        """What is held fixed in a stretch, beside the stream."""
        sentences: list[str] = []
        inside = self.calls[start:end]
        if inside[0].carries:
            sentences.append(
                "The state between layers holds more than the stream; what it held before "
                f"site {start} is fixed."
            )
        if any(s.role == "cross-attention" for c in inside for s in c.block.sublayers):
            sentences.append("What comes from the other stack (cross-attention) is held fixed.")
        if end == start + 1 and not inside[0].joined:
            sentences.append(
                f"Something changes the stream between layers {start} and {end}; this is "
                f"layer {end} alone, from what enters it."
            )
        return sentences

    @contextmanager
    def running(self) -> Iterator[None]:
        """The kernel and the number type under which all functions and their products run."""
        with sdpa_kernel(SDPBackend.MATH) if self._math else nullcontext():
            yield

    # --- the real pass ----------------------------------------------------------------------

    def _capture(self, forward: Callable[[], object]) -> tuple[list[CapturedCall], Tensor | None]:
        calls: list[CapturedCall] = []
        blocks = self.stack.blocks
        inside = False

        def enter(path: str) -> Callable[..., None]:
            def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
                nonlocal inside
                if inside or len(calls) == len(blocks):
                    return
                block = blocks[len(calls)]
                if block.entry.module == path:
                    calls.append(self._call(block, args, kwargs, calls[-1] if calls else None))
                    inside = True

            return hook

        def leave(path: str) -> Callable[..., None]:
            def hook(_: nn.Module, args: tuple[Any, ...], output: object) -> None:
                nonlocal inside
                if inside and calls[-1].block.exit.module == path:
                    calls[-1].after = first_tensor(output)
                    inside = False

            return hook

        with self._hooked(
            {block.entry.module: enter(block.entry.module) for block in blocks},
            {block.exit.module: leave(block.exit.module) for block in blocks},
        ):
            output = first_tensor(forward())
        if len(calls) < len(blocks) or inside or calls[-1].after is None:
            raise ProbeError(
                f"The forward pass went through {len(calls)} of the {len(blocks)} layers of the "
                f"{self.stack.name}; the anatomy does not fit these inputs."
            )
        calls[-1].after = calls[-1].after.clone()
        return calls, output

    def _call(
        self,
        block: Block,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        before: CapturedCall | None,
    ) -> CapturedCall:
        entered = stream_among(args, kwargs, self.stack)
        if entered is None:
            raise ProbeError(
                f"Nothing that enters '{block.module}' has the width {self.stack.width} of the "
                "stream."
            )
        # The stream alone is copied: masks and rotary tables are the same tensors in all layers.
        stream = entered.clone()
        carries = not any(value is entered for value in [*args, *kwargs.values()])
        arguments = without_caches((args, uncached(kwargs)))
        copied = map_tensors(arguments, lambda t: stream if t is entered else t)
        call = CapturedCall(block, copied, stream, carries, opaque=is_opaque(copied))
        if before is not None and before.after is not None:
            after = before.after
            call.joined = after.shape == stream.shape and bool(torch.equal(after, stream))
            before.after = stream if call.joined else after.clone()
        return call

    def _coarsest_type(self) -> torch.dtype:
        """The coarsest number type among the streams and the weights of the blocks."""
        types = {call.stream.dtype for call in self.calls}
        for path in {call.block.module for call in self.calls}:
            types |= {p.dtype for p in self._modules[path].parameters() if p.is_floating_point()}
        return max((t for t in types if t.itemsize > 1), key=lambda t: torch.finfo(t).eps)

    def _switch(self, output: Tensor | None) -> None:
        """Take the plain attention kernel, if the model's output is the same under it."""
        real_stream = self.calls[-1].after
        with sdpa_kernel(SDPBackend.MATH):
            try:
                calls, other = self._capture(self._forward)
            except RuntimeError as error:
                message = words_of(error, first_line=True).rstrip(".")
                self.refusal = f"the model does not run under plain attention: {message}"
                return
        pairs = [
            (calls[-1].after, real_stream, "stream after the last layer"),
            (other, output, "output"),
        ]
        worst = 0.0
        for value, real, what in pairs:
            if value is None or real is None or real.ndim < 2:
                continue
            miss = self._miss(value, real, real)
            worst = max(worst, miss)
            if not miss <= AGREEMENT:
                self.refusal = (
                    f"under plain attention, which has the second derivatives, the {what} differs "
                    f"from the model's own by {miss:.3g} eps; at most {AGREEMENT:g} are rounding"
                )
                return
        self._math = True
        self.kernel = f"math, output agrees to {worst:.2g} eps"

    def _goes_past(self) -> bool:
        """Whether the stream after a block depends on streams before the one that entered it.

        In one pass every stream between two blocks is exchanged for a leaf of autograd. If the model
        does not run that way, the answer is True, so that the caller compares the maps themselves.
        """
        leaves = Leaves()
        blocks = self.stack.blocks
        at = 0

        def enter(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            entered = stream_among(args, kwargs, self.stack)
            if at > 0 or leaves or entered is None:
                return None
            return swap_tensor((args, kwargs), entered, leaves.instead_of(entered))

        def leave(path: str) -> Callable[..., Any]:
            def hook(_: nn.Module, args: tuple[Any, ...], output: object) -> Any:
                nonlocal at
                stream = first_tensor(output)
                if at == len(blocks) or blocks[at].exit.module != path or stream is None:
                    return None
                at += 1
                leaves.look_behind(stream)
                return swap_tensor(output, stream, leaves.instead_of(stream))

            return hook

        alone = blocks[0].entry.module == blocks[0].exit.module
        exits = {block.exit.module: leave(block.exit.module) for block in blocks}
        entries = {blocks[0].entry.module: enter} if alone else {}
        try:
            with graphs_only(), self._hooked(entries, exits):
                self._forward()
        except Exception:
            return True
        return leaves.passed

    # --- running again ----------------------------------------------------------------------

    def run(self, call: CapturedCall, x: Tensor) -> Tensor:
        """Run one block alone on a stream in the model's own order and return the stream after it."""
        block = call.block
        # A copy enters: some blocks change their input in place.
        entering = x.clone()

        def exchanged(tensor: Tensor) -> Tensor:
            return entering if tensor is call.stream else self.typed(tensor)

        args, kwargs = map_tensors(call.arguments, exchanged)
        module = self._modules[block.module]
        try:
            with self.running(), self._upcast(module):
                stream = first_tensor(module(*args, **kwargs))
        except ProbeError:
            raise
        except Exception as error:
            raise ProbeError(
                f"Layer {block.layer} ('{block.module}') could not be run again on its own: "
                f"{words_of(error, first_line=True)}"
            ) from error
        assert stream is not None
        return stream

    def _through(self, x: Tensor, start: int, end: int) -> Tensor:
        """The whole forward pass with the stream at `start` exchanged: the stream at `end`."""
        entering = x.clone()
        first, last = self.calls[start].block, self.calls[end - 1].block
        at_entry = start == 0
        out = self.calls[start - 1].block.exit.module if not at_entry else ""
        counts: Counter[str] = Counter()
        arrivals: list[Tensor] = []
        turns = {
            "in": _turn(self.stack, start, lambda b: b.entry.module),
            "out": _turn(self.stack, start - 1, lambda b: b.exit.module) if not at_entry else 0,
            "end": _turn(self.stack, end - 1, lambda b: b.exit.module),
        }

        def enter(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            counts["in"] += 1
            if counts["in"] != turns["in"] + 1:
                return None
            return swap_tensor((args, kwargs), stream_among(args, kwargs, self.stack), entering)

        def leave(_: nn.Module, args: tuple[Any, ...], output: object) -> Any:
            counts["out"] += 1
            if counts["out"] != turns["out"] + 1:
                return None
            return swap_tensor(output, first_tensor(output), entering)

        def arrive(_: nn.Module, args: tuple[Any, ...], output: object) -> None:
            counts["end"] += 1
            arrived = first_tensor(output)
            if counts["end"] == turns["end"] + 1 and arrived is not None:
                arrivals.append(arrived.clone())  # the next block may change it in place

        entries = {first.entry.module: enter} if at_entry else {}
        exits = [(last.exit.module, arrive), *([] if at_entry else [(out, leave)])]
        try:
            with self._hooked(entries, exits), self.running(), self._upcast(self.model):
                self._forward()
        except Exception as error:
            raise ProbeError(
                f"The model could not be run again with its stream at site {start} exchanged: "
                f"{words_of(error, first_line=True)}"
            ) from error
        assert arrivals
        return arrivals[0]

    def _judged_function(
        self, run: Function, raw: Tensor, start: int, end: int, *, judged: bool = True
    ) -> tuple[Function, Tensor]:
        """A function of [example, token, width] that is judged at its first call with `raw`."""
        x = self.typed(self._by_example(raw))
        real = self.calls[end - 1].after
        assert real is not None
        waiting = judged

        def f(x_now: Tensor) -> Tensor:
            nonlocal waiting
            stream = run(self._in_model_order(x_now, raw.shape))
            after = stream if stream.shape == real.shape else stream.reshape(real.shape)
            if x_now.requires_grad and torch.is_grad_enabled() and not after.requires_grad:
                raise ProbeError(
                    f"{self._where(start, end)} cuts the gradient of its stream: it is quantised, "
                    "or runs without gradients, or rounds; there is no Jacobian."
                )
            if waiting and torch.equal(x_now.detach(), x):
                waiting = False
                self._judge(after.detach(), real, raw, start, end)
            return self._by_example(after)

        return f, x

    def _judge(self, after: Tensor, real: Tensor, before: Tensor, start: int, end: int) -> None:
        if torch.equal(after, real):
            return
        miss = self._miss(after, real, before)
        unit = torch.finfo(self._coarsest).eps
        same_sums = end == start + 1 and not self._math
        allowed = min(TOLERANCE if same_sums else AGREEMENT, MOST / unit)
        if miss != miss:
            raise ProbeError(
                f"{self._where(start, end)} makes a stream that is not finite, so it has no "
                "Jacobian."
            )
        if miss > allowed:
            raise ProbeError(
                f"{self._where(start, end)}, run again on the same stream, returns another one: "
                f"it differs by {miss:.3g} eps ({miss * unit:.3g} of a "
                f"token), and at most {allowed:.3g} are rounding. The block draws at random (an "
                "active dropout), or keeps state between two calls."
            )

    def _miss(self, stream: Tensor, real: Tensor, before: Tensor) -> float:
        """The largest miss of a token, in eps of the coarsest type."""
        size = torch.promote_types(real.dtype, torch.float32)
        with exactly():
            apart = torch.linalg.vector_norm(stream.to(size) - real.to(size), dim=-1)
            scale = torch.linalg.vector_norm(real.to(size), dim=-1)
            if before.shape == real.shape:
                scale = torch.maximum(scale, torch.linalg.vector_norm(before.to(size), dim=-1))
            share = torch.where(apart == 0, apart, apart / scale)
        return float(share.max()) / torch.finfo(self._coarsest).eps

    def _where(self, start: int, end: int) -> str:
        if end == start + 1:
            block = self.calls[start].block
            return f"Layer {block.layer} ('{block.module}')"
        return f"The stretch from site {start} to site {end}"

    # --- shapes and types -------------------------------------------------------------------

    def _by_example(self, raw: Tensor) -> Tensor:
        """[example, token, width], lanes side by side; a stream without examples gets one."""
        if raw.ndim == 2:
            return raw.unsqueeze(0)
        if self.stack.token_axis == 0:
            raw = raw.transpose(0, 1)
        return raw.flatten(2)

    def _in_model_order(self, x: Tensor, shape: torch.Size) -> Tensor:
        """The stream back in the shape and order that the model uses."""
        if len(shape) == 2 or self.stack.token_axis != 0:
            return x.reshape(shape)
        return x.reshape(shape[1], shape[0], *shape[2:]).transpose(0, 1)

    def typed(self, tensor: Tensor) -> Tensor:
        """The tensor in the type of the products: float32 where it is in half precision."""
        return tensor.float() if tensor.dtype in _HALF else tensor

    @contextmanager
    def _upcast(self, module: nn.Module) -> Iterator[None]:
        """Put float32 copies in the place of all half-precision weights inside the `with` block."""
        if self._coarsest not in _HALF:
            yield
            return
        copies: dict[int, Any] = {}
        replaced: list[tuple[dict[str, Any], str, Any]] = []
        try:
            for inner in module.modules():
                for table in (inner._parameters, inner._buffers):
                    for name, tensor in table.items():
                        if tensor is None or tensor.dtype not in _HALF:
                            continue
                        if id(tensor) not in copies:
                            copied = tensor.detach().float()
                            copies[id(tensor)] = (
                                nn.Parameter(copied, requires_grad=False)
                                if isinstance(tensor, nn.Parameter)
                                else copied
                            )
                        replaced.append((table, name, tensor))
            for table, name, tensor in replaced:
                table[name] = copies[id(tensor)]
            yield
        finally:
            for table, name, tensor in replaced:
                table[name] = tensor

    @contextmanager
    def _hooked(
        self,
        entries: Mapping[str, Callable[..., Any]],
        exits: Mapping[str, Callable[..., Any]] | list[tuple[str, Callable[..., Any]]],
    ) -> Iterator[None]:
        handles: list[Any] = []
        pairs = exits.items() if isinstance(exits, Mapping) else exits
        try:
            for path, hook in entries.items():
                handles.append(
                    self._modules[path].register_forward_pre_hook(hook, with_kwargs=True)
                )
            for path, hook in pairs:
                handles.append(self._modules[path].register_forward_hook(hook))
            yield
        finally:
            for handle in handles:
                handle.remove()


def _turn(stack: Stack, index: int, where: Callable[[Block], str]) -> int:
    """How often the module of a block was called before for other layers (ALBERT)."""
    path = where(stack.blocks[index])
    return sum(where(block) == path for block in stack.blocks[:index])
