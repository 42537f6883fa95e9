"""`leadline.collapse` and `leadline.collapse_weights`: a model's collapsing tokens as a record."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from leadline.anatomy import unsharded
from leadline.errors import Progress, check_text
from leadline.instruments.collapse.measure import compute_collapse, compute_collapse_weights
from leadline.instruments.collapse.rows import collapse_record
from leadline.instruments.passes.provenance import model_facts, versions
from leadline.models.inputs import Inputs
from leadline.models.loading import LoadedModel
from leadline.parts import Transformer
from leadline.record import Record

if TYPE_CHECKING:
    from torch import nn

    from leadline.instruments.collapse.result import Collapse

__all__ = ["collapse", "collapse_weights"]


def collapse(
    model: nn.Module | LoadedModel,
    stream: Any,
    *,
    facts: bool = True,
    seed: int = 0,
    name: str | None = None,
    source: str = "given",
    progress: Progress | None = None,
) -> Record:
    """Follow the residual of `stream` through the layers of one of our Transformers.

    `stream` is [token, width] or [example, token, width]: what enters the first layer (of a model
    without an embedding: what the model is called with). Whole numbers, or what `random_tokens`
    and the like return, are token ids, which are embedded in the model's own precision. Weights are
    taken as they are, computed with in float64. `facts` are what bounds are made of, for
    `leadline.bounds(record)`; without them it takes about a third of the time. `seed` is that of the error estimate. The result is
    `record.collapse`: logarithms, and mantissas with exact exponents, per example and layer.
    """
    for label, text in (("name", name), ("source", source)):
        if text is not None:
            check_text(text, label)
    if isinstance(model, LoadedModel):
        name, source = name or model.name, model.source
    started = time.perf_counter()
    result = compute_collapse(model, stream, facts=facts, seed=seed, progress=progress)
    module = unsharded(model.model if isinstance(model, LoadedModel) else model)
    assert isinstance(module, Transformer)  # others were refused
    summary = stream.summary() if isinstance(stream, Inputs) else _stream_summary(stream)
    return collapse_record(
        result,
        anatomy=module.anatomy().to_json(),
        notes={"model": model_facts(module, name, source), **_notes(summary, seed, started)},
    )


def collapse_weights(
    stream: Any,
    layers: Sequence[Mapping[str, Any]],
    *,
    causal: bool = False,
    heads: int = 1,
    facts: bool = True,
    seed: int = 0,
) -> Record:
    """Follow the residual through attention layers given as matrices, without skip or norm.

    Each layer has W_Q, W_K, W_V [width, heads x head width], W_O [heads x head width, width] and
    optionally b_Q, b_K, b_V, b_O; vectors are rows, x W. Logits are scaled by
    1 / sqrt(head width). `stream` is [token, width] or [example, token, width]. The result is
    `record.collapse`; `facts` are what bounds are made of, for `leadline.bounds(record)`.
    """
    started = time.perf_counter()
    result = compute_collapse_weights(
        stream, layers, causal=causal, heads=heads, facts=facts, seed=seed
    )
    matrices = [
        torch.as_tensor(one) for layer in layers for one in layer.values() if one is not None
    ]
    width = torch.as_tensor(stream).shape[-1]
    model = {
        "name": f"attention of {heads} {'head' if heads == 1 else 'heads'}, {result.depth}x{width}",
        "class": "matrices",
        "parameters": sum(one.numel() for one in matrices),
        "dtype": "float64",
        "source": "given",
    }
    return collapse_record(
        result,
        anatomy=_bare_anatomy(result, width),
        notes={"model": model, **_notes(_stream_summary(stream), seed, started)},
    )


def _notes(summary: dict[str, Any], seed: int, started: float) -> dict[str, Any]:
    return {
        "input": summary,
        "seed": seed,
        "versions": versions(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "seconds": round(time.perf_counter() - started, 3),
    }


def _stream_summary(stream: Any) -> dict[str, Any]:
    """What the provenance says of a tensor of tokens or of ids."""
    tensor = torch.as_tensor(stream)
    is_stream = tensor.is_floating_point()
    examples = tensor.shape[0] if tensor.ndim == (3 if is_stream else 2) else 1
    length = tensor.shape[-2 if is_stream else -1]
    return {
        "kind": "stream" if is_stream else "token ids",
        "examples": examples,
        "tokens": examples * length,
        "longest": length,
    }


def _bare_anatomy(result: Collapse, width: int) -> dict[str, Any]:
    """The anatomy of layers that are attention alone and keep nothing of the stream."""
    write = {
        "sublayer": 1,
        "role": "attention",
        "module": "",
        "gain": 1.0,
        "keep": 0.0,
        "settle": None,
        "parallel": False,
        "placement": "none",
        "law": None,
    }
    block = {"placement": "none", "parallel": False, "opening": None, "sublayers": [write]}
    stack = {"width": width, "lanes": 1, "causal": result.causal, "shared": False}
    return {
        "source": "matrices",
        "depth": result.depth,
        "sublayers": result.depth,
        "stacks": {"stack": {"depth": result.depth, **stack}},
        "layers": [
            {"stack": "stack", "layer": layer, "module": "", **block}
            for layer in range(1, result.depth + 1)
        ],
        "remarks": [],
        "unusual": [],
    }
