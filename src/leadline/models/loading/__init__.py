"""Where models come from: a folder, a GGUF file, the hub, a function, a model type, a recipe.

    folder with config.json      weights in safetensors only
    folder with recipe.json      a Transformer that was saved here
    file.gguf                    dequantised by transformers, tokenizer included
    package.module:function      a function without arguments that returns a module
    file.py:function             the same from a file
    owner/name                   a model of the Hugging Face hub, by the rules and cache of transformers
    model type, random_init      random weights from the type's configuration
    recipe's name, recipe        a Transformer of that recipe with random weights; also a JSON file
                                 of its fields, or "default"

A pickle is never opened, since it can run code while it is read; neither is code from a model's
folder run unless `trust_remote_code` is set. The model comes back in evaluation mode. The weights
keep the number type they are stored in unless `dtype` says otherwise. Loading leaves the random
state as it was.
"""

from __future__ import annotations

from leadline.models.loading.request import LoadedModel
from leadline.models.loading.sources import load, load_model

__all__ = ["LoadedModel", "load", "load_model"]
