"""Does an example keep to itself, and does a pass give the same numbers twice?

Two passes of the same shapes, the second with another second example: what the first example gives
must be the same to rounding. Only if it is not, a third pass (the first again) tells what is random
from what is mixed, and hooks find where.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from leadline.anatomy.eager import EagerMode
from leadline.instruments.passes.running import call
from leadline.instruments.visit.patient import Patient
from leadline.instruments.visit.tokens.rounding import rounding
from leadline.models.inputs import Inputs
from leadline.models.inputs.model_facts import ids_name, special_ids, vocabulary_size

__all__ = ["NotApart", "isolation", "random_calls", "shift_of"]

PACKED = ("grid_thw", "cu_seqlens", "seq_idx", "image_sizes")
"""Inputs with these names hold several examples along one axis."""


class NotApart(Exception):
    """Why examples of this model's inputs cannot be told apart."""


def isolation(patient: Patient) -> dict[str, Any]:
    """Whether passes repeat (`random`) and whether examples mix (`mixed`), and through which module."""
    first, second, token = _two(patient)
    # A pass that was kept began at the same state of the random numbers as the next one does.
    one, two = patient.output(first, again=True), patient.output(second)
    if one.ndim < 2 or one.shape[0] != 2 or one.shape != two.shape:
        raise NotApart("the output of this model has no axis of examples")
    facts: dict[str, Any] = {"random": 0.0, "mixed": 0.0}
    apart = shift_of(one[0], two[0], one)
    if apart == 0.0:
        return (
            facts
            if shift_of(one[1], two[1], one)
            else facts | _mixed_within(patient, first, second, token)
        )
    facts["random"] = shift_of(one, patient.output(first, again=True), one)
    if facts["random"]:
        facts["calls"] = random_calls(patient.model, first)
        return facts
    module, positions = _where_mixed(patient.model, first, second, token)
    if not module and one.shape == (2, 2):
        raise NotApart("the output of this model compares every example with every other")
    return facts | {"mixed": apart, "module": module, "positions": positions}


def _mixed_within(patient: Patient, first: Inputs, second: Inputs, token: int) -> dict[str, Any]:
    """What is mixed inside of a model whose output does not even follow the example that changed.

    A pooled output may read a token that sees nothing but its equals in the other examples.
    """
    module, positions = _where_mixed(patient.model, first, second, token)
    return {} if module is None else {"mixed": 1.0, "module": module, "positions": positions}


def shift_of(one: Tensor, two: Tensor, scale: Tensor) -> float:
    """The largest difference over the largest value; 0 where it is no more than rounding."""
    finite = torch.isfinite(one) & torch.isfinite(two)
    sizes = scale[torch.isfinite(scale)].abs()
    size = float(sizes.amax()) if sizes.numel() else 0.0
    if not bool(finite.any()) or size == 0.0:
        return 0.0
    apart = float((one.double() - two.double())[finite].abs().amax()) / size
    eps = torch.finfo(scale.dtype).eps
    return apart if apart > rounding(eps) else 0.0


def _two(patient: Patient) -> tuple[Inputs, Inputs, int]:
    """The first two examples (or the only one twice), and the same with one token of the second
    exchanged, or all of it where it is no row of tokens."""
    small = patient.small
    if any(word in name for name in small.tensors for word in PACKED):
        raise NotApart("the inputs hold several examples along one axis")
    name = ids_name(patient.model)
    name = name if name in small.tensors else next(iter(small.tensors))
    main = small.tensors[name]
    if main.ndim < 2:
        raise NotApart("the main input has no axis of examples")
    examples = main.shape[0]

    def pair(tensor: Tensor) -> Tensor:
        if tensor.ndim == 0 or tensor.shape[0] != examples:
            return tensor
        return tensor[:2] if examples > 1 else tensor.repeat(2, *[1] * (tensor.ndim - 1))

    first = replace(
        small,
        tensors={key: pair(value) for key, value in small.tensors.items()},
        mask=None,
        decoder_mask=None,
        labels=None,
        targets=None,
    )
    other = first.tensors[name].clone()
    token = other.shape[1] // 2
    if other.is_floating_point():
        generator = torch.Generator().manual_seed(3)
        noise = torch.randn(other.shape[1:], generator=generator).to(other)
        if other.ndim == 3:
            other[1, token] += noise[token] * other.std()
        else:
            other[1] += noise * other.std()
    else:
        token = _exchanged(patient, other)
    return first, replace(first, tensors={**first.tensors, name: other}), token


