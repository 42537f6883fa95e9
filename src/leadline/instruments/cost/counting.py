"""Count what a pass of any model has to do, without running it: on fake tensors, that have no numbers.

Every operation that reaches torch's dispatcher is counted with its flops and bytes (`operations`),
forward and backward, and every storage from its making to its end, so that the highest sum is the
memory of the pass beside its weights. Nothing is known of families or formulas: the model's own
code runs. What it asks of a number (`.item()`) is answered by zero or no; a model whose shapes hang on its
numbers, such as experts that take as many tokens as chose them, is refused with the operation's name.
"""

from __future__ import annotations

import logging
import math
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import torch
from torch import nn
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensor, FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from leadline.errors import ProbeError, words_of
from leadline.instruments.cost.operations import operation_of
from leadline.instruments.cost.work import NO_WORK, Operation, Workload

__all__ = ["Gradients", "PassCount", "StackCount", "count_pass", "rows_of_blocks"]

Tensor = torch.Tensor
Gradients = Literal["all", "blocks", "stream", "none"]
"""Of which parameters gradients are computed; "stream": of what enters the first block alone."""


@dataclass
class StackCount:
    """What the blocks of one row were seen to do."""

    name: str
    paths: tuple[str, ...]
    examples: int = 0
    tokens: int = 0
    width: int = 0
    writes: int = 2
    attentions: int = 0
    heads: int = 0
    head_width: int = 0
    keys: int = 0
    inner: int = 0
    work: Workload = NO_WORK
    """Forward, of all its blocks together."""


@dataclass(frozen=True)
class PassCount:
    """A forward pass and, with gradients, the backward pass: work, and bytes beside the weights."""

    forward: Workload
    backward: Workload
    memory: int
    held: int
    """Bytes that stand between the two passes: the graph."""
    stacks: tuple[StackCount, ...]
    output: int = 0
    """Numbers in the first tensor of what the model returns."""


