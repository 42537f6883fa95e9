"""Checkpoints: Hugging Face's in and out, one file per family, and Leadline's own format.

model = from_hf("folder")        or a transformers model in memory
to_hf(model, "folder")           which transformers loads
save(model, "folder")            recipe.json and model.safetensors, for any recipe
model = load("folder")
"""

from __future__ import annotations

from leadline.parts.checkpoints._family import CHECKPOINTS, Family
from leadline.parts.checkpoints._hf import Origin, from_hf, to_hf
from leadline.parts.checkpoints._native import (
    BYTES,
    RECIPE_FILE,
    check_free,
    load,
    save,
    tokenizer_of,
)

__all__ = [
    "BYTES",
    "CHECKPOINTS",
    "RECIPE_FILE",
    "Family",
    "Origin",
    "check_free",
    "from_hf",
    "load",
    "save",
    "to_hf",
    "tokenizer_of",
]
