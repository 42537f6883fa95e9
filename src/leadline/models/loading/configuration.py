"""Configurations of transformers: read, changed field by field, and matched with a model class."""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Mapping
from dataclasses import fields
from functools import lru_cache
from pathlib import Path
from typing import Any

from leadline.errors import LoadingError, did_you_mean, require, words_of
from leadline.models.loading.request import (
    Request,
    last_line,
    not_found,
    place_of,
    read_json,
    unknown_type,
)

__all__ = [
    "class_of",
    "configured",
    "gguf_configuration",
    "remote_class_of",
    "stored_configuration",
]


# The first of these mappings that knows a configuration gives the model class.
_MAPPINGS = (
    "MODEL_FOR_CAUSAL_LM_MAPPING",
    "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING",
    "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING",
    "MODEL_MAPPING",
)
_MAPPINGS_OF_SENSES = (
    "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING",
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING",
    "MODEL_MAPPING",
)
_MAPPINGS_OF_PAIRS = (
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING",
    "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING",
    "MODEL_FOR_TEXT_TO_WAVEFORM_MAPPING",
)


def stored_configuration(request: Request) -> Any:
    """The configuration of a folder or of a hub model, with the overrides in it."""
    transformers = require("transformers", extra="hf")
    if request.path.is_dir():
        file = request.path / "config.json"
        if not file.is_file():
            raise LoadingError(
                f"{request.path} has no config.json; give a folder that save_pretrained wrote."
            )
        content = read_json(file)
        kind = content.get("model_type") if isinstance(content, dict) else None
        own_code = request.trust_remote_code and "auto_map" in (content or {})
        if not own_code and kind not in transformers.CONFIG_MAPPING:
            raise LoadingError(f"{file}: {unknown_type(kind)}")
    try:
        config = transformers.AutoConfig.from_pretrained(
            place_of(request), trust_remote_code=request.trust_remote_code
        )
    except OSError as error:
        raise not_found(request, error) from error
    except ValueError as error:
        if "trust_remote_code" in str(error):
            raise LoadingError(
                f"{request.source} brings its own code, which is not run unless you allow it "
                "with --trust-remote-code (trust_remote_code=True)."
            ) from error
        raise LoadingError(
            f"The configuration of {request.source} is not valid: {last_line(error)}"
        ) from error
    except Exception as error:
        raise LoadingError(
            f"The configuration of {request.source} is not valid: {last_line(error)}"
        ) from error
    if not request.overrides:
        return config
    return configured(type(config), config.to_dict(), request)


def gguf_configuration(path: Path) -> Any:
    """The configuration in the header of a GGUF file; no weights are read."""
    state = path.stat()
    return copy.deepcopy(_gguf_configuration(path, state.st_mtime_ns, state.st_size))


@lru_cache(maxsize=1)  # the vocabulary stands in the header too, and reading it takes seconds
def _gguf_configuration(path: Path, time: int, size: int) -> Any:
    del time, size  # parts of the key: of another file the header is read anew
    transformers = require("transformers", extra="hf")
    return transformers.AutoConfig.from_pretrained(str(path.parent), gguf_file=path.name)


def configured(config_class: Any, content: dict[str, Any], request: Request) -> Any:
    """A configuration of a class from stored content and the overrides of a request."""
    content = dict(content)
    for name, value in request.overrides.items():
        _override(content, config_class, name, _value(value))
    try:
        return config_class(**content)
    except Exception as error:
        # The reason stands in the last line; the lines before it name the validator.
        raise LoadingError(
            f"{config_class.__name__} does not accept this configuration: {last_line(error)}"
        ) from error


def _override(content: dict[str, Any], config_class: Any, name: str, value: Any) -> None:
    """Set one field; `text_config.hidden_size` reaches into the nested configuration."""
    head, _, rest = name.partition(".")
    aliases: Mapping[str, str] = getattr(config_class, "attribute_map", {})
    field_names = {field.name for field in fields(config_class)} | set(aliases)
    if head not in field_names:
        hint = did_you_mean(head, field_names)
        own_names = sorted(set(config_class.__annotations__) & field_names)
        raise LoadingError(
            f"{config_class.__name__} has no field {head!r}.{hint} It has: {', '.join(own_names)}."
        )
    head = aliases.get(head, head)
    if not rest:
        content[head] = value
        return
    nested = getattr(config_class, "sub_configs", {}).get(head)
    if nested is None:
        raise LoadingError(f"{config_class.__name__}.{head} is not a nested configuration.")
    inner = content.get(head)
    inner = dict(inner if isinstance(inner, dict) else {})
    if hasattr(nested, "attribute_map") and nested.__name__ != "AutoConfig":
        _override(inner, nested, rest, value)
    else:
        inner[rest] = value
    content[head] = inner


def _value(value: Any) -> Any:
    """Read `48`, `true`, `[1, 2]` from the command line as what they are; other text stays text."""
    if isinstance(value, str):
        with contextlib.suppress(ValueError, RecursionError):
            return json.loads(value)
    return value


def class_of(config: Any) -> Any:
    """The class that the configuration names, else the first auto class that knows it."""
    transformers = require("transformers", extra="hf")
    for name in getattr(config, "architectures", None) or ():
        named_class = getattr(transformers, name, None)
        if isinstance(named_class, type) and issubclass(named_class, transformers.PreTrainedModel):
            return named_class
    mappings = _MAPPINGS
    if hasattr(config, "vision_config") or hasattr(config, "audio_config"):
        mappings = _MAPPINGS_OF_SENSES
    elif getattr(config, "is_encoder_decoder", False):
        mappings = (*_MAPPINGS_OF_PAIRS, *_MAPPINGS)
    elif not getattr(config, "is_decoder", False):
        mappings = ("MODEL_FOR_MASKED_LM_MAPPING", *_MAPPINGS)
    fallback = None
    for name in mappings:
        mapping = getattr(transformers, name)
        if type(config) in mapping:
            model_class, fits = _mapped_class(mapping, config)
            if fits:
                return model_class
            fallback = fallback or model_class
    if fallback is not None:
        return fallback
    raise LoadingError(
        f"transformers {transformers.__version__} has no model for {type(config).__name__}; "
        "give a function that builds it, as package.module:function."
    )


def _mapped_class(mapping: Any, config: Any) -> tuple[Any, bool]:
    """The class that a mapping of transformers holds, and whether it was made for the configuration.

    Some mappings name the decoder of a larger model, which takes the decoder's configuration and
    not this one (Emu3). The class is imported only now, and a library may be missing.
    """
    try:
        entry = mapping[type(config)]
        model_class = entry[0] if isinstance(entry, (list, tuple)) else entry
        fits = isinstance(config, getattr(model_class, "config_class", None) or object)
    except (ImportError, OSError, RuntimeError, AttributeError, ValueError) as error:
        raise LoadingError(
            f"The model class for {type(config).__name__} cannot be imported: {words_of(error, first_line=True)}"
        ) from error
    return model_class, fits


def remote_class_of(config: Any, request: Request) -> Any:
    """The auto class through which a model's own code is run, when that was allowed."""
    auto_map = getattr(config, "auto_map", None)
    if not request.trust_remote_code or not auto_map:
        return None
    transformers = require("transformers", extra="hf")
    for name in ("AutoModelForCausalLM", "AutoModelForMaskedLM", "AutoModelForSeq2SeqLM"):
        if name in auto_map:
            return getattr(transformers, name)
    return transformers.AutoModel if "AutoModel" in auto_map else None
