"""Random inputs of models that see, hear or read boxes: what each argument of `forward` looks like.

Nothing here goes by the name of a model. The signature of `forward` says which arguments there
are, the configuration says their sizes, and the model itself is asked where neither does: how many
tokens an image or a sound becomes is the number of rows that `get_image_features` or
`get_audio_features` returns, and that many places of the text get the token that stands for it.

    pixel_values            [example, channel, height, width]; with frames or one picture per example
                            in front; or patches by row, [patch, channel * time * height * width],
                            where a grid of patches (`image_grid_thw`) says whose they are
    input_values            a waveform of as many samples as the convolutions turn into the length
    input_features          frames of a spectrogram, time first or last as the first layer reads it
    bbox                    boxes, x0 <= x1 and y0 <= y1: whole numbers or fractions of the page
    masks                   ones
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from leadline.anatomy import model_pass, untouched
from leadline.errors import InputError
from leadline.models.inputs.model_facts import (
    device_of,
    float_type,
    token_beyond,
    vocabulary_size,
    whole_number,
)

__all__ = ["Senses", "Stimulus"]

_MELS = ("num_mel_bins", "n_mels", "input_feat_per_channel", "feature_size", "input_dim")
_IMAGE_SIZES = ("image_size", "img_size", "input_size")
_FRAME_MASKS = ("input_features_mask", "feature_attention_mask", "padding_mask")
_GRID_SIDE = 2
"""Merged patches along each side of an image that is given by rows of patches."""
_SIDE_PATCHES = 8
"""Patches along each side of an image whose size the configuration leaves open."""


@dataclass(frozen=True)
class Stimulus:
    """What is seen or heard beside the text: tensors by argument, and the tokens that stand for it."""

    tensors: Mapping[str, Tensor]
    token: int
    count: int
    """How many places of every example's text get the token."""


