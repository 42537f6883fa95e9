"""Small random networks in float64, their blocks as functions, and dense Jacobians of these."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from leadline.anatomy.stretch.stretch import Stretches
from leadline.experiments.gradient_flow.starts import Writes, plain_attention, seen_writes
from leadline.instruments.passes.measurement import anatomy_of
from leadline.instruments.passes.running import call
from leadline.models.inputs import Inputs, random_tokens
from leadline.numerics.linear.linear_maps import dense
from leadline.numerics.linear.linearised import Linearised
from leadline.parts import Recipe, Transformer

Matrix = NDArray[np.float64]

__all__ = ["Writes", "built", "emptied", "matrix_of", "stretches_of", "tokens_of", "writes_of"]


def built(fields: Mapping[str, Any], *, seed: int) -> Transformer:
    """A random network of these parts; Xavier's init unless another is named."""
    recipe = Recipe.from_json({"vocabulary": 64, "context": 32, "init": "xavier", **fields})
    return Transformer(recipe, seed=seed).double().eval()


def tokens_of(model: Transformer, *, length: int, seed: int) -> Inputs:
    """One example of random tokens."""
    return random_tokens(model, examples=1, length=length, seed=seed)


def emptied(model: Transformer) -> Transformer:
    """The same network with every branch made zero: all weights of the branches become 0."""
    with torch.no_grad():
        for sublayer in model.sublayers():
            for parameter in sublayer.branch.parameters():
                parameter.zero_()
    return model


def writes_of(model: Transformer, batch: Inputs) -> Writes:
    """The stream before every write and after the last, and every update."""
    with torch.no_grad(), plain_attention(), seen_writes(model) as seen:
        model.stream(batch.main)
    return seen


def stretches_of(model: Transformer, batch: Inputs) -> Stretches:
    """The blocks as functions of the stream."""
    (stack,) = anatomy_of(model, batch).stacks
    return Stretches(model, stack, lambda: call(model, batch))


def matrix_of(f: Callable[[Tensor], Tensor], x: Tensor) -> Matrix:
    """The Jacobian [N, N] of a function of one example's stream, by autograd, row by row."""
    return dense(Linearised(f, x))[0].double().numpy()
