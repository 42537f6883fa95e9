"""Draw inputs from a seed: tokens, pixels, waveforms, spectrograms.

Tokens are uniform over the vocabulary without the special ids that the configuration names; all
else is standard normal, in the sizes of the configuration.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from leadline.anatomy import check_module, configured_model
from leadline.errors import InputError, check_count, check_seed
from leadline.models.inputs.batch import Inputs, preview_of_ids
from leadline.models.inputs.model_facts import (
    context_limit,
    device_of,
    forward_names,
    ids_name,
    is_pair,
    main_name,
    special_ids,
    table_rows,
    vocabulary_size,
)
from leadline.models.inputs.senses import Senses

__all__ = ["random_inputs", "random_tokens"]

_MOST_TOKENS = 2**36
_ROOM = 8
"""At least this many tokens of text stand beside those that stand for an image or a sound."""


def random_tokens(
    model: nn.Module, *, examples: int = 4, length: int = 128, seed: int = 0
) -> Inputs:
    """Random token ids; the decoder of an encoder-decoder gets as many of its own."""
    check_module(model)
    _check_sizes(examples, length)
    seed = check_seed(seed)
    vocabulary = vocabulary_size(model)
    if vocabulary is None:
        raise InputError(
            f"{type(configured_model(model)).__name__} has no vocabulary, so no tokens can be drawn for "
            "it; use random_inputs (--random 4x128 on the command line), or give tensors as inputs "
            "in Python."
        )
    limit = context_limit(model)
    if limit is not None and length > limit:
        raise InputError(
            f"{length} tokens were asked for and the model takes at most {limit}; "
            f"ask for {limit} or fewer (length={limit}, --random {examples}x{limit})."
        )
    generator = _generator(seed)
    name = ids_name(model)
    part = "decoder" if name == "decoder_input_ids" else "encoder"
    tensors = {name: _ids(model, _ceiling(model, part), (examples, length), generator)}
    if is_pair(model) and "decoder_input_ids" not in tensors:
        shape = _decoder_shape(model, examples, length)
        tensors["decoder_input_ids"] = _ids(model, _ceiling(model, "decoder"), shape, generator)
    preview = preview_of_ids(next(iter(tensors.values())))
    inputs = Inputs(tensors, kind="random tokens", seed=seed, preview=preview, made=True)
    return inputs.to(device_of(model))


def random_inputs(
    model: nn.Module, *, examples: int = 4, length: int = 128, seed: int = 0
) -> Inputs:
    """Random inputs of the kind that the model takes.

    `length` counts tokens; where the configuration fixes the size of an image or a spectrogram
    it has no effect. A model that reads images or sound among its tokens gets one per example,
    and a longer text where the tokens that stand for it would not leave room for others.
    """
    check_module(model)
    _check_sizes(examples, length)
    seed = check_seed(seed)
    inner, name, names = configured_model(model), main_name(model), forward_names(model)
    senses = Senses(inner, examples, length, seed)
    if not hasattr(inner, "config") and vocabulary_size(model) is None:
        return _stream(model, senses)
    tensors: dict[str, Tensor] = {}
    kinds: list[str] = []
    preview, labels = "", None
    if _takes_ids(model):
        text = _text(model, senses)
        tensors |= text.tensors
        kinds, preview, labels = [text.kind.removeprefix("random ")], text.preview, text.labels
    for argument in names if hasattr(inner, "config") else ():
        if argument not in tensors and _is_drawn(senses, argument, beside_text=bool(tensors)):
            tensors |= _argument(senses, argument, tensors)
            kinds += [_KINDS[argument]] if argument in _KINDS else []
    if not tensors:
        raise senses.unknown(name)
    if is_pair(model) and "decoder_input_ids" not in tensors:
        tensors["decoder_input_ids"] = _decoder_ids(model, examples, length, seed)
    kind = f"random {' and '.join(dict.fromkeys(kinds or ['features']))}"
    return Inputs(tensors, kind=kind, seed=seed, preview=preview, labels=labels, made=True)


_KINDS = {
    "pixel_values": "pixels",
    "pixel_values_videos": "pixels",
    "input_values": "samples",
    "input_features": "features",
    "bbox": "boxes",
}


def _takes_ids(model: nn.Module) -> bool:
    """Whether token ids are among the inputs: the main one, or one beside it."""
    if vocabulary_size(model) is None:
        return False
    main = main_name(model)
    ids = ("input_ids", "decoder_input_ids")
    return main in ids or "input_ids" in forward_names(model) or not _declares_main(model)


def _declares_main(model: nn.Module) -> bool:
    return hasattr(configured_model(model), "main_input_name")


def _text(model: nn.Module, senses: Senses) -> Inputs:
    """Random tokens, with the tokens that stand for an image or a sound, and these themselves."""
    stimuli = [stimulus for stimulus in (senses.image(), senses.sound()) if stimulus is not None]
    places = sum(stimulus.count for stimulus in stimuli)
    length = max(senses.length, places + _ROOM) if places else senses.length
    limit = context_limit(model)
    if limit is not None and length > max(limit, senses.length):
        stimuli, length = [], senses.length
    inputs = random_tokens(model, examples=senses.examples, length=length, seed=senses.seed)
    if not stimuli:
        return inputs
    tensors = dict(inputs.tensors)
    ids = tensors[ids_name(model)]
    kinds = torch.zeros_like(ids)
    start = 1
    for stimulus in stimuli:
        ids[:, start : start + stimulus.count] = stimulus.token
        kinds[:, start : start + stimulus.count] = 1 if "pixel_values" in stimulus.tensors else 3
        start += stimulus.count
        tensors |= stimulus.tensors
    if "mm_token_type_ids" in forward_names(model):
        tensors["mm_token_type_ids"] = kinds
    stimulus_kinds = [
        "pixels" if "pixel_values" in stimulus.tensors else "sound" for stimulus in stimuli
    ]
    kind = f"random tokens and {' and '.join(stimulus_kinds)}"
    # Nobody predicts the tokens that stand for an image; a masked loss chooses its own targets.
    predicts_all = is_pair(model) or "MaskedLM" in type(configured_model(model)).__name__
    labels = None if predicts_all else ids.masked_fill(kinds > 0, -100)
    preview = preview_of_ids(ids)
    return replace(inputs, tensors=tensors, kind=kind, preview=preview, labels=labels)


def _is_drawn(senses: Senses, argument: str, *, beside_text: bool) -> bool:
    """Whether an argument of `forward` gets something.

    The main one does, and any without which the call fails; beside a text also boxes, and images
    whose places are not among the tokens.
    """
    names = inspect.signature(senses.model.forward).parameters
    if argument == main_name(senses.model) or names[argument].default is inspect.Parameter.empty:
        return True
    if not beside_text or argument not in ("bbox", "pixel_values"):
        return False
    among_tokens = any(hasattr(senses.config, f"image_token_{end}") for end in ("id", "index"))
    # An image that is cut into tiles comes with arguments that say how. A causal language model
    # that sets its image before the text (GIT) returns logits for both, and the loss is the text's.
    tiles = "aspect_ratio_ids" in names
    before = type(senses.model).__name__.endswith("ForCausalLM")
    if argument == "bbox":
        return True
    return senses.has_image_size and not (among_tokens or tiles or before)


def _argument(senses: Senses, argument: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Random values for one argument of `forward`, with another one where they come in pairs."""
    names = inspect.signature(senses.model.forward).parameters
    if argument == "bbox":
        return {argument: senses.boxes(next(iter(tensors.values())).shape[1])}
    if argument in ("pixel_values", "hidden_states") and "grid_thw" in names:
        rows, grid = senses.patches()
        return {argument: rows, "grid_thw": grid}
    if argument == "pixel_values" and "spatial_shapes" in names:
        return senses.naflex()
    if (
        argument == "pixel_values"
        and "input_ids" in tensors
        and (refusal := senses.nameless_image())
    ):
        raise refusal
    if argument in ("pixel_values", "pixel_values_videos"):
        return {argument: senses.pixels()}
    if argument == "input_values" and not senses.takes_spectrogram:
        return {argument: senses.waveform()}
    if argument in ("input_features", "input_values"):
        frames = senses.spectrogram(argument)
        masks = {"input_features_mask": senses.mask_of_frames(frames)}
        return {argument: frames, **{name: mask for name, mask in masks.items() if name in names}}
    if argument.endswith("_input_ids"):
        # A second text, for a part of the model that has a vocabulary of its own.
        part = getattr(senses.config, f"{argument.removesuffix('_input_ids')}_config", None)
        if isinstance(size := getattr(part, "vocab_size", None), int):
            shape, generator = (senses.examples, senses.length), _generator(senses.seed)
            ids = torch.randint(size, shape, generator=generator)
            return {argument: ids.to(device_of(senses.model))}
    raise senses.unknown(argument)


