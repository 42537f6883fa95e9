"""Encoder-decoders: two stacks, the second one reads the first by cross-attention."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadline.testing.zoo._specimen import Specimen, describe, random_features, random_ids

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["ENCODER_DECODERS"]

_FEATURES = {"num_mel_bins": 8, "max_source_positions": 16, "max_target_positions": 32}
_GEMMA = {
    "vocab_size": 99,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "sliding_window": 8,
}


def _pair(name: str, traits: str, model_type: str | None = None, **settings: object) -> Specimen:
    return describe(name, "encoder-decoder", traits, settings=settings, model_type=model_type)


def _speech(model: nn.Module, seed: int) -> dict[str, Tensor]:
    """Whisper halves the number of frames, so 32 frames are 16 tokens."""
    features = random_features(seed, 8, 32)
    return {"input_features": features, "decoder_input_ids": _decoder_ids(model, seed)}


def _speech_by_frame(model: nn.Module, seed: int) -> dict[str, Tensor]:
    features = random_features(seed, 48, 8)
    return {"input_features": features, "decoder_input_ids": _decoder_ids(model, seed)}


def _decoder_ids(model: nn.Module, seed: int) -> Tensor:
    return random_ids(model, seed)["decoder_input_ids"]


ENCODER_DECODERS: tuple[Specimen, ...] = (
    _pair("t5", "pre", num_layers=2),
    _pair("t5-gated", "pre", "t5", num_layers=2, feed_forward_proj="gated-gelu"),
    _pair("mt5", "pre", num_layers=2),
    _pair("umt5", "pre", num_layers=2),
    _pair("longt5", "pre", num_layers=2, local_radius=3),
    _pair(
        "switch_transformers",
        "pre moe",
        num_layers=2,
        num_sparse_encoder_layers=1,
        num_sparse_decoder_layers=1,
    ),
    _pair("t5gemma", "sandwich", encoder=_GEMMA, decoder=_GEMMA),
    _pair("bart", "post"),
    _pair("plbart", "post"),
    _pair("mvp", "post"),
    _pair("marian", "post", decoder_vocab_size=99),
    _pair("blenderbot-small", "post"),
    _pair(
        "led",
        "post",
        attention_window=8,
        max_encoder_position_embeddings=64,
        max_decoder_position_embeddings=64,
    ),
    _pair("fsmt", "post", src_vocab_size=99, tgt_vocab_size=99),
    _pair(
        "prophetnet",
        "post",
        num_encoder_layers=2,
        num_encoder_attention_heads=4,
        num_decoder_attention_heads=4,
    ),
    _pair("mbart", "pre"),
    _pair("pegasus", "pre"),
    _pair("blenderbot", "pre"),
    _pair("m2m_100", "pre"),
    _pair("nllb-moe", "pre moe", encoder_sparse_step=2, decoder_sparse_step=2, expert_capacity=16),
    describe(
        "whisper",
        "encoder-decoder",
        "pre",
        settings=_FEATURES,
        head="WhisperForConditionalGeneration",
        inputs=_speech,
    ),
    describe(
        "speech_to_text",
        "encoder-decoder",
        "pre",
        settings={
            "input_feat_per_channel": 8,
            "conv_channels": 32,
            "max_source_positions": 64,
            "max_target_positions": 32,
        },
        head="Speech2TextForConditionalGeneration",
        inputs=_speech_by_frame,
    ),
)
