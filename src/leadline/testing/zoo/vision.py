"""Vision: images of 16 by 16 pixels in patches of 4, so 16 tokens; films of four such images."""

from __future__ import annotations

from leadline.testing.zoo._specimen import Specimen, describe, noise, random_ids

__all__ = ["VISION"]


_PIXELS = noise("pixel_values", 3, 16, 16)
_FILM = noise("pixel_values", 4, 3, 16, 16)


def _vision(name: str, traits: str, head: str | None = None, **settings: object) -> Specimen:
    return describe(name, "vision", traits, settings=settings, head=head, inputs=_PIXELS)


VISION: tuple[Specimen, ...] = (
    _vision("vit", "pre"),
    _vision("deit", "pre", "DeiTForImageClassification"),
    _vision("vit_msn", "pre"),
    _vision("ijepa", "pre"),
    _vision("beit", "pre layer-scale", layer_scale_init_value=0.5),
    _vision("data2vec-vision", "pre layer-scale", layer_scale_init_value=0.5),
    _vision("dinov2", "pre layer-scale", layerscale_value=0.5),
    _vision("dinov2_with_registers", "pre layer-scale", layerscale_value=0.5),
    _vision("dinov3_vit", "pre layer-scale", "AutoModel", layerscale_value=0.5),
    _vision("yolos", "pre", "AutoModel", image_size=[16, 16], num_detection_tokens=4),
    _vision("aimv2_vision_model", "pre", "AutoModel"),
    _vision("clip_vision_model", "pre", "AutoModel"),
    _vision("siglip_vision_model", "pre", "AutoModel"),
    _vision("swin", "pre stages", embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=2),
    _vision(
        "swinv2", "output stages", embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=2
    ),
    _vision(
        "segformer",
        "pre stages",
        "AutoModel",
        num_encoder_blocks=2,
        depths=[2, 2],
        sr_ratios=[2, 1],
        hidden_sizes=[16, 32],
        num_attention_heads=[2, 4],
        patch_sizes=[3, 3],
        strides=[2, 2],
        mlp_ratios=[2, 2],
        decoder_hidden_size=16,
    ),
    describe("imagegpt", "vision", "pre", head="ImageGPTForCausalImageModeling", inputs=random_ids),
    describe(
        "videomae",
        "vision",
        "pre",
        settings={"num_frames": 4, "tubelet_size": 2},
        head="AutoModel",
        inputs=_FILM,
    ),
    describe(
        "timesformer",
        "vision",
        "pre",
        settings={"num_frames": 4},
        head="AutoModel",
        inputs=_FILM,
    ),
)
