"""Does the gradient of every block agree with what the block does?

For the input x of a block, a small random change e u and the answer D = f(x + e u) - f(x - e u):

    agreement = <v, J u> / (|D| / 2e),    v = D / |D|,    <v, J u> by autograd

It is 1 to rounding for whatever autograd sees through, and less where a `detach` or `no_grad` stands
in the block: 0 for a block without gradient, the share of the branches for a skip that was cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn

from leadline.anatomy.find.sublayer_roles import pulled_back
from leadline.anatomy.tensors import mapped
from leadline.instruments.visit.check import CouldNot, check
from leadline.instruments.visit.patient import Patient
from leadline.record import Quantity, Reading, Site

__all__ = ["slopes"]

STEP = 1e-3
"""The change over the size of the stream: rounding of float32 is then 1e-4 of the answer."""
JUMP = 0.05
"""Where the slopes ahead and behind differ by more than this, a change of a third is tried too; where
it gives another slope than the whole by more than this, the block jumps (a router chose another
expert), and another direction is tried."""
TRIES = 3

_Arguments = tuple[tuple[Any, ...], dict[str, Any]]
"""What a block is called with, by place and by name."""
_Block = Callable[[Tensor], Tensor | None]
"""A block as a function of the stream."""

AGREEMENT = Quantity(
    "gradient.agreement",
    "Gradient over slope",
    "<v, J u> / |D|",
    "<v, J u> / (|f(x + e u) - f(x - e u)| / 2e)",
    lives_on="layer",
    headline="value",
    meaning="what autograd says a block does to a small change, over what it does",
    better="one",
    ingredient_of="diagnosis",
)


@check("slopes", quantities=(AGREEMENT,), pass_cost=0.4)
def slopes(patient: Patient) -> Iterator[Reading | CouldNot]:
    """One number per block whose call can be done again."""
    types = {p.dtype for p in patient.model.parameters() if p.is_floating_point()}
    if not types <= {torch.float32, torch.float64}:
        why = "slopes by small changes need float32 weights"
        yield CouldNot((AGREEMENT.name,), why)
        return
    calls, examples = _calls(patient), patient.small.main.shape[:1]
    for stack, paths in patient.rows.items():
        for layer, path in enumerate(paths, start=1):
            if path not in calls:
                continue
            block, value = patient.model.get_submodule(path), None
            for given in (_first_example(*calls[path], examples), calls[path]):
                if given is None or value is not None:
                    continue
                # A block that raises depends on more than its arguments.
                with suppress(RuntimeError, TypeError, ValueError, AttributeError, IndexError):
                    value = _agreement(block, *given, layer)
            if value is not None:
                yield Reading(AGREEMENT.name, Site(stack, layer, None, "block"), "value", value)


def _calls(patient: Patient) -> dict[str, _Arguments]:
    """The arguments of every block's first call in a small pass."""
    blocks = {path for paths in patient.rows.values() for path in paths}
    calls: dict[str, _Arguments] = {}
    for one in patient.small_pass().calls:
        if one.path in blocks:
            calls.setdefault(one.path, (one.arguments, dict(one.named)))
    return calls


def _first_example(
    arguments: tuple[Any, ...], named: dict[str, Any], examples: Sequence[int]
) -> _Arguments | None:
    """The arguments with the first example alone; None where the stream shows no axis of examples."""
    key = _stream_key(arguments, named)
    if key is None or not examples or examples[0] < 2:
        return None
    stream: Tensor = arguments[key] if isinstance(key, int) else named[key]
    if stream.ndim != 3 or stream.shape[0] != examples[0] or stream.shape[1] == examples[0]:
        return None

    def first(tensor: Tensor) -> Tensor:
        return tensor[:1] if tensor.ndim and tensor.shape[0] == examples[0] else tensor

    return mapped(arguments, first), mapped(named, first)


def _kept(value: Any) -> Any:
    """A copy of the tensors: some blocks change their input in place."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, tuple) and type(value) is tuple:
        return tuple(_kept(one) for one in value)
    return value


def _agreement(
    block: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any], seed: int
) -> float | None:
    """The number of one block; None where its call cannot be done again as a function of a stream."""
    key = _stream_key(arguments, named)
    if key is None:
        return None
    stream: Tensor = arguments[key] if isinstance(key, int) else named[key]

    def run(value: Tensor) -> Tensor | None:
        if isinstance(key, int):
            given = (*arguments[:key], value, *arguments[key + 1 :])
            output: Any = block(*_kept(given[:key]), value, *_kept(given[key + 1 :]), **named)
        else:
            output = block(*_kept(arguments), **{**named, key: value})
        return _answer(output, stream)

    with torch.enable_grad():
        given = stream.clone().requires_grad_(True)
        # Blocks that work in place need a tensor that is no leaf.
        output = run(given * 1.0)
    if output is None:
        return None
    for attempt in range(TRIES):
        generator = torch.Generator().manual_seed(TRIES * seed + attempt)
        change = torch.randn(stream.shape, generator=generator, dtype=torch.float64)
        change = change.to(stream.device, stream.dtype) * stream.square().mean().sqrt()
        answer, bend = _slope(run, stream, change, STEP, output.detach())
        size = float(answer.norm())
        if not 0 < size < float("inf"):
            return None
        # A block that hardly bends does not jump. One that bends may be curved only.
        if float(bend.norm()) >= JUMP * size:
            smaller, _ = _slope(run, stream, change, STEP / 3, output.detach())
            if not float((answer - smaller).norm()) < JUMP * size:
                continue
        return _by_autograd(given, output, change, answer) / size
    return None


def _slope(
    run: _Block, stream: Tensor, change: Tensor, step: float, middle: Tensor
) -> tuple[Tensor, Tensor]:
    """What the block does to a small change, over its size; and how much both sides differ in it."""
    with torch.no_grad():
        ahead, behind = run(stream + step * change), run(stream - step * change)
    assert ahead is not None and behind is not None
    both = ahead.double(), behind.double()
    return (both[0] - both[1]) / (2 * step), (both[0] + both[1] - 2 * middle.double()) / (2 * step)


def _by_autograd(given: Tensor, output: Tensor, change: Tensor, answer: Tensor) -> float:
    """What autograd says of the same, in the direction of the answer; 0 where no gradient comes."""
    if not output.requires_grad:
        return 0.0
    direction = (answer / answer.norm()).to(output.dtype)
    (gradient,) = pulled_back(output, direction, [given], retain_graph=False)
    if gradient is None:
        return 0.0
    return float((gradient.double() * change.double()).sum())


def _stream_key(arguments: tuple[Any, ...], named: Mapping[str, Any]) -> int | str | None:
    """Where the stream stands among the arguments: the first float tensor of two axes or more."""
    for at, one in enumerate(arguments):
        if isinstance(one, Tensor) and one.is_floating_point() and one.ndim > 1:
            return at
    if isinstance(named.get("hidden_states"), Tensor):
        return "hidden_states"
    return next(
        (
            key
            for key, one in named.items()
            if isinstance(one, Tensor) and one.is_floating_point() and one.ndim > 2
        ),
        None,
    )


def _answer(output: Any, stream: Tensor) -> Tensor | None:
    """The stream in what a block returned: the first tensor of its shape."""
    parts = output if isinstance(output, tuple | list) else (output,)
    for one in parts:
        if isinstance(one, Tensor) and one.shape == stream.shape and one.is_floating_point():
            return one
    return None