def _exchanged(patient: Patient, ids: Tensor) -> int:
    """Exchange a token in the middle of the second example, none that has a special meaning."""
    special = special_ids(patient.model)
    size = vocabulary_size(patient.model) or int(ids.max()) + 1
    middle = ids.shape[1] // 2
    order = sorted(range(ids.shape[1]), key=lambda at: abs(at - middle))
    token = next((at for at in order if int(ids[1, at]) not in special), None)
    fresh = [one for one in range(min(size, 256)) if one not in special]
    if token is None or len(fresh) < 2:
        raise NotApart("every token of the inputs has a special meaning")
    old = int(ids[1, token])
    ids[1, token] = next(one for one in reversed(fresh) if one != old)
    return token


def _where_mixed(
    model: nn.Module, first: Inputs, second: Inputs, token: int
) -> tuple[str | None, str]:
    """The first module whose output for the first example moves while nothing that entered it did.

    `positions` says which tokens of the first example move there: only that which was exchanged in
    the second (`same`), or others too (`many`).
    """
    marks: list[list[tuple[str, list[Tensor], list[Tensor]]]] = []
    for inputs in (first, second):
        seen: list[tuple[str, list[Tensor], list[Tensor]]] = []
        with torch.no_grad(), _first_examples(model, seen):
            call(model, inputs)
        marks.append(seen)
    for (path, entered, returned), (_, entered_then, returned_then) in zip(*marks, strict=False):
        if _differ(returned, returned_then) and not _differ(entered, entered_then):
            tokens = {
                at
                for one, two in zip(returned, returned_then, strict=False)
                if one.ndim > 1 and one.shape == two.shape
                for at in (one != two).flatten(1).any(1).nonzero().flatten().tolist()
            }
            return path, "same" if tokens == {token} else "many"
    return None, "many"


def _differ(one: list[Tensor], two: list[Tensor]) -> bool:
    return len(one) != len(two) or any(
        a.shape != b.shape or bool(shift_of(a, b, a)) for a, b in zip(one, two, strict=True)
    )


@contextmanager
def _first_examples(
    model: nn.Module, seen: list[tuple[str, list[Tensor], list[Tensor]]]
) -> Iterator[None]:
    """Keep what enters and leaves every module for the first example of two."""

    def slices(value: Any) -> list[Tensor]:
        if isinstance(value, Tensor):
            keep = value.is_floating_point() and value.ndim > 1
            if keep and value.shape[0] == 2:
                return [value[0].float().clone()]
            if keep and value.ndim > 2 and value.shape[1] == 2:
                return [value[:, 0].float().clone()]
            return []
        if isinstance(value, list | tuple):
            return [one for part in value for one in slices(part)]
        if isinstance(value, dict):
            return [one for part in value.values() for one in slices(part)]
        return []

    def hook(path: str) -> Callable[..., None]:
        return lambda _, args, kwargs, output: seen.append(
            (path, slices((args, kwargs)), slices(output))
        )

    handles = [
        module.register_forward_hook(hook(path), with_kwargs=True)
        for path, module in model.named_modules()
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def random_calls(model: nn.Module, inputs: Inputs) -> list[dict[str, str]]:
    """Every call that draws random numbers, with the module that made it: {"module", "call"}."""
    running: list[str] = []
    calls: dict[tuple[str, str], None] = {}

    class Watch(EagerMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if torch.Tag.nondeterministic_seeded in func.tags:
                name = str(func.overloadpacket).removeprefix("aten.")
                calls[running[-1] if running else "", name] = None
            return func(*args, **(kwargs or {}))

    def enter(path: str) -> Callable[..., None]:
        return lambda *_: running.append(path)

    def leave(*_: Any) -> None:
        running.pop()

    handles: list[Any] = []
    try:
        for path, module in model.named_modules():
            handles.append(module.register_forward_pre_hook(enter(path)))
            handles.append(module.register_forward_hook(leave, always_call=True))
        with torch.no_grad(), Watch():
            call(model, inputs)
    finally:
        for handle in handles:
            handle.remove()
    return [{"module": module, "call": name} for module, name in calls]
