"""Turn anything that a user may hand to a model into Inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from leadline.anatomy import check_module, configured_model
from leadline.anatomy.tensors import check_dense
from leadline.errors import InputError, shown, words_of
from leadline.models.inputs.batch import Inputs, check_ids, check_length, preview_of_ids
from leadline.models.inputs.model_facts import (
    context_limit,
    device_of,
    forward_names,
    is_pair,
    main_name,
    text_configuration,
    vocabulary_size,
)
from leadline.models.inputs.text import inputs_from_rows, text_inputs

__all__ = ["as_inputs"]


def as_inputs(
    value: Any, model: nn.Module, *, tokenizer: Any = None, truncate: bool = False
) -> Inputs:
    """Make Inputs of a tensor, a dictionary, a tuple, texts, rows of ids, or Inputs.

    A tuple is read as the positional arguments of `forward`. In a dictionary `attention_mask`
    tells the real tokens, and `labels` are kept for the loss and not handed to the model.
    """
    check_module(model)
    if isinstance(value, Inputs):
        return _checked(value, model).to(device_of(model))
    if isinstance(value, str):
        return text_inputs(value, tokenizer, model, truncate=truncate)
    if isinstance(value, Tensor):
        return _from_tensors({main_name(model): value}, model)
    if isinstance(value, Mapping) or hasattr(value, "keys"):
        return _from_tensors({str(name): value[name] for name in value}, model)
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        return text_inputs(value, tokenizer, model, truncate=truncate)
    if isinstance(value, list) and value and all(isinstance(item, list) for item in value):
        return inputs_from_rows(value, model, kind="tensor", truncate=truncate)
    if isinstance(value, tuple) and value:
        names = forward_names(model)
        if len(value) > len(names):
            raise InputError(
                f"{len(value)} tensors were given and forward takes {len(names)} "
                f"({', '.join(names)})."
            )
        return _from_tensors(dict(zip(names, value, strict=False)), model)
    if isinstance(value, (list, tuple)) and not value:
        raise InputError(
            "The input is empty; give at least one text (--text) or one row of token ids "
            "(--tokens-file).",
        )
    raise InputError(
        f"The inputs are {shown(value)}, which cannot be fed to the model; give a tensor, a "
        "dictionary of tensors, texts, or what leadline.random_tokens returns (--text, --tokens-file and "
        "--random 4x128 on the command line)."
    )


def _from_tensors(values: Mapping[str, Any], model: nn.Module) -> Inputs:
    tensors = {name: _tensor(name, value) for name, value in values.items() if value is not None}
    labels = tensors.pop("labels", None)
    if not tensors:
        raise InputError("There is no tensor to feed to the model.")
    tensors = _with_decoder_ids(tensors, labels, model)
    ids = tensors.get("input_ids", tensors.get(main_name(model)))
    for name in _ID_NAMES & set(tensors):
        _check_type(tensors[name], name)
    if ids is not None and _looks_like_ids(ids, model):
        _check_type(ids, main_name(model))
    if ids is not None and not ids.is_floating_point() and ids.ndim < 2:
        raise InputError(
            f"Token ids of shape {list(ids.shape)} were given; the model takes [example, token]: "
            "add an axis with ids.unsqueeze(0)."
        )
    if ids is not None and _is_stacked(ids, model):
        raise InputError(
            f"Token ids of shape {list(ids.shape)} were given; the model takes [example, token]: "
            "take an axis out with ids.flatten(0, 1)."
        )
    mask = _mask(tensors, "attention_mask", ids)
    decoder_mask = _mask(tensors, "decoder_attention_mask", tensors.get("decoder_input_ids"))
    preview = ""
    if ids is not None and not ids.is_floating_point() and ids.ndim == 2:
        _check_tokens(ids, model)
        preview = preview_of_ids(ids)
    inputs = Inputs(
        tensors,
        mask=mask,
        kind="tensor",
        preview=preview,
        labels=labels,
        targets=_targets_of(tensors, ids),
        decoder_mask=decoder_mask,
    )
    return inputs.to(device_of(model))


def _is_stacked(ids: Tensor, model: nn.Module) -> bool:
    """Whether ids have an axis too many; models of sound take several ids at every place."""
    config = text_configuration(model)
    # Of models that are not of transformers nobody knows how many axes their ids have.
    if ids.ndim <= 2 or ids.is_floating_point() or not hasattr(config, "model_type"):
        return False
    return not any("codebook" in name or name == "num_channels" for name in vars(config))


def _targets_of(tensors: Mapping[str, Tensor], ids: Tensor | None) -> Tensor | None:
    """The ids that follow, where they are given as nanoGPT takes them: shifted already."""
    targets = tensors.get("targets", tensors.get("target"))
    if targets is None or ids is None or targets.shape != ids.shape or targets.is_floating_point():
        return None
    return targets


def _with_decoder_ids(
    tensors: dict[str, Tensor], labels: Tensor | None, model: nn.Module
) -> dict[str, Tensor]:
    """What the decoder reads, which transformers makes of the labels where it is not given."""
    shift = getattr(configured_model(model), "prepare_decoder_input_ids_from_labels", None)
    if labels is None or not is_pair(model) or "decoder_input_ids" in tensors or shift is None:
        return tensors
    if labels.ndim != 2:
        raise InputError(
            f"The labels have the shape {list(labels.shape)}; they must be [example, token]."
        )
    if not labels.is_floating_point():
        labels = labels.long().masked_fill(labels < 0, -100)  # the one code that transformers knows
    try:
        return {**tensors, "decoder_input_ids": shift(labels=labels)}
    except (ValueError, TypeError) as error:  # the configuration names no id to begin with
        raise InputError(
            f"What the decoder reads cannot be made of the labels: {words_of(error)} Set "
            "decoder_start_token_id and pad_token_id in the configuration, or give "
            "'decoder_input_ids' beside the labels."
        ) from error


def _check_tokens(ids: Tensor, model: nn.Module) -> None:
    """Refuse ids that the model has no row or no position for; anything but ids passes."""
    if ids.is_floating_point() or ids.ndim != 2:
        return
    if ids.numel() == 0:
        raise InputError(
            "The input has no tokens; give at least one, or random ones "
            "(leadline.random_tokens, --random 4x128)."
        )
    vocabulary = vocabulary_size(model)
    # The whole-tensor test first: rows are walked only to say where the culprit stands.
    if int(ids.min()) < 0 or (vocabulary is not None and int(ids.max()) >= vocabulary):
        check_ids(ids.tolist(), vocabulary)
    check_length(ids.shape[1], context_limit(model), what="The longest example")


def _tensor(name: str, value: Any) -> Tensor:
    try:
        tensor = torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"{name!r} is {shown(value)}, which cannot become a tensor; "
            "ask the tokenizer for return_tensors='pt' and padding=True."
        ) from error
    check_dense(tensor, f"The input {name!r}")
    return tensor


def _checked(inputs: Inputs, model: nn.Module) -> Inputs:
    """Check Inputs that the caller put together by hand."""
    tensors: Any = inputs.tensors
    if not isinstance(tensors, Mapping) or not tensors:
        raise InputError("These Inputs hold no tensors; give at least one.")
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            raise InputError(f"The input {name!r} is {shown(tensor)}; Inputs hold tensors.")
        check_dense(tensor, f"The input {name!r}")
    for name in _ID_NAMES & set(tensors):
        _check_type(tensors[name], name)
    _check_tokens(inputs.main, model)
    return inputs


_ID_NAMES = {"input_ids", "decoder_input_ids"}


def _check_type(ids: Tensor, name: str) -> None:
    """Refuse ids of a type that no embedding takes; numbers with a third axis are a stream."""
    if ids.is_floating_point() and ids.ndim > 2:
        return
    if ids.dtype not in (torch.int64, torch.int32):
        raise InputError(
            f"The token ids {name!r} are {str(ids.dtype).removeprefix('torch.')}; ids are whole "
            "numbers, such as those of ids.long()."
        )


def _looks_like_ids(tensor: Tensor, model: nn.Module) -> bool:
    """Whether a tensor of another type stands where a model that is no transformers model takes ids.

    A model with an embedding may also take the stream itself, or a waveform: those hold fractions.
    """
    inner = configured_model(model)
    if tensor.ndim != 2 or vocabulary_size(model) is None or hasattr(inner, "main_input_name"):
        return False
    return not tensor.is_floating_point() or bool((tensor == tensor.round()).all())


def _mask(tensors: Mapping[str, Tensor], name: str, ids: Tensor | None) -> Tensor | None:
    mask = tensors.get(name)
    if mask is None or mask.ndim != 2:
        return None
    is_tokens = ids is not None and ids.ndim == 2 and not ids.is_floating_point()
    if ids is not None and is_tokens and mask.shape != ids.shape:
        raise InputError(
            f"{name} has the shape {list(mask.shape)} and the token ids {list(ids.shape)}; "
            "both must be [example, token]."
        )
    real = mask > 0
    if not bool(real.any(dim=1).all()):
        raise InputError(f"In {name} an example has no real token; leave that example out.")
    return None if bool(real.all()) else real
