"""Load a model that a function of the user builds: package.module:function or file.py:function."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch import nn

from leadline.errors import CatalogError, LoadingError, words_of
from leadline.models.loading.request import LoadedModel, Request, quiet_transformers

__all__ = ["from_function", "is_function"]


def is_function(request: Request) -> bool:
    """Whether the source names a function, and no folder or file that has a colon in its name."""
    path = request.path
    return ":" in request.source and path.suffix.lower() != ".gguf" and not path.is_dir()


def from_function(request: Request) -> LoadedModel:
    """Call the function without arguments; it returns a module, or a module and its tokenizer."""
    place, _, name = request.source.rpartition(":")
    if request.overrides:
        raise LoadingError(
            f"{request.source} is a function, so no configuration field can be set with overrides "
            "or --set; set the sizes in the function."
        )
    with _current_folder_importable(), contextlib.ExitStack() as stack:
        if _mentions_transformers(place):
            stack.enter_context(quiet_transformers())
        function = getattr(_user_module(place, request.source), name, None)
        if not callable(function):
            raise LoadingError(
                f"{place} has no function {name!r}; write package.module:function or "
                "file.py:function."
            )
        if "transformers" in sys.modules:
            stack.enter_context(quiet_transformers())
        try:
            result = function()
        except Exception as error:
            raise LoadingError(
                f"{request.source} was called without arguments and raised "
                f"{type(error).__name__}: {words_of(error, first_line=True)}"
            ) from error
    model, tokenizer = result if isinstance(result, tuple) and len(result) == 2 else (result, None)
    if not isinstance(model, nn.Module):
        raise LoadingError(
            f"{request.source} returned a {type(model).__name__}; it must return a "
            "torch.nn.Module, or a module and its tokenizer."
        )
    if request.dtype is not None:
        model.to(request.dtype)
    reader = (lambda: tokenizer) if tokenizer is not None else None
    return LoadedModel(model, request.source, "function", reader)


def _user_module(place: str, source: str) -> Any:
    if place.endswith(".py"):
        from leadline.catalog import load_plugin

        path = Path(place).expanduser()
        if not path.is_file():
            raise LoadingError(f"There is no file {path}, which {source} names.")
        try:
            return load_plugin(path)
        except CatalogError as error:
            raise LoadingError(f"{path} cannot be run: {error.__cause__ or error}") from error
    try:
        return importlib.import_module(place)
    except Exception as error:
        raise LoadingError(
            f"The module {place!r} cannot be imported ({type(error).__name__}: "
            f"{words_of(error, first_line=True).rstrip('.')}); write package.module:function or file.py:function."
        ) from error


def _mentions_transformers(place: str) -> bool:
    """Whether the text of a module has the word, so that its function may import the library.

    To import it only to silence it would take longer than most models that are made without it.
    """
    file: str | None = place
    if not place.endswith(".py"):
        try:
            spec = importlib.util.find_spec(place)
        except Exception:  # the import that follows says what is wrong
            return False
        file = None if spec is None else spec.origin
    try:
        return file is None or b"transformers" in Path(file).expanduser().read_bytes()
    except OSError:
        return False


@contextlib.contextmanager
def _current_folder_importable() -> Iterator[None]:
    folder = str(Path.cwd())
    added = folder not in sys.path
    if added:
        sys.path.insert(0, folder)
    try:
        yield
    finally:
        if added and folder in sys.path:
            sys.path.remove(folder)
