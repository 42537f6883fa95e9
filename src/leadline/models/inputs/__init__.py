"""The inputs of a model, and the loss that is differentiated.

    random_tokens, random_inputs      drawn from a seed
    text_inputs, text_file            through a tokenizer
    token_file                        ids from .txt, .json, .npy or .safetensors
    as_inputs                         tensors, dictionaries, texts, anything of the above
    choose_loss                       next-token, masked, a random cotangent, or one's own

Everything ends as `Inputs`: the tensors for `model.forward` by name, and a mask of the real tokens.
"""

from __future__ import annotations

from leadline.models.inputs.batch import Inputs
from leadline.models.inputs.convert import as_inputs
from leadline.models.inputs.drawn import random_inputs, random_tokens
from leadline.models.inputs.losses import Loss, choose_loss
from leadline.models.inputs.model_facts import context_limit, vocabulary_size
from leadline.models.inputs.text import text_file, text_inputs
from leadline.models.inputs.token_files import token_file

__all__ = [
    "Inputs",
    "Loss",
    "as_inputs",
    "choose_loss",
    "context_limit",
    "random_inputs",
    "random_tokens",
    "text_file",
    "text_inputs",
    "token_file",
    "vocabulary_size",
]
