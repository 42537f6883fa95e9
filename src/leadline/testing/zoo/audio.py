"""Audio: waveforms through a small convolutional front end, or spectrograms in patches.

A waveform of 320 samples makes fourteen tokens.
"""

from __future__ import annotations

from leadline.testing.zoo._specimen import Specimen, describe, noise

__all__ = ["AUDIO"]

_WAVE = {
    "conv_dim": [32, 32],
    "conv_stride": [5, 4],
    "conv_kernel": [10, 8],
    "num_conv_pos_embeddings": 8,
    "num_conv_pos_embedding_groups": 2,
}


def _wave(name: str, traits: str, model_type: str | None = None, **settings: object) -> Specimen:
    return describe(
        name,
        "audio",
        traits,
        settings={**_WAVE, **settings},
        model_type=model_type,
        inputs=noise("input_values", 320),
    )


AUDIO: tuple[Specimen, ...] = (
    _wave("wav2vec2", "post"),
    _wave(
        "wav2vec2-stable", "pre", "wav2vec2", do_stable_layer_norm=True, feat_extract_norm="layer"
    ),
    _wave("hubert", "post"),
    _wave("wavlm", "post"),
    _wave("unispeech", "post"),
    _wave("unispeech-sat", "post"),
    _wave("wav2vec2-conformer", "pre post macaron convolution gain"),
    describe(
        "wav2vec2-bert",
        "audio",
        "pre post macaron convolution gain",
        settings={"feature_projection_input_dim": 16},
        inputs=noise("input_features", 12, 16),
    ),
    describe(
        "audio-spectrogram-transformer",
        "audio",
        "pre",
        settings={"max_length": 16, "num_mel_bins": 16, "frequency_stride": 4, "time_stride": 4},
        inputs=noise("input_values", 16, 16),
    ),
)
