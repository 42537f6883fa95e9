"""Load a model or a record from a folder, a file, the hub, a function, a model type or a recipe."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from leadline.errors import (
    LoadingError,
    check_path,
    check_seed,
    without_collector,
    words_of,
)
from leadline.models.loading.functions import from_function, is_function
from leadline.models.loading.pretrained import (
    from_folder,
    from_gguf,
    from_hub,
    weight_bytes,
    weight_files,
)
from leadline.models.loading.random_weights import from_random
from leadline.models.loading.recipes import from_recipe
from leadline.models.loading.request import (
    CONVERT,
    PICKLES,
    LoadedModel,
    Request,
    first_bytes,
    no_trace,
)
from leadline.models.streaming.decision import reason_to_stream, stream_from_files
from leadline.models.streaming.mapped import check_system
from leadline.models.streaming.scratch import Scratch
from leadline.numerics.half_precision import half_route

if TYPE_CHECKING:
    from leadline.record import Record

__all__ = ["is_hub_name", "is_streamable", "load", "load_model"]

_SQLITE = b"SQLite format 3\x00"


def load(source: str | Path, *, stream: bool | None = None) -> LoadedModel | Record:
    """Open a record file as a Record; load anything else as a model.

    `stream` is that of `load_model`.
    """
    path = check_path(source, name="The source of the model", error=LoadingError)
    if path.is_file() and first_bytes(path, len(_SQLITE)) == _SQLITE:
        from leadline.record import Record

        return Record.open(path)
    return load_model(source, stream=stream)


def load_model(
    source: str | Path,
    *,
    random_init: bool = False,
    recipe: bool = False,
    overrides: Mapping[str, Any] | None = None,
    dtype: str | None = None,
    device: str = "cpu",
    trust_remote_code: bool = False,
    stream: bool | None = None,
    seed: int = 0,
) -> LoadedModel:
    """Load a model from any of the sources that the module docstring lists.

    `overrides` sets fields of the configuration, of which a dot reaches into a nested one, or of
    the recipe. With `stream` the weights are read from their files block by block while the model
    runs; None does so where they do not fit into free memory. `seed` draws what is random: all weights under `random_init` and `recipe`,
    otherwise those that the file lacks.
    """
    if random_init and recipe:
        raise LoadingError(
            f"{source} was asked for as a model type (random_init, --random-init) and as a "
            "recipe (recipe, --recipe); choose one of the two."
        )
    check_path(source, name="The source of the model", error=LoadingError)
    seed = check_seed(seed)
    request = Request(str(source), dict(overrides or {}), number_type(dtype), trust_remote_code)
    why = reason_to_stream(
        stream,
        lambda: None if random_init or recipe else weight_bytes(request),
        device=device,
        source=request.source,
    )
    # What transformers imports takes longer than many a small model that does without it.
    by_function = not random_init and is_function(request)
    quiet = not (recipe or by_function)
    with without_collector(), no_trace(seed, quiet=quiet), ExitStack() as stack:
        scratch = None
        if why is not None:
            scratch = Scratch(request.path)
            stack.enter_context(scratch.catching())
        if recipe:
            loaded = from_recipe(request, seed=seed)
        else:
            loaded = _from_source(request, random_init=random_init, scratch=scratch)
        try:
            loaded.model.to(torch.device(device))
        except (RuntimeError, AssertionError, TypeError) as error:
            raise LoadingError(
                f"The model cannot be put on the device {device!r}: {words_of(error, first_line=True)}"
            ) from error
    if why is not None and scratch is not None:
        stream_from_files(loaded.model, why, scratch, weight_files(request))
    half_route(loaded.model)  # before anybody runs it: the first product settles the instructions
    loaded.model.eval()
    return loaded


def is_streamable(source: str) -> bool:
    """Whether the weights lie in files here, from which they can be read block by block."""
    try:
        check_system()
        return bool(weight_files(Request(source, {}, None, trust_remote_code=False)))
    except LoadingError:
        return False


def is_hub_name(source: str) -> bool:
    """Whether nothing here is called so, and it may be a model of the hub."""
    path = Path(source).expanduser()
    marks = source.startswith((".", "/", "~")) or source.count("/") > 1 or ":" in source
    return not (marks or path.exists() or path.suffix.lower() == ".gguf")


def _from_source(
    request: Request, *, random_init: bool, scratch: Scratch | None = None
) -> LoadedModel:
    path = request.path
    if not random_init and path.suffix.lower() == ".gguf":
        return from_gguf(request, scratch)
    if random_init:
        return from_random(request)
    if path.is_dir():
        return from_folder(request, scratch)
    if is_function(request):
        return from_function(request)
    if path.is_file():
        raise LoadingError(_refusal_of_file(path))
    if request.source.startswith((".", "/", "~")) or request.source.count("/") > 1:
        raise LoadingError(f"There is no folder and no file {path}; check the path.")
    return from_hub(request)


def _refusal_of_file(path: Path) -> str:
    if path.suffix.lower() in PICKLES:
        return f"{path} is a pickle. {CONVERT}"
    if path.suffix.lower() == ".safetensors":
        return f"{path} holds weights only; give its folder, with config.json beside it."
    return (
        f"{path} is not a model: give a folder with config.json, a GGUF file, "
        "a hub id, package.module:function, a model type with random init, or a recipe."
    )


def number_type(name: str | None) -> torch.dtype | None:
    if name is None:
        return None
    names = ("float32", "bfloat16", "float16", "float64")
    if name not in names:
        raise LoadingError(f"No number type is called {name!r}. Known: {', '.join(names)}.")
    return getattr(torch, name)