@dataclass(frozen=True)
class Senses:
    """Draws the arguments of one model's `forward` that are not token ids."""

    model: nn.Module
    examples: int
    length: int
    seed: int

    @property
    def config(self) -> Any:
        """The configuration, or None."""
        return getattr(self.model, "config", None)

    # --- pixels ----------------------------------------------------------------------------------

    def pixels(self) -> Tensor:
        """Images of the size that the configuration names."""
        return self.noise(self.pixel_shape())

    def pixel_shape(self) -> tuple[int, ...]:
        """Channels, height and width of one image, frames before them where there are some."""
        config = self._part("vision", "image", "backbone", "encoder")
        image = (
            whole_number(config, "num_channels", "in_channels", "in_chans") or 3,
            *self._sides(),
        )
        frames = whole_number(config, "num_frames", "frames_per_clip")
        return (frames, *image) if frames else image

    @property
    def has_image_size(self) -> bool:
        """Whether the configuration says how large an image is."""
        try:
            return bool(self._sides())
        except InputError:
            return False

    def _sides(self) -> tuple[int, int]:
        for config in (self._part("vision", "image", "backbone", "encoder"), self.config):
            for name in _IMAGE_SIZES:
                size = getattr(config, name, None)
                if isinstance(size, Mapping):
                    size = list(size.values())
                if isinstance(size, int) and size > 0:
                    return size, size
                if isinstance(size, list | tuple) and len(size) >= 2:
                    return int(size[-2]), int(size[-1])
        patch = whole_number(self._part("vision", "image"), "patch_size")
        if patch is None:
            raise InputError(
                f"The configuration of {type(self.model).__name__} names no image size, so no "
                "pixels can be drawn; give pixel_values, leadline.measure(model, "
                "{'pixel_values': tensor})."
            )
        return patch * _SIDE_PATCHES, patch * _SIDE_PATCHES

    def naflex(self) -> dict[str, Tensor]:
        """Patches by example, the mask of real ones, and how many stand in each direction."""
        config = self._part("vision", "image")
        channels = whole_number(config, "num_channels") or 3
        pixels = self.noise(
            (_GRID_SIDE**2, channels * (whole_number(config, "patch_size") or 1) ** 2)
        )
        shapes = torch.full((self.examples, 2), _GRID_SIDE, device=pixels.device)
        mask = torch.ones(pixels.shape[:2], dtype=torch.long, device=pixels.device)
        return {"pixel_values": pixels, "pixel_attention_mask": mask, "spatial_shapes": shapes}

    def patches(self) -> tuple[Tensor, Tensor]:
        """Patches of all images by row, and the grid [time, height, width] of every image."""
        config = self._part("vision", "image")
        merge = whole_number(config, "spatial_merge_size", "merge_size") or 1
        side = _GRID_SIDE * merge
        channels = whole_number(config, "in_channels", "num_channels", "in_chans") or 3
        patch = whole_number(config, "patch_size") or 1
        size = channels * (whole_number(config, "temporal_patch_size") or 1) * patch**2
        grid = torch.tensor([[1, side, side]] * self.examples, device=device_of(self.model))
        return self.noise((side**2, size)).flatten(0, 1), grid

    # --- sound -----------------------------------------------------------------------------------

    def waveform(self) -> Tensor:
        """As many samples as the convolutions at the entrance turn into `length` tokens."""
        samples = self.length
        for kernel, stride in reversed(self._strides()):
            samples = (samples - 1) * stride + kernel
        channels = whole_number(self.config, "audio_channels")
        return self.noise((samples,) if channels is None else (channels, samples))

    def _strides(self) -> list[tuple[int, int]]:
        """Kernel and stride of every convolution that the waveform passes."""
        config = self.config
        if hasattr(config, "conv_kernel") and hasattr(config, "conv_stride"):
            return list(zip(config.conv_kernel, config.conv_stride, strict=True))
        chain: list[tuple[int, int]] = []
        channels = 1
        for module in self.model.modules():
            if isinstance(module, nn.Conv1d) and module.in_channels == channels:
                chain.append((module.kernel_size[0], module.stride[0]))
                channels = module.out_channels
        if not chain:
            raise self.unknown("input_values")
        return chain

    @property
    def takes_spectrogram(self) -> bool:
        """Whether `input_values` are frames of a spectrogram, not samples of a waveform."""
        return hasattr(self.config, "num_mel_bins") and not hasattr(self.config, "conv_stride")

    def spectrogram(self, name: str) -> Tensor:
        """Frames of a spectrogram, as the first layer that reads them wants them."""
        config = self._part("audio", "speech", "encoder", "acoustic")
        if name == "input_values" and hasattr(config, "max_length"):
            return self.noise((config.max_length, config.num_mel_bins))
        if hasattr(config, "input_feat_per_channel"):
            frames = self.length * 2**config.num_conv_layers
            return self.noise((frames, config.input_feat_per_channel))
        if hasattr(config, "feature_projection_input_dim"):
            return self.noise((self.length, config.feature_projection_input_dim))
        mels = whole_number(config, *_MELS)
        if mels is None:
            raise self.unknown(name)
        # Whisper's encoder halves the frames and accepts exactly this many.
        exact = whole_number(config, "max_source_positions")
        frames = 2 * exact if exact is not None else 8 * self.length
        first = next(
            (m for m in self.model.modules() if isinstance(m, nn.Conv1d | nn.Conv2d | nn.Linear)),
            None,
        )
        by_frame = not (isinstance(first, nn.Conv1d) and first.in_channels == mels)
        return self.noise((frames, mels) if by_frame else (mels, frames))

    # --- whatever else stands in a signature -----------------------------------------------------

    def mask_of_frames(self, frames: Tensor) -> Tensor:
        """Ones for every frame of a spectrogram, whichever axis counts them."""
        mels = whole_number(self._part("audio", "speech", "encoder", "acoustic"), *_MELS)
        time = frames.shape[1] if frames.shape[-1] == mels else frames.shape[-1]
        return torch.ones(self.examples, time, dtype=torch.long, device=frames.device)

    def boxes(self, tokens: int) -> Tensor:
        """Boxes of tokens on a page: whole numbers where the signature says so, else fractions."""
        generator = torch.Generator().manual_seed(self.seed)
        corners = torch.rand(self.examples, tokens, 2, 2, generator=generator).sort(dim=2).values
        boxes = corners.flatten(2)
        device = device_of(self.model)
        # A page has 1,000 places where it has a table of positions; UDOP rounds fractions itself.
        places = whole_number(self.config, "max_2d_position_embeddings")
        annotation = str(inspect.signature(self.model.forward).parameters["bbox"].annotation)
        if places is not None and "Tensor" in annotation:
            return (boxes * (min(places, 1001) - 1)).round().long().to(device)
        return boxes.to(device=device, dtype=float_type(self.model))

    def noise(self, shape: Sequence[int]) -> Tensor:
        """Standard normal numbers, one block of `shape` per example."""
        generator = torch.Generator().manual_seed(self.seed)
        noise = torch.randn(self.examples, *shape, generator=generator)
        return noise.to(device=device_of(self.model), dtype=float_type(self.model))

    # --- what stands for an image or a sound in the text -----------------------------------------

    def image(self) -> Stimulus | None:
        """An image per example and the tokens that stand for it; None where the model takes none."""
        return self._stimulus("image", "get_image_features", self._image_layouts())

    def sound(self) -> Stimulus | None:
        """A sound per example and the tokens that stand for it; None where the model takes none."""
        return self._stimulus("audio", "get_audio_features", self._sound_layouts())

    def _image_layouts(self) -> Iterator[dict[str, Tensor]]:
        """The ways in which models take pictures, the likeliest first."""
        names = inspect.signature(self.model.forward).parameters
        if "image_grid_thw" in names:
            rows, grid = self.patches()
            yield {"pixel_values": rows, "image_grid_thw": grid}
            return
        pixels = self.pixels()
        sizes = torch.tensor([self._sides()] * self.examples, device=pixels.device)
        for picture in (pixels, pixels.unsqueeze(1)):
            yield {"pixel_values": picture}
            if "image_sizes" in names:
                yield {"pixel_values": picture, "image_sizes": sizes}

    def _sound_layouts(self) -> Iterator[dict[str, Tensor]]:
        names = inspect.signature(self.model.forward).parameters
        name = next((n for n in ("input_features", "input_values") if n in names), None)
        if name is None:
            return
        by_frames = name == "input_features"
        features = self.spectrogram(name) if by_frames else self.waveform()
        masks = [mask for mask in _FRAME_MASKS if by_frames and mask in names]
        for frames in (features, features.transpose(1, 2)) if features.ndim == 3 else (features,):
            for mask in masks:
                yield {name: frames, mask: self.mask_of_frames(frames)}
            yield {name: frames}

    def _stimulus(
        self, sense: Literal["image", "audio"], method: str, layouts: Iterator[dict[str, Tensor]]
    ) -> Stimulus | None:
        """The first layout that the model turns into features, with as many tokens as features."""
        ask: Any = getattr(self.model, method, None)
        token = whole_number(self.config, f"{sense}_token_id", f"{sense}_token_index")
        # Where no embedding has a row for the token, the text goes alone; the record's coverage
        # says which parts did not run, and why.
        if token is None or not callable(ask) or token_beyond(self.model, sense) is not None:
            return None
        try:
            for tensors in layouts:
                count = self._rows_of(ask, tensors)
                if count is not None and count % self.examples == 0:
                    return Stimulus(tensors, token, count // self.examples)
        except InputError:  # the configuration does not say how large it is
            return None
        return None

    def _rows_of(self, ask: Callable[..., object], tensors: Mapping[str, Tensor]) -> int | None:
        """How many rows of features the model makes of this; None where it does not take it."""
        names = inspect.signature(ask).parameters
        try:
            with untouched(self.model), torch.no_grad(), model_pass():
                features = ask(**{name: t for name, t in tensors.items() if name in names})
        except (MemoryError, torch.OutOfMemoryError):
            raise
        except Exception:
            # The model is asked which layout it takes; the way it says no is an exception.
            return None
        rows = [t.numel() // t.shape[-1] for t in _tensors(_pooled(features)) if t.ndim]
        return sum(rows) or None

    # --- the configuration -----------------------------------------------------------------------

    def _part(self, *senses: str) -> Any:
        """The nested configuration that is named after one of the senses, else the whole one."""
        config = self.config
        for sense in senses:
            for name in getattr(config, "sub_configs", None) or ():
                nested = getattr(config, name, None)
                if sense in name and nested is not None and not isinstance(nested, Mapping):
                    return nested
        return config

    def nameless_image(self) -> InputError | None:
        """The refusal to set an image among tokens where the configuration names none for it."""
        names = ("image_token_index", "image_token_id")
        name = next((name for name in names if hasattr(self.config, name)), None)
        if name is None or getattr(self.config, name) is not None:
            return None
        size = vocabulary_size(self.model) or 1
        return InputError(
            f"The configuration of {type(self.model).__name__} names no token that stands for the "
            f"image ({name} is None), and without one its forward has no place for the image in "
            f"the text; set an id of its vocabulary of {size} tokens "
            f"(overrides={{'{name}': {size - 1}}}, --set {name}={size - 1})."
        )

    def unknown(self, name: str) -> InputError:
        """The refusal to draw values for an argument of which nothing is known."""
        return InputError(
            f"{type(self.model).__name__} takes {name!r}, for which no random values can be "
            f"drawn; give tensors, leadline.measure(model, {{'{name}': tensor}})."
        )


def _pooled(features: object) -> object:
    pooled = getattr(features, "pooler_output", None)
    return features if pooled is None else pooled


def _tensors(value: object) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)