class _Counting(TorchDispatchMode):
    """Counts operations into `phase`, and the bytes of all storages that are alive."""

    def __init__(self, known: Iterator[Tensor]) -> None:
        super().__init__()
        self.phases: dict[str, Counter[Operation]] = {"forward": Counter(), "backward": Counter()}
        self.phase = "forward"
        self.alive = 0
        self.highest = 0
        self.listen: Callable[[str, tuple[Any, ...], Any, Operation | None], None] | None = None
        self.judging = False
        """What a question about numbers is answered: in the model "is anything wrong?", no; in the
        loss "is there anything to predict?", yes."""
        self.ends: dict[str, Tensor] = {}
        """What left the last block of every stack so far."""
        self._sizes = {_key(tensor): 0 for tensor in known}

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        name = str(func).split(".")[1]
        try:
            output = func(*args, **(kwargs or {}))
        except DataDependentOutputException:
            if name != "_local_scalar_dense":
                raise
            kind = args[0].dtype
            return self.judging if kind == torch.bool else 0.0 if kind.is_floating_point else 0
        if str(func).startswith("prim."):
            return output
        operation = operation_of(name, args, output)
        if operation is not None:
            self.phases[self.phase][operation] += 1
        for tensor in output if isinstance(output, (tuple, list)) else (output,):
            if isinstance(tensor, Tensor):
                self._meet(tensor)
        if self.listen is not None:
            self.listen(name, args, output, operation)
        return output

    def _meet(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._sizes:
            return
        size = storage.nbytes()
        self._sizes[key] = size
        self.alive += size
        self.highest = max(self.highest, self.alive)
        weakref.finalize(storage, self._forget, key)

    def _forget(self, key: int) -> None:
        self.alive -= self._sizes.pop(key, 0)


def _key(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def count_pass(
    module: nn.Module,
    run: Callable[[nn.Module, Mapping[str, Tensor]], Any],
    tensors: Mapping[str, Tensor],
    *,
    loss: Callable[[Any], Tensor] | None = None,
    gradients: Gradients = "blocks",
    plain: bool = False,
    rows: Mapping[str, tuple[str, ...]] | None = None,
) -> PassCount:
    """Count a forward pass of `module` and, unless `gradients` is "none", the backward pass.

    `run(module, tensors)` makes the call; `loss` makes a number of the output, by default its sum.
    `plain` counts it under the plain attention kernel. `rows` names the blocks of every stack, where
    they are known. ProbeError says why a model cannot be counted.
    """
    # Blocks alone would not do: where there is no row of them, all of it is one part.
    rows = rows_of_blocks(module) if rows is None else rows
    blocks = {path for row in rows.values() for path in row}
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    substitutes = _substitutes(module, fake, blocks, gradients)
    known = list(substitutes.values())
    inputs = {name: _fake(fake, tensor) for name, tensor in tensors.items()}
    counting = _Counting(iter([*known, *inputs.values()]))
    shapes = {name: StackCount(name, paths) for name, paths in rows.items()}
    freed = [p for p in known if p.requires_grad and p.is_leaf]
    with ExitStack() as stack:
        stack.enter_context(_quiet())
        stack.enter_context(sdpa_kernel(SDPBackend.MATH) if plain else nullcontext())
        stack.enter_context(torch.set_grad_enabled(gradients != "none"))
        stack.enter_context(_observed(module, shapes, counting, from_stream=gradients == "stream"))
        for parameter in freed:
            handle = parameter.register_post_accumulate_grad_hook(_let_go)
            stack.callback(handle.remove)
        try:
            with fake, counting:
                output = _called(module, substitutes, run, inputs)
                returned = next(_streams(output), None)
                output_numbers = 0 if returned is None else returned.numel()
                del returned
                if gradients == "stream":
                    value = sum((end.sum() for end in counting.ends.values()), torch.zeros(()))
                else:
                    counting.judging = True
                    value = _sum_of(output) if loss is None else loss(output)
                del output
                counting.ends.clear()
                held = counting.alive
                if gradients != "none" and value.requires_grad:
                    counting.phase = "backward"
                    value.backward()
        except ProbeError:
            raise
        except Exception as error:
            raise ProbeError(
                f"What {type(module).__name__} does cannot be counted without running it: "
                f"{words_of(error, first_line=True).rstrip('.')}."
            ) from error
    forward, backward = (Workload(dict(counting.phases[one])) for one in ("forward", "backward"))
    seen = tuple(shape for shape in shapes.values() if shape.tokens)
    return PassCount(forward, backward, counting.highest, held, seen, output_numbers)


def rows_of_blocks(module: nn.Module) -> dict[str, tuple[str, ...]]:
    """The outermost rows of modules of one class in containers, two or more, with modules inside."""
    rows: dict[str, tuple[str, ...]] = {}
    for name, part in module.named_modules():
        if not isinstance(part, (nn.ModuleList, nn.Sequential)):
            continue
        if any(name.startswith(f"{path}.") for row in rows.values() for path in row):
            continue
        children = dict(part.named_children())
        kinds = {type(child) for child in children.values()}
        if (
            len(children) < 2
            or len(kinds) > 1
            or next(next(iter(children.values())).children(), None) is None
        ):
            continue
        rows[name] = tuple(f"{name}.{child}" if name else child for child in children)
    return rows


def _called(
    module: nn.Module,
    substitutes: Mapping[str, Tensor],
    run: Callable[[nn.Module, Mapping[str, Tensor]], Any],
    inputs: Mapping[str, Tensor],
) -> Any:
    """The call, with every parameter and buffer exchanged for one without numbers."""
    from torch.nn.utils import stateless

    with stateless._reparametrize_module(module, dict(substitutes), tie_weights=True):
        return run(module, inputs)


def _substitutes(
    module: nn.Module, fake: FakeTensorMode, blocks: set[str], gradients: Gradients
) -> dict[str, Tensor]:
    substitutes: dict[str, Tensor] = {}
    known: dict[int, Tensor] = {}
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        one = known.get(id(tensor))
        if one is None:
            one = known[id(tensor)] = _fake(fake, tensor)
            inside = any(name.startswith(f"{path}.") for path in _ancestors(name) & blocks)
            wanted = gradients == "all" or (gradients == "blocks" and inside)
            if isinstance(tensor, nn.Parameter) and tensor.is_floating_point() and wanted:
                one.requires_grad_()
        substitutes[name] = one
    return substitutes


def _ancestors(name: str) -> set[str]:
    steps = name.split(".")
    return {".".join(steps[:count]) for count in range(1, len(steps))}


def _fake(fake: FakeTensorMode, tensor: Tensor) -> Tensor:
    device = torch.device("cpu") if tensor.device.type == "meta" else tensor.device
    empty = torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")
    return cast("Tensor", FakeTensor(fake, empty, device))


def _let_go(parameter: Tensor) -> None:
    parameter.grad = None


@contextmanager
def _observed(
    module: nn.Module, shapes: Mapping[str, StackCount], counting: _Counting, *, from_stream: bool
) -> Iterator[None]:
    """Note which stack works, what its stream and its attention look like; cut what enters it."""
    now: list[StackCount] = []
    works: dict[str, Counter[Operation]] = {name: Counter() for name in shapes}
    calls: Counter[str] = Counter()
    handles: list[Any] = []

    def listen(name: str, args: tuple[Any, ...], output: Any, operation: Operation | None) -> None:
        if not now or counting.phase != "forward":
            return
        shape = now[-1]
        if operation is not None:
            works[shape.name][operation] += 1
            if name in ("mm", "addmm"):
                shape.inner = max(shape.inner, output.shape[-1])
        if "scaled_dot_product" in name:
            query, key = args[:2]
            calls[shape.name] += 1
            shape.heads, shape.head_width = query.shape[1], query.shape[-1]
            shape.keys = max(shape.keys, key.shape[2])
        elif name == "_softmax" and output.ndim == 4:
            calls[shape.name] += 1
            shape.heads, shape.keys = output.shape[1], max(shape.keys, output.shape[-1])

    def enter(shape: StackCount) -> Callable[..., Any]:
        def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            now.append(shape)
            if not from_stream or calls[f"{shape.name} entered"]:
                return None
            calls[f"{shape.name} entered"] += 1
            leaf = _FirstLeaf()
            return tuple(map(leaf, args)), {name: leaf(value) for name, value in kwargs.items()}

        return hook

    def leave(shape: StackCount) -> Callable[..., None]:
        def hook(_: nn.Module, __: tuple[Any, ...], output: Any) -> None:
            now.pop()
            stream = next(iter(_streams(output)), None)
            if stream is not None:
                shape.examples = stream.shape[0] if stream.ndim > 2 else 1
                shape.tokens, shape.width = stream.shape[-2], stream.shape[-1]
                if from_stream:
                    counting.ends[shape.name] = stream

        return hook

    counting.listen = listen
    try:
        for shape in shapes.values():
            for path in shape.paths:
                block = module.get_submodule(path)
                handles.append(block.register_forward_pre_hook(enter(shape), with_kwargs=True))
                handles.append(block.register_forward_hook(leave(shape)))
        yield
    finally:
        for handle in handles:
            handle.remove()
        for shape in shapes.values():
            shape.work = Workload(dict(works[shape.name]))
            shape.attentions = calls[shape.name]
            shape.writes = 1 + max(1, round(calls[shape.name] / len(shape.paths)))
            if shape.heads and not shape.head_width:
                shape.head_width = shape.width // shape.heads


@dataclass
class _FirstLeaf:
    """Makes the first stream that it is given a leaf that wants a gradient."""

    done: list[bool] = field(default_factory=list[bool])

    def __call__(self, value: Any) -> Any:
        if self.done or not (isinstance(value, Tensor) and value.is_floating_point()):
            return value
        if value.ndim < 2:
            return value
        self.done.append(True)
        return value.detach().requires_grad_()


def _streams(output: Any) -> Iterator[Tensor]:
    if isinstance(output, Tensor):
        if output.ndim >= 2 and output.is_floating_point():
            yield output
    elif isinstance(output, Mapping):
        for value in cast("Mapping[Any, Any]", output).values():
            yield from _streams(value)
    elif isinstance(output, (tuple, list)):
        for value in cast("tuple[Any, ...]", output):
            yield from _streams(value)


def _sum_of(output: Any) -> Tensor:
    stream = next(iter(_streams(output)), None)
    if stream is None:
        raise ProbeError(
            f"The model returns a {type(output).__name__} in which no tensor was found."
        )
    return stream.float().sum() / math.sqrt(max(stream.numel(), 1))


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the log of fake tensors: what goes wrong is said in one sentence here."""
    log = logging.getLogger("torch._subclasses.fake_tensor")
    before = log.disabled
    log.disabled = True
    try:
        yield
    finally:
        log.disabled = before
