"""Inputs drawn from a seed: tokens, pixels, waveforms, spectrograms.

Tokens are uniform over the vocabulary without the special ids that the configuration names; all
else is standard normal, in the sizes of the configuration.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from leadline.errors import InputError
from leadline.inputs.batch import Inputs, preview_of_ids
from leadline.inputs.model_facts import (
    context_limit,
    device_of,
    float_type,
    forward_names,
    is_pair,
    main_name,
    special_ids,
    unwrapped,
    vocabulary_size,
)

__all__ = ["random_inputs", "random_tokens"]


def random_tokens(
    model: nn.Module, *, examples: int = 4, length: int = 128, seed: int = 0
) -> Inputs:
    """Random token ids; the decoder of an encoder-decoder gets as many of its own."""
    _check_sizes(examples, length)
    vocabulary = vocabulary_size(model)
    if vocabulary is None:
        raise InputError(
            f"{type(unwrapped(model)).__name__} has no vocabulary, so no tokens can be drawn for "
            "it; use random_inputs, or give tensors."
        )
    limit = context_limit(model)
    if limit is not None and length > limit:
        raise InputError(
            f"{length} tokens were asked for and the model takes at most {limit}; "
            f"ask for a length of {limit} or less."
        )
    generator = torch.Generator().manual_seed(seed)
    tensors = {main_name(model): _ids(model, vocabulary, (examples, length), generator)}
    if is_pair(model):
        tensors["decoder_input_ids"] = _ids(model, vocabulary, (examples, length), generator)
    preview = preview_of_ids(next(iter(tensors.values())))
    inputs = Inputs(tensors, kind="random tokens", seed=seed, preview=preview, made=True)
    return inputs.to(device_of(model))


def random_inputs(
    model: nn.Module, *, examples: int = 4, length: int = 128, seed: int = 0
) -> Inputs:
    """Random inputs of the kind that the model takes.

    `length` counts tokens; where the configuration fixes the size of an image or a spectrogram
    it has no effect.
    """
    _check_sizes(examples, length)
    inner, name = unwrapped(model), main_name(model)
    has_ids = name in ("input_ids", "decoder_input_ids") or not hasattr(inner, "main_input_name")
    if has_ids and vocabulary_size(model) is not None:
        inputs = random_tokens(model, examples=examples, length=length, seed=seed)
        if not hasattr(inner, "get_text_features") or "pixel_values" not in forward_names(model):
            return inputs
        # Two towers, text and image: both are needed for the forward pass.
        pixels = _noise(model, _pixel_shape(inner), examples, seed)
        both = {**inputs.tensors, "pixel_values": pixels}
        return Inputs(
            both, kind="random tokens and pixels", seed=seed, preview=inputs.preview, made=True
        )
    shape = _shape(inner, name, length)
    tensors = {name: _noise(model, shape, examples, seed)}
    if _is_time_first(inner):
        tensors = {name: tensors[name].transpose(0, 1)}
    if is_pair(model):
        limit = context_limit(model)
        ids = _ids(
            model,
            vocabulary_size(model) or 1,
            (examples, length if limit is None else min(length, limit)),
            torch.Generator().manual_seed(seed),
        )
        tensors["decoder_input_ids"] = ids.to(device_of(model))
    kinds = {"pixel_values": "random pixels", "input_values": "random samples"}
    return Inputs(tensors, kind=kinds.get(name, "random features"), seed=seed, made=True)


def _check_sizes(examples: int, length: int) -> None:
    if examples < 1 or length < 1:
        raise InputError(
            f"{examples} examples of {length} tokens were asked for; both must be at least 1."
        )


def _ids(
    model: nn.Module, vocabulary: int, shape: tuple[int, int], generator: torch.Generator
) -> Tensor:
    allowed = sorted(set(range(vocabulary)) - special_ids(model)) or list(range(vocabulary))
    picks = torch.randint(len(allowed), shape, generator=generator)
    return torch.tensor(allowed)[picks]


def _noise(model: nn.Module, shape: Sequence[int], examples: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(examples, *shape, generator=generator)
    return noise.to(device=device_of(model), dtype=float_type(model))


def _shape(model: nn.Module, name: str, length: int) -> Sequence[int]:
    """The shape of one example of a main input that is not token ids."""
    config: Any = getattr(model, "config", None)
    shape: Sequence[int] | None = None
    if config is None:
        width = _plain_width(model)
        shape = (length, width) if width else None
    elif name == "pixel_values":
        shape = _pixel_shape(model)
    elif name == "input_values" and hasattr(config, "conv_stride"):
        shape = (_samples(config, length),)
    elif name == "input_values" and hasattr(config, "num_mel_bins"):
        shape = (config.max_length, config.num_mel_bins)
    elif name == "input_features" and hasattr(config, "input_feat_per_channel"):
        shape = (length * 2**config.num_conv_layers, config.input_feat_per_channel)
    elif name == "input_features" and hasattr(config, "feature_projection_input_dim"):
        shape = (length, config.feature_projection_input_dim)
    elif name == "input_features" and hasattr(config, "num_mel_bins"):
        # Whisper's encoder halves the frames and accepts exactly this many.
        shape = (config.num_mel_bins, 2 * config.max_source_positions)
    if shape is None:
        raise InputError(
            f"{type(model).__name__} takes {name!r}, for which no random values can be drawn; "
            "give tensors."
        )
    return shape


def _pixel_shape(model: nn.Module) -> Sequence[int]:
    config: Any = getattr(model, "config", None)
    config = getattr(config, "vision_config", None) or config
    size = getattr(config, "image_size", None)
    if isinstance(size, int):
        size = (size, size)
    if not isinstance(size, list | tuple) or len(size) != 2:
        raise InputError(
            f"The configuration of {type(model).__name__} names no image size, so no pixels can "
            "be drawn; give pixel_values."
        )
    image = (getattr(config, "num_channels", 3), *size)
    frames = getattr(config, "num_frames", None)
    return (frames, *image) if isinstance(frames, int) else image


def _samples(config: Any, length: int) -> int:
    """The number of samples that a stack of convolutions turns into `length` tokens."""
    layers = list(zip(config.conv_kernel, config.conv_stride, strict=True))
    for kernel, stride in reversed(layers):
        length = (length - 1) * stride + kernel
    return length


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
    found = [m for m in model.modules() if isinstance(m, nn.MultiheadAttention)]
    stacks = isinstance(model, nn.TransformerEncoder | nn.TransformerEncoderLayer)
    return stacks and bool(found) and not found[0].batch_first
