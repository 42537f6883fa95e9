"""Random weights from a configuration: of a model type, of a folder, of a hub model."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from leadline.errors import LoadingError, require, words_of
from leadline.models.loading.configuration import (
    class_of,
    configured,
    remote_class_of,
    stored_configuration,
)
from leadline.models.loading.pretrained import tokenizer_reader
from leadline.models.loading.request import (
    LoadedModel,
    Request,
    folder_name,
    refuse_giant,
    unknown_type,
)

__all__ = ["default_dtype", "from_random"]


def from_random(request: Request) -> LoadedModel:
    """A model with the weights that its class draws; the seed was set by the caller."""
    transformers = require("transformers", extra="hf")
    folder = request.path.is_dir()
    if folder or "/" in request.source:
        config = stored_configuration(request)
    elif request.source in transformers.CONFIG_MAPPING:
        config = configured(transformers.CONFIG_MAPPING[request.source], {}, request)
    else:
        raise LoadingError(unknown_type(request.source))
    model_class = remote_class_of(config, request) or class_of(config)
    _refuse_giant(model_class, config, request)
    try:
        with default_dtype(request.dtype):
            model = model_class(config)
    except Exception as error:
        raise LoadingError(
            f"{model_class.__name__} cannot be built with this configuration: "
            f"{words_of(error, first_line=True)} Set fields that fit together (overrides={{...}}, "
            "--set KEY=VALUE), or give a function that builds the model, as package.module:function."
        ) from error
    name = folder_name(request.path) if folder else request.source
    reader = tokenizer_reader(request) if folder or "/" in request.source else None
    return LoadedModel(model, name, "random init", reader)


def _refuse_giant(model_class: Any, config: Any, request: Request) -> None:
    """Count the parameters on the meta device, which holds no numbers, before allocating memory."""
    try:
        with torch.device("meta"):
            count = sum(p.numel() for p in model_class(config).parameters())
    except Exception:
        # Some models compute with numbers while they are built; they cannot be counted this way.
        return
    refuse_giant(count, request)


@contextlib.contextmanager
def default_dtype(dtype: torch.dtype | None) -> Iterator[None]:
    """Build what is built inside in this number type."""
    # Built under the default type, rotary frequencies stay in float32; `.to()` would round them.
    caller_dtype = torch.get_default_dtype()
    torch.set_default_dtype(dtype or caller_dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(caller_dtype)
