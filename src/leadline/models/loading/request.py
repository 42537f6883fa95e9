"""The request for a model, the loaded model, and the surroundings in which it is loaded."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn

from leadline.errors import LoadingError, did_you_mean, require, words_of

PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
CONVERT = (
    "A pickle can run code when it is opened, so it is not read here. Convert it where you trust "
    "it: load it with transformers and call save_pretrained, which writes safetensors."
)


@dataclass(frozen=True)
class LoadedModel:
    """A model, its name, where it came from, and its tokenizer, which is read when first asked for."""

    model: nn.Module
    name: str
    source: str
    read_tokenizer: Callable[[], Any] | None = None
    missing: tuple[str, ...] = ()
    """Parameters that the file did not hold; they are random."""

    @cached_property
    def tokenizer(self) -> Any:
        """The tokenizer, or None where there is none."""
        return self.read_tokenizer() if self.read_tokenizer is not None else None


@dataclass(frozen=True)
class Request:
    """The source of a model, and the changes to make while loading it."""

    source: str
    overrides: dict[str, Any]
    dtype: torch.dtype | None
    trust_remote_code: bool

    @property
    def path(self) -> Path:
        """The source as a path, whether or not something is there."""
        return Path(self.source).expanduser()


def unknown_type(kind: object) -> str:
    """Say that transformers has no such model type, with the nearest names."""
    transformers = require("transformers", extra="hf")
    if not isinstance(kind, str):
        return "it names no model_type, so the architecture is not known."
    types = list(transformers.CONFIG_MAPPING.keys())
    return (
        f"No model type is called {kind!r}.{did_you_mean(kind, types)} "
        f"transformers {transformers.__version__} knows {len(types)} types."
    )


def not_found(request: Request, error: Exception) -> LoadingError:
    """Return the error for a source that is neither here nor on the hub, with what to try."""
    from leadline.parts.recipes import RECIPES

    transformers = require("transformers", extra="hf")
    hints: list[str] = []
    if request.source in transformers.CONFIG_MAPPING:
        hints.append(f"For random weights of this type: --random-init {request.source}.")
    if request.source in RECIPES:
        hints.append(f"For the recipe of this name: --recipe {request.source}.")
    hint = " ".join(hints) or "Check the name, or fetch the model first and give its folder."
    return LoadingError(
        f"{request.source!r} is neither a folder nor a file here, and the hub did not give it "
        f"({words_of(error, first_line=True).rstrip('.')}). {hint}"
    )


def refuse_giant(count: int, request: Request, *, at_least: bool = False) -> None:
    """Refuse a model that is larger than the memory of this machine, before allocating it."""
    size = count * (request.dtype or torch.get_default_dtype()).itemsize
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if size > memory:
        more = "at least " if at_least else ""
        raise LoadingError(
            f"{request.source} with this configuration has {more}{count / 1e9:.1f} billion "
            f"parameters, {size / 1e9:.0f} GB, and this machine has {memory / 1e9:.0f} GB; set "
            "smaller sizes, for example fewer layers (overrides={...}, --set KEY=VALUE)."
        )


def place_of(request: Request) -> str:
    """Return the folder that holds the model, or its name on the hub."""
    return str(request.path) if request.path.is_dir() else request.source


def folder_name(folder: Path) -> str:
    """Return what a folder is called, with its parent where its own name says nothing."""
    folder = folder.resolve()
    generic = {"model", "models", "checkpoint", "weights", "final"}
    return f"{folder.parent.name}/{folder.name}" if folder.name in generic else folder.name


def read_json(path: Path) -> Any:
    """Read a JSON file, or raise a `LoadingError` that names it."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise LoadingError(
            f"{path} is not readable as JSON: {words_of(error, first_line=True)}"
        ) from error


def first_bytes(path: Path, count: int) -> bytes:
    """Return how a file begins."""
    with path.open("rb") as file:
        return file.read(count)


def last_line(error: BaseException) -> str:
    """The last line of an error, which holds the reason; earlier ones name the class and the field."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


@contextlib.contextmanager
def no_trace(seed: int, *, quiet: bool = True) -> Iterator[None]:
    """Seed the randomness, silence warnings and the conversion service; restore all later.

    With `quiet`, transformers is imported and silenced as well.
    """
    variable = "DISABLE_SAFETENSORS_CONVERSION"
    old_value = os.environ.get(variable)
    with contextlib.ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        # Modelling files of transformers warn about torch.jit.script while they are imported.
        warnings.simplefilter("ignore")
        stack.enter_context(torch.random.fork_rng(devices=[]))
        torch.manual_seed(seed)
        if quiet:
            stack.enter_context(quiet_transformers())
        os.environ[variable] = "1"
        stack.callback(_put_back, variable, old_value)
        yield


@contextlib.contextmanager
def quiet_transformers() -> Iterator[None]:
    """Silence the progress bars and logs of transformers, which is imported where it is installed."""
    with contextlib.ExitStack() as stack:
        if "transformers" in sys.modules or importlib.util.find_spec("transformers"):
            from transformers.utils import logging

            # The hub library logs every retry; the error that follows says it once.
            for voice in (logging, importlib.import_module("huggingface_hub.utils.logging")):
                stack.callback(voice.set_verbosity, voice.get_verbosity())
                voice.set_verbosity_error()
            if logging.is_progress_bar_enabled():
                stack.callback(logging.enable_progress_bar)
                logging.disable_progress_bar()
        yield


def _put_back(variable: str, old_value: str | None) -> None:
    if old_value is None:
        os.environ.pop(variable, None)
    else:
        os.environ[variable] = old_value
