"""Encoders of text: masked language models."""

from __future__ import annotations

from leadline.testing.zoo._specimen import Specimen, describe

__all__ = ["ENCODERS"]


def _encoder(name: str, traits: str, model_type: str | None = None, **settings: object) -> Specimen:
    return describe(name, "encoder", traits, settings=settings, model_type=model_type)


ENCODERS: tuple[Specimen, ...] = (
    _encoder("bert", "post"),
    _encoder("roberta", "post"),
    _encoder("camembert", "post"),
    _encoder("xlm-roberta", "post"),
    _encoder("electra", "post"),
    _encoder("distilbert", "post"),
    _encoder("mpnet", "post"),
    _encoder("deberta", "post"),
    _encoder("deberta-v2", "post"),
    _encoder("albert", "post shared", num_hidden_layers=4),
    _encoder("xlm", "post"),
    _encoder("ernie", "post"),
    _encoder("roformer", "post"),
    _encoder("nomic_bert", "post"),
    _encoder("gte", "post"),
    _encoder("ibert", "post"),
    _encoder("big_bird", "post"),
    _encoder("xmod", "post", default_language="en_XX"),
    _encoder("squeezebert", "post"),
    _encoder("convbert", "post convolution"),
    _encoder("fnet", "post fourier"),
    _encoder("longformer", "post", attention_window=8),
    _encoder("mobilebert", "post bottleneck", intra_bottleneck_size=32),
    _encoder("funnel", "post stages", block_sizes=[2, 2], num_decoder_layers=1, d_head=16),
    _encoder("flaubert", "post"),
    _encoder("neomme", "pre gain"),
    _encoder("rembert", "post"),
    _encoder("nystromformer", "post"),
    _encoder("esm", "pre"),
    _encoder("megatron-bert", "pre"),
    _encoder("modernbert", "pre"),
    _encoder("eurobert", "pre"),
    _encoder("xlm-roberta-xl", "pre"),
)
