"""paths(model, inputs) -> Record: one forward pass taken apart by path length, as a record."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from leadline.anatomy import Anatomy, Declaration
from leadline.errors import Progress
from leadline.instruments.passes.provenance import versions
from leadline.instruments.paths.measure import measured_paths
from leadline.instruments.paths.rows import paths_record
from leadline.models.loading import LoadedModel
from leadline.record import Record

__all__ = ["paths"]


def paths(
    model: nn.Module | LoadedModel,
    inputs: Any = None,
    *,
    logits: bool = True,
    samples: int = 0,
    seed: int = 0,
    loss: str | Callable[..., torch.Tensor] = "auto",
    anatomy: Anatomy | Declaration | None = None,
    families: bool = True,
    name: str | None = None,
    progress: Progress | None = None,
) -> Record:
    """Take one forward pass apart by the number of attention hops: shares, counts, losses.

    The record has rows over hops, and `record.paths` is the result as a whole. It decomposes this
    forward pass, and not the model into independent functions: patterns, statistics and gates are
    frozen as they were and depend on the whole input. The frozen gate of GELU or SiLU is a secant,
    f(x)/x, not the slope.

    `model`, `inputs`, `loss`, `anatomy` and `families` are those of `measure`. `logits=False`
    stops at the last layer. `samples` draws so many paths of every length at random, as Dong,
    Cordonnier and Loukas do (2021, arXiv 2103.03404), and sets their residual and the error of
    their estimate beside the exact answer. Where a model is not affine when frozen (a tanh in an
    MLP or instead of a norm, several lanes, recurrences, cross-attention) the error names the
    operation and the module.
    """
    result, proved, facts_of_model = measured_paths(
        model,
        inputs,
        logits=logits,
        samples=samples,
        seed=seed,
        loss=loss,
        anatomy=anatomy,
        families=families,
        name=name,
        progress=progress,
    )
    stack = proved.stacks[0]
    facts = {
        "model": facts_of_model,
        "anatomy": proved.to_json(),
        "versions": versions(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }
    return paths_record(result, stack=stack.name, depth=stack.depth, facts=facts)
