"""Check the inputs of `collapse` and `collapse_weights`; every refusal says what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from leadline.anatomy.tensors import check_dense
from leadline.errors import InputError, check_count
from leadline.models.inputs import Inputs
from leadline.parts import Transformer
from leadline.parts.model_inputs import check_inputs

__all__ = ["check_stream", "checked_layers", "entering_streams", "streams_of"]

Tensor = torch.Tensor
_WEIGHTS = ("W_Q", "W_K", "W_V", "W_O")
_BIASES = ("b_Q", "b_K", "b_V", "b_O")


def _tensor(stream: Any) -> Tensor:
    try:
        tensor = torch.as_tensor(stream).detach()
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"The stream is a {type(stream).__name__}; give a tensor or an array [token, width]."
        ) from error
    check_dense(tensor, "The stream")
    if tensor.dtype == torch.bool:
        raise InputError("The stream holds bools; give floating-point numbers or token ids.")
    return tensor


def streams_of(stream: Any) -> list[Tensor]:
    """One [token, width] in float64 per example."""
    tensor = _tensor(stream)
    if tensor.ndim not in (2, 3) or 0 in tensor.shape:
        raise InputError(
            f"The stream is {list(tensor.shape)}; give [token, width] or [example, token, width]."
        )
    if not tensor.is_floating_point():
        raise InputError(f"The stream holds {tensor.dtype}; give floating-point numbers.")
    return list(tensor.double().cpu()) if tensor.ndim == 3 else [tensor.double().cpu()]


def check_stream(stream: Tensor) -> None:
    """Refuse tokens that have no residual."""
    if stream.shape[0] < 2:
        raise InputError(
            "One token has no residual: there is nothing for it to differ from; give two or more."
        )
    if not bool(torch.isfinite(stream).all()):
        raise InputError("The stream holds values that are not finite.")
    if bool((stream == stream[:1]).all()):
        raise InputError(
            "All tokens are equal: the residual is zero from the start and stays so; give tokens "
            "that differ."
        )


def entering_streams(model: Transformer, stream: Any) -> list[Tensor]:
    """What enters the first layer, one [token, width] per example."""
    if isinstance(stream, Inputs):
        if stream.mask is not None and not bool(stream.mask.bool().all()):
            raise InputError("Padded examples cannot be followed; give them one at a time.")
        stream = stream.main
    tensor = _tensor(stream)
    if not tensor.is_floating_point():
        if not model.embedding.takes_ids:
            raise InputError(
                "The stream holds whole numbers, but the model has no embedding; give a stream of "
                f"floating-point numbers [token, {model.recipe.width}]."
            )
        ids = tensor if tensor.ndim == 2 else tensor.unsqueeze(0)
        check_inputs(model, ids, None)
        limit = model.context_limit
        if limit is not None and ids.shape[1] > limit:
            raise InputError(
                f"The model has positions for {limit} tokens and was given {ids.shape[1]}; shorten "
                "the input."
            )
        rows = model.embedding(ids, torch.arange(ids.shape[1]), None)
        return list(rows.double())
    streams = streams_of(tensor)
    width = model.recipe.width
    if streams[0].shape[1] != width:
        raise InputError(
            f"The stream has {streams[0].shape[1]} features and the model {width}; give "
            f"[token, {width}]."
        )
    if model.embedding.takes_ids:
        return streams
    at = torch.arange(streams[0].shape[0])
    return [model.embedding(one.unsqueeze(0), at, None)[0].double() for one in streams]


def checked_layers(
    layers: Sequence[Mapping[str, Any]], heads: int, *, width: int
) -> list[dict[str, Tensor]]:
    """Bare matrices in float64, refused where they do not fit each other or the stream."""
    heads = check_count(heads, "heads")
    if isinstance(layers, Mapping) or not all(isinstance(one, Mapping) for one in layers):
        raise InputError(
            f"layers is a list of mappings, one per layer, with {', '.join(_WEIGHTS)} in each."
        )
    ready = [_checked_layer(layer, number, heads) for number, layer in enumerate(layers, 1)]
    _check_widths(ready, width)
    return ready


def _checked_layer(layer: Mapping[str, Any], number: int, heads: int) -> dict[str, Tensor]:
    unknown = sorted(set(layer) - {*_WEIGHTS, *_BIASES})
    missing = [name for name in _WEIGHTS if layer.get(name) is None]
    if unknown or missing:
        what = f"lacks {', '.join(missing)}" if missing else f"has {', '.join(unknown)}"
        raise InputError(
            f"Layer {number} {what}; a layer has {', '.join(_WEIGHTS)} and, where there are "
            f"biases, {', '.join(_BIASES)}."
        )
    tensors = {n: torch.as_tensor(v).detach().double() for n, v in layer.items() if v is not None}
    for name, value in tensors.items():
        dimensions = 2 if name.startswith("W") else 1
        if value.ndim != dimensions:
            kind = "a matrix" if dimensions == 2 else "a vector"
            raise InputError(f"{name} of layer {number} is {list(value.shape)} and must be {kind}.")
        if not bool(torch.isfinite(value).all()):
            raise InputError(
                f"{name} of layer {number} holds values that are not finite; give intact weights."
            )
        if name in ("W_Q", "W_K", "W_V") and value.shape[1] % heads:
            raise InputError(
                f"{name} of layer {number} has {value.shape[1]} columns, which {heads} heads "
                "cannot share; give a number of heads that divides them."
            )
    return tensors


def _check_widths(layers: Sequence[dict[str, Tensor]], width: int) -> None:
    """Refuse matrices that do not fit each other or the stream, with the layer's number."""

    def refuse(number: int, text: str) -> None:
        raise InputError(f"Layer {number}: {text}.")

    for number, layer in enumerate(layers, 1):
        for name in ("W_Q", "W_K", "W_V"):
            if layer[name].shape[0] != width:
                refuse(number, f"{name} has {layer[name].shape[0]} rows and the stream {width}")
        if layer["W_Q"].shape != layer["W_K"].shape:
            refuse(number, "W_Q and W_K differ in shape")
        if layer["W_O"].shape[0] != layer["W_V"].shape[1]:
            refuse(
                number,
                f"W_O has {layer['W_O'].shape[0]} rows and W_V {layer['W_V'].shape[1]} columns; "
                "the two must be equal",
            )
        for name in _BIASES:
            columns = layer[f"W_{name[-1]}"].shape[1]
            if name in layer and len(layer[name]) != columns:
                refuse(number, f"{name} has {len(layer[name])} numbers and needs {columns}")
        width = layer["W_O"].shape[1]
