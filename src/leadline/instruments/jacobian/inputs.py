"""Open a model for `jacobian` and `lyapunov`: choose its stack and sites, and refuse bad input."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from leadline.anatomy import Anatomy, Declaration, Stack, untouched
from leadline.anatomy.stretch.stretch import Stretches
from leadline.errors import InputError, Progress, check_progress
from leadline.instruments.passes.arguments import known_anatomy, modules_of, tokenizer_for
from leadline.instruments.passes.linear.checks import plainly
from leadline.instruments.passes.measurement import anatomy_of
from leadline.instruments.passes.not_finite import refuse_broken, refuse_broken_inputs
from leadline.instruments.passes.provenance import model_facts
from leadline.instruments.passes.running import call, few_threads
from leadline.models.inputs import Inputs
from leadline.models.inputs.for_model import batch_for
from leadline.models.loading import LoadedModel

__all__ = [
    "ReadyModel",
    "Steps",
    "array_of",
    "chosen_stack",
    "open_model",
    "sites_of",
]


class Steps:
    """Reports progress step by step; the number of steps is known from the start."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self.say = check_progress(progress)
        self.total = total
        self.finished = 0

    def next(self, what: str) -> None:
        """Report that a step begins."""
        self.say(what, self.finished, self.total)
        self.finished += 1

    def end(self) -> None:
        """Report that all steps are done."""
        self.say("done", self.total, self.total)


@dataclass(frozen=True)
class ReadyModel:
    """A model that is ready: its name, the stack, and its blocks as functions."""

    name: str
    stack: Stack
    stretches: Stretches
    remarks: tuple[str, ...]


@contextmanager
def open_model(
    model: nn.Module | LoadedModel,
    inputs: Any,
    *,
    stack: str | None,
    anatomy: Anatomy | Declaration | None,
    families: bool,
    seed: int,
    math: bool,
    check: Callable[[Stack], None],
    step: Callable[[str], None],
) -> Iterator[ReadyModel]:
    """Run the model once and lend it out untouched, as long as the context lasts.

    `check` gets the stack before the pass; `math` switches to attention with second derivatives.
    """
    original, module = modules_of(model)
    reused = known_anatomy(module, anatomy)
    batch = batch_for(module, inputs, seed, tokenizer=tokenizer_for(model, inputs))
    refuse_broken_inputs(batch)
    name = model.name if isinstance(model, LoadedModel) else None
    with (
        torch.inference_mode(False),
        torch.enable_grad(),
        plainly() as remarks,
        untouched(module),
        few_threads(module, batch),
    ):
        step("reading the anatomy")
        model_anatomy = reused or anatomy_of(
            module, batch, anatomy=anatomy, families=families, seed=seed
        )
        chosen = chosen_stack(model_anatomy, stack)
        check(chosen)
        # Only the stream is a variable: no graph is built for the weights.
        for parameter in module.parameters():
            parameter.requires_grad_(False)
        step("running the model")
        stretches = Stretches(module, chosen, lambda: call(module, batch), math=math)
        if not stretches.finite:
            refuse_broken(module, batch)
        facts = model_facts(original, name, "given")
        with stretches.running():
            yield ReadyModel(facts["name"], chosen, stretches, (*remarks, *_padding(batch)))


def chosen_stack(anatomy: Anatomy, name: str | None) -> Stack:
    """The stack of that name, or the only one."""
    names = [one.name for one in anatomy.stacks]
    if name is None:
        if len(names) > 1:
            raise InputError(
                f"This model has {len(names)} stacks ({', '.join(names)}); say which one, such as "
                f"stack={names[-1]!r}."
            )
        return anatomy.stacks[0]
    if name not in names:
        raise InputError(f"No stack is called {name!r}; this model has: {', '.join(names)}.")
    return anatomy.stack(name)


def sites_of(
    layer: int | tuple[int, int] | None, sublayer: int | None, stack: Stack
) -> tuple[int, int]:
    """The two sites between which the Jacobian is measured."""
    depth = stack.depth
    if sublayer is not None and type(layer) is not int:
        raise InputError(
            f"Sublayer {sublayer!r} was given without its layer; give both, such as "
            "layer=1, sublayer=2."
        )
    if layer is None:
        return 0, depth
    if type(layer) is int:
        if not 1 <= layer <= depth:
            raise InputError(
                f"Layer {layer} was asked for; layers of the {stack.name} count from 1 to {depth}."
            )
        writes = len(stack.blocks[layer - 1].sublayers)
        if sublayer is not None and (type(sublayer) is not int or not 1 <= sublayer <= writes):
            raise InputError(
                f"Sublayer {sublayer!r} was asked for; layer {layer} has sublayers 1 to {writes}."
            )
        return layer - 1, layer
    pair = tuple(layer) if isinstance(layer, tuple | list) else ()
    if len(pair) != 2 or any(type(site) is not int for site in pair):
        raise InputError(
            f"{layer!r} was given as the layer; give a number, or two sites such as (0, {depth})."
        )
    start, end = pair
    if not 0 <= start < end <= depth:
        raise InputError(
            f"A stretch from site {start} to site {end} was asked for; the {stack.name} has sites "
            f"0 (what enters layer 1) to {depth}, and a stretch goes forward."
        )
    return start, end


def array_of(tensor: torch.Tensor) -> np.ndarray:
    """The numbers in float64, away from torch."""
    return tensor.detach().double().cpu().numpy()


def _padding(batch: Inputs) -> list[str]:
    if batch.mask is None or bool(batch.mask.bool().all()):
        return []
    return ["Some tokens are padding; here they count as tokens of the stream like the others."]