def _decoder_ids(model: nn.Module, examples: int, length: int, seed: int) -> Tensor:
    limit = context_limit(model)
    shape = (examples, length if limit is None else min(length, limit))
    ids = _ids(model, _ceiling(model, "decoder"), shape, _generator(seed))
    return ids.to(device_of(model))


def _ceiling(model: nn.Module, part: Literal["encoder", "decoder"]) -> int:
    """All ids below this are in the vocabulary and in the table that they enter."""
    sizes = (vocabulary_size(model), table_rows(model, part))
    return min((size for size in sizes if size is not None), default=1)


def _decoder_shape(model: nn.Module, examples: int, length: int) -> tuple[int, ...]:
    """The shape of a decoder's ids; one of sound may take an id of every codebook at each place.

    The codebooks have an axis of their own (Dia) or stand below each other (MusicGen).
    """
    config: Any = getattr(configured_model(model), "config", None)
    channels = getattr(getattr(config, "decoder_config", None), "num_channels", None)
    if isinstance(channels, int):
        return examples, length, channels
    books = getattr(getattr(config, "decoder", None), "num_codebooks", None)
    return (examples * books, length) if isinstance(books, int) else (examples, length)


def _stream(model: nn.Module, senses: Senses) -> Inputs:
    """The stream itself, for a module that has neither a configuration nor a vocabulary."""
    inner, name = configured_model(model), main_name(model)
    width = _plain_width(inner)
    if width is None:
        raise senses.unknown(name)
    stream = senses.noise((senses.length, width))
    if _is_time_first(inner):
        stream = stream.transpose(0, 1)
    return Inputs({name: stream}, kind="random features", seed=senses.seed, made=True)


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _check_sizes(examples: int, length: int) -> None:
    check_count(examples, "examples", example="examples=4 (--random 4x128)")
    check_count(length, "length", example="length=128 (--random 4x128)")
    if examples * length > _MOST_TOKENS:
        raise InputError(
            f"{examples} examples of {length} tokens were asked for; no memory holds so many. Ask "
            "for fewer, such as examples=4, length=128 (--random 4x128)."
        )


def _ids(
    model: nn.Module, vocabulary: int, shape: tuple[int, ...], generator: torch.Generator
) -> Tensor:
    allowed = sorted(set(range(vocabulary)) - special_ids(model)) or list(range(vocabulary))
    picks = torch.randint(len(allowed), shape, generator=generator)
    return torch.tensor(allowed)[picks]


def _plain_width(model: nn.Module) -> int | None:
    """The width of a module that takes the stream itself, such as nn.TransformerEncoder."""
    for module in model.modules():
        if isinstance(module, nn.MultiheadAttention):
            return module.embed_dim
        if isinstance(module, nn.LayerNorm):
            return module.normalized_shape[-1]
    for module in model.modules():
        if isinstance(module, nn.Linear):
            return module.in_features
    return None


def _is_time_first(model: nn.Module) -> bool:
    """Whether torch's own attention expects [token, example, width]."""
    if hasattr(model, "config"):
        return False
    attentions = [m for m in model.modules() if isinstance(m, nn.MultiheadAttention)]
    stacks = isinstance(model, nn.TransformerEncoder | nn.TransformerEncoderLayer)
    return stacks and bool(attentions) and not attentions[0].batch_first
