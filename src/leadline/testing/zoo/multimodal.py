"""Multimodal: two towers side by side, or text and image in one stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadline.testing.zoo._specimen import Specimen, describe, random_features, random_ids

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["MULTIMODAL"]

_TEXT = {
    "vocab_size": 99,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_IMAGE = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "image_size": 16,
    "patch_size": 4,
}


def _text_and_image(model: nn.Module, seed: int) -> dict[str, Tensor]:
    return {**random_ids(model, seed), "pixel_values": random_features(seed, 3, 16, 16)}


def _text_and_regions(model: nn.Module, seed: int) -> dict[str, Tensor]:
    return {**random_ids(model, seed), "visual_embeds": random_features(seed, 4, 24)}


def _multimodal(name: str, traits: str, **settings: object) -> Specimen:
    return describe(name, "multimodal", traits, settings=settings, inputs=_text_and_image)


MULTIMODAL: tuple[Specimen, ...] = (
    _multimodal("clip", "pre", text_config=_TEXT, vision_config=_IMAGE, projection_dim=32),
    _multimodal(
        "siglip", "pre", text_config={**_TEXT, "projection_size": 32}, vision_config=_IMAGE
    ),
    _multimodal(
        "blip",
        "post",
        text_config={**_TEXT, "encoder_hidden_size": 32},
        vision_config=_IMAGE,
        projection_dim=32,
    ),
    describe(
        "visual_bert",
        "multimodal",
        "post",
        settings={"visual_embedding_dim": 24},
        inputs=_text_and_regions,
    ),
)
