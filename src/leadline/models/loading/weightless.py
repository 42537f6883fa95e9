"""A model without its weights: built from its configuration alone, of tensors that have no numbers.

Recipes, model types, folders, hub models and GGUF files say in a few kilobytes what they are made of.
A function that returns a module has to run, and its weights are then there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from leadline.errors import LeadlineError, LoadingError, require, without_collector, words_of
from leadline.models.loading.configuration import (
    class_of,
    configured,
    gguf_configuration,
    remote_class_of,
    stored_configuration,
)
from leadline.models.loading.functions import is_function
from leadline.models.loading.pretrained import tokenizer_reader
from leadline.models.loading.random_weights import default_dtype
from leadline.models.loading.recipes import named_recipe
from leadline.models.loading.request import (
    LoadedModel,
    Request,
    folder_name,
    no_trace,
    unknown_type,
)
from leadline.models.loading.sources import load_model, number_type
from leadline.parts import Recipe, Transformer
from leadline.parts.checkpoints import RECIPE_FILE

__all__ = ["described", "load_weightless", "without_numbers"]


def load_weightless(
    source: str,
    *,
    random_init: bool = False,
    recipe: bool = False,
    overrides: Mapping[str, Any] | None = None,
    dtype: str | None = None,
    trust_remote_code: bool = False,
    seed: int = 0,
) -> tuple[LoadedModel, str | None]:
    """The model without its weights, or with a reason why it had to be loaded."""
    empty = described(
        source,
        random_init=random_init,
        recipe=recipe,
        overrides=overrides,
        dtype=dtype,
        trust_remote_code=trust_remote_code,
        seed=seed,
    )
    if not isinstance(empty, str):
        return empty, None
    loaded = load_model(
        source,
        random_init=random_init,
        recipe=recipe,
        overrides=overrides,
        dtype=dtype,
        trust_remote_code=trust_remote_code,
        seed=seed,
    )
    return loaded, empty


def described(
    source: str,
    *,
    random_init: bool = False,
    recipe: bool = False,
    overrides: Mapping[str, Any] | None = None,
    dtype: str | None = None,
    trust_remote_code: bool = False,
    seed: int = 0,
    runnable: bool = True,
) -> LoadedModel | str:
    """The model without its weights, or why it cannot be had so.

    What is not `runnable` has shapes to be looked at alone; to run what has no numbers torch imports
    sympy, which takes longer than to build the model.
    """
    request = Request(source, dict(overrides or {}), number_type(dtype), trust_remote_code)
    if not random_init and not recipe and is_function(request):
        return f"{source} is a function, which had to run"
    own = recipe or (not random_init and (request.path / RECIPE_FILE).is_file())
    with without_collector(), no_trace(seed, quiet=not own):
        if own:
            empty = _from_recipe(request)
            return _runnable(empty) if runnable else empty
        try:
            empty = _from_configuration(request, random_init=random_init)
            return _runnable(empty) if runnable else empty
        except LeadlineError:
            raise
        except Exception as error:
            return f"it cannot be built without numbers ({words_of(error, first_line=True)})"


def without_numbers(module: nn.Module) -> nn.Module:
    """The module with every parameter and buffer exchanged for one that has a shape alone."""
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    known: dict[int, Any] = {}
    for part in module.modules():
        for name, parameter in part._parameters.items():
            if parameter is not None:
                one = known.setdefault(
                    id(parameter), nn.Parameter(_shape_of(fake, parameter), parameter.requires_grad)
                )
                part._parameters[name] = one
        for name, buffer in part._buffers.items():
            if buffer is not None:
                part._buffers[name] = known.setdefault(id(buffer), _shape_of(fake, buffer))
    return module


def _shape_of(fake: FakeTensorMode, tensor: torch.Tensor) -> torch.Tensor:
    empty = torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")
    return cast("torch.Tensor", FakeTensor(fake, empty, torch.device("cpu")))


def _runnable(empty: LoadedModel) -> LoadedModel:
    without_numbers(empty.model)
    return empty


def _from_recipe(request: Request) -> LoadedModel:
    name, recipe = named_recipe(request)
    changed = (
        Recipe.from_json(request.overrides)
        if name == "default"
        else recipe.but(**request.overrides)
    )
    with default_dtype(request.dtype), torch.device("meta"):
        model = Transformer(changed, draw=False)
    return LoadedModel(model.eval(), name, f"recipe {name}")


def _from_configuration(request: Request, *, random_init: bool) -> LoadedModel:
    transformers = require("transformers", extra="hf")
    path = request.path
    name = folder_name(path) if path.is_dir() else request.source
    reader = tokenizer_reader(request)
    dtype = request.dtype
    if not random_init and path.suffix.lower() == ".gguf":
        require("gguf", extra="gguf")
        arguments = {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name}
        config = gguf_configuration(path)
        name = path.stem

        def read_tokenizer() -> Any:
            with no_trace(0):
                return transformers.AutoTokenizer.from_pretrained(**arguments)

        reader = read_tokenizer
    elif random_init and not path.is_dir() and "/" not in request.source:
        if request.source not in transformers.CONFIG_MAPPING:
            raise LoadingError(unknown_type(request.source))
        config = configured(transformers.CONFIG_MAPPING[request.source], {}, request)
    else:
        config = stored_configuration(request)
        stored = getattr(config, "dtype", None)
        if dtype is None and not random_init and isinstance(stored, torch.dtype):
            dtype = stored
    model_class = remote_class_of(config, request) or class_of(config)
    with default_dtype(dtype), torch.device("meta"):
        model = model_class(config)
    return LoadedModel(model.eval(), name, "configuration", reader)
