"""Tiny Hugging Face models with random weights: the material on which an anatomy is proved.

    for specimen in specimens(kind="decoder"):
        model = specimen.build(0)
        output = model(**specimen.inputs(model, 1))

Every specimen runs forward and backward on a CPU in a fraction of a second. Needs transformers.
"""

from __future__ import annotations

from leadline.testing.zoo._specimen import KINDS, TRAITS, Specimen
from leadline.testing.zoo.audio import AUDIO
from leadline.testing.zoo.decoders import DECODERS
from leadline.testing.zoo.encoder_decoders import ENCODER_DECODERS
from leadline.testing.zoo.encoders import ENCODERS
from leadline.testing.zoo.experts import EXPERTS
from leadline.testing.zoo.lanes import LANES
from leadline.testing.zoo.multimodal import MULTIMODAL
from leadline.testing.zoo.recurrent import RECURRENT
from leadline.testing.zoo.vision import VISION

__all__ = ["KINDS", "TRAITS", "ZOO", "Specimen", "specimens"]

_ALL = (
    *DECODERS,
    *EXPERTS,
    *LANES,
    *RECURRENT,
    *ENCODERS,
    *ENCODER_DECODERS,
    *VISION,
    *AUDIO,
    *MULTIMODAL,
)

ZOO: dict[str, Specimen] = {specimen.name: specimen for specimen in _ALL}

if len(ZOO) != len(_ALL):
    raise RuntimeError("Two specimens of the zoo have the same name.")


def specimens(*, kind: str | None = None, trait: str | None = None) -> list[Specimen]:
    """All specimens, or those of one kind, or those with one trait."""
    return [
        specimen
        for specimen in ZOO.values()
        if kind in (None, specimen.kind) and (trait is None or trait in specimen.traits)
    ]
