"""Load trained weights from a folder, the hub or a GGUF file; a pickle is never opened."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import nn

from leadline.errors import LoadingError, MissingExtra, require, words_of
from leadline.models.loading.configuration import (
    class_of,
    gguf_configuration,
    remote_class_of,
    stored_configuration,
)
from leadline.models.loading.fetched import fetched_folder
from leadline.models.loading.request import (
    CONVERT,
    PICKLES,
    LoadedModel,
    Request,
    first_bytes,
    folder_name,
    no_trace,
    not_found,
    place_of,
    read_json,
)
from leadline.models.streaming.gguf import dequantised_bytes, dequantised_model
from leadline.models.streaming.scratch import Scratch
from leadline.models.streaming.stored import check_shards, stored_bytes
from leadline.parts import Transformer
from leadline.parts.checkpoints import BYTES, RECIPE_FILE, tokenizer_of

__all__ = [
    "from_folder",
    "from_gguf",
    "from_hub",
    "tokenizer_reader",
    "weight_bytes",
    "weight_files",
]

_GGUF = b"GGUF"


def from_folder(request: Request, scratch: Scratch | None = None) -> LoadedModel:
    """A folder that save_pretrained wrote, checked; `scratch` keeps what is converted for streaming."""
    folder = request.path
    if (folder / RECIPE_FILE).is_file():
        return _from_own_folder(request, scratch)
    config = stored_configuration(request)
    _checked_files(folder)
    model, missing = _pretrained(config, request)
    return LoadedModel(
        model, folder_name(folder), "local folder", tokenizer_reader(request), missing
    )


def weight_bytes(request: Request) -> int | None:
    """The bytes that the weights take in memory; None where no files hold them.

    Of a hub model that has not been fetched nothing is known: that counts as 0.
    """
    path, files = request.path, weight_files(request)
    if files:
        gguf = path.suffix.lower() == ".gguf"
        return (dequantised_bytes if gguf else stored_bytes)(files, request.dtype)
    looks_local = path.exists() or request.source.startswith((".", "/", "~"))
    return None if looks_local or ":" in request.source else 0


def weight_files(request: Request) -> list[Path]:
    """The files of weights of a folder, a GGUF file or a fetched hub model, checked; else none."""
    path = request.path
    if path.suffix.lower() == ".gguf" and path.is_file():
        _check_gguf(path)
        return [path]
    if path.is_dir():
        return _checked_files(path)
    is_name = ":" not in request.source and not request.source.startswith((".", "/", "~"))
    folder = fetched_folder(request.source) if is_name else None
    return [] if folder is None else _checked_files(folder)


def _from_own_folder(request: Request, scratch: Scratch | None) -> LoadedModel:
    """A folder that Transformer.save wrote. A tokenizer may stand beside it."""
    if request.overrides:
        raise LoadingError(
            f"The recipe of {request.source} cannot be changed while it is loaded, and "
            f"{', '.join(sorted(request.overrides))} was to be set (overrides, --set); leave it "
            "out, and in Python use with_ on the model."
        )
    model = Transformer.load(request.path)
    if request.dtype is not None and scratch is not None:
        scratch.convert(model, request.dtype)
    elif request.dtype is not None:
        model = model.to(request.dtype)
    has_tokenizer = any(request.path.glob("tokenizer*"))
    reader = tokenizer_reader(request) if has_tokenizer else None
    if tokenizer_of(request.path) == BYTES:
        from leadline.models.inputs.byte_tokenizer import ByteTokenizer

        reader = ByteTokenizer
    return LoadedModel(model, folder_name(request.path), "local folder", reader)


def from_hub(request: Request) -> LoadedModel:
    """A model of the hub; transformers decides about cache and network."""
    config = stored_configuration(request)
    model, missing = _pretrained(config, request)
    return LoadedModel(model, request.source, "hub", tokenizer_reader(request), missing)


def from_gguf(request: Request, scratch: Scratch | None = None) -> LoadedModel:
    """A GGUF file, dequantised; model and tokenizer both come from it.

    With `scratch` it is dequantised into files tensor by tensor, to be streamed from there.
    """
    path = request.path
    if not path.is_file():
        raise LoadingError(f"There is no file {path}; give the path of a GGUF file.")
    _check_gguf(path)
    if request.overrides:
        raise LoadingError(
            "The configuration of a GGUF file cannot be changed, and "
            f"{', '.join(sorted(request.overrides))} was to be set (overrides, --set); leave it out."
        )
    require("gguf", extra="gguf")
    require("accelerate", extra="gguf")
    transformers = require("transformers", extra="hf")
    arguments = {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name}
    try:
        with _no_bar_in_a_pipe():
            config = gguf_configuration(path)
            model_class = class_of(config)
            weights: Mapping[str, Any] = arguments
            if scratch is not None:
                tensors = dequantised_model(path, model_class, config, request.dtype, scratch)
                weights = {"pretrained_model_name_or_path": None, "state_dict": tensors}
            model, missing = _pretrained_class(model_class, config, request, weights)
    except LoadingError:
        raise
    except Exception as error:
        raise LoadingError(
            f"The GGUF file {path} cannot be read: {words_of(error, first_line=True)} "
            "It may be cut short, or of a family that transformers does not convert."
        ) from error

    def read_tokenizer() -> Any:
        with no_trace(0):
            return transformers.AutoTokenizer.from_pretrained(**arguments)

    return LoadedModel(model, path.stem, "gguf", read_tokenizer, missing)


def _check_gguf(path: Path) -> None:
    start = first_bytes(path, len(_GGUF))
    if start != _GGUF:
        raise LoadingError(f"{path} is not a GGUF file: it starts with {start!r}, not {_GGUF!r}.")


def _no_bar_in_a_pipe() -> contextlib.AbstractContextManager[object]:
    # The progress bar of the dequantisation ignores the settings of transformers.
    if sys.stderr.isatty():
        return contextlib.nullcontext()
    return contextlib.redirect_stderr(io.StringIO())


def _pretrained(config: Any, request: Request) -> tuple[nn.Module, tuple[str, ...]]:
    weights = getattr(config, "transformers_weights", None)
    if weights is not None and ".safetensors" not in weights:
        raise LoadingError(f"The weights of {request.source} are in {weights}. {CONVERT}")
    arguments = {
        "pretrained_model_name_or_path": place_of(request),
        "trust_remote_code": request.trust_remote_code,
    }
    model_class = remote_class_of(config, request) or class_of(config)
    try:
        return _pretrained_class(model_class, config, request, arguments)
    except (LoadingError, MissingExtra):
        raise
    except OSError as error:
        if "safetensors" in str(error):
            raise LoadingError(
                f"{request.source} has no weights in safetensors. {CONVERT}"
            ) from error
        raise not_found(request, error) from error
    except ImportError as error:  # of somebody's quantisation
        raise LoadingError(
            f"{request.source} needs a library that is not installed: "
            f"{words_of(error, first_line=True)}"
        ) from error
    except (RuntimeError, ValueError, KeyError, TypeError) as error:
        raise LoadingError(
            f"The weights of {request.source} do not fit its configuration "
            f"({model_class.__name__}): {words_of(error, first_line=True)}"
        ) from error


def _pretrained_class(
    model_class: Any, config: Any, request: Request, arguments: Mapping[str, Any]
) -> tuple[nn.Module, tuple[str, ...]]:
    model, info = model_class.from_pretrained(
        **arguments,
        config=config,
        dtype=request.dtype or "auto",
        use_safetensors=True,
        ignore_mismatched_sizes=True,
        output_loading_info=True,
    )
    for key, stored_shape, expected_shape in sorted(info["mismatched_keys"]):
        raise LoadingError(
            f"The weights of {request.source} do not fit its configuration: {key} is stored as "
            f"{list(stored_shape)} and the configuration asks for {list(expected_shape)}."
        )
    missing = tuple(sorted(info["missing_keys"]))
    total = sum(1 for _ in model.parameters())
    if 2 * len(missing) > total:
        raise LoadingError(
            f"{len(missing)} of the {total} parameters of {model_class.__name__} are not in the "
            f"weights of {request.source}, for example {missing[0]}; the weights belong to "
            "another architecture."
        )
    return model, missing


def _checked_files(folder: Path) -> list[Path]:
    """The files of weights; pickles, missing parts and damaged files are refused.

    They are looked at before anything else opens them.
    """
    if (folder / "adapter_config.json").is_file():
        raise LoadingError(
            f"{folder} holds an adapter; merge it into its model with merge_and_unload and "
            "save_pretrained, then load that folder."
        )
    single, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if single.is_file():
        parts = [single]
    elif index.is_file():
        parts = [folder / name for name in sorted(set(_weight_map(index).values()))]
    else:
        pickles = sorted(p.name for p in folder.iterdir() if p.suffix.lower() in PICKLES)
        if pickles:
            raise LoadingError(f"The weights in {folder} are a pickle ({pickles[0]}). {CONVERT}")
        raise LoadingError(
            f"{folder} has a config.json but no weights: no model.safetensors and no "
            "model.safetensors.index.json. For random weights ask for random_init=True "
            "(--random-init on the command line)."
        )
    safetensors = require("safetensors", extra="hf")
    for part in parts:
        if not part.is_file():
            raise LoadingError(
                f"{part.name} is missing in {folder}, though {index.name} names it; fetch it again."
            )
        try:
            with safetensors.safe_open(part, framework="pt"):
                pass
        except Exception as error:
            raise LoadingError(
                f"{part} is cut short or damaged ({part.stat().st_size} bytes: "
                f"{words_of(error, first_line=True).rstrip('.')}); fetch it again."
            ) from error
    if parts != [single]:
        check_shards(index, _weight_map(index))
    return parts


def _weight_map(index: Path) -> dict[str, str]:
    """The name of every tensor, and the file that holds it."""
    content = read_json(index)
    names = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(names, dict) or not names:
        raise LoadingError(f"{index} has no weight_map; fetch it again.")
    return {str(tensor): Path(str(file)).name for tensor, file in names.items()}


def tokenizer_reader(request: Request) -> Callable[[], Any]:
    """A function that reads the tokenizer, or gives None where there is none."""

    def read_tokenizer() -> Any:
        transformers = require("transformers", extra="hf")
        try:
            with no_trace(0):
                tokenizer = transformers.AutoTokenizer.from_pretrained(
                    place_of(request), trust_remote_code=request.trust_remote_code
                )
        except (OSError, KeyError):
            return None
        except Exception as error:
            raise LoadingError(
                f"The tokenizer of {request.source} cannot be read: {words_of(error, first_line=True)}"
            ) from error
        # Where the files are missing, transformers may make a tokenizer that knows no token.
        return tokenizer if getattr(tokenizer, "vocab_size", 1) else None

    return read_tokenizer
