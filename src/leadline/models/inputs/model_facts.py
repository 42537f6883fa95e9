"""Read the facts of a model that its inputs depend on: vocabulary, positions, special ids.

Hugging Face models have them in their configuration; for other modules they come from the embedding
and the signature of `forward`.
"""

from __future__ import annotations

import inspect
from typing import Any, Literal

import torch
from torch import nn

from leadline.anatomy import configured_model, unwrapped

__all__ = [
    "context_limit",
    "forward_names",
    "ids_name",
    "is_pair",
    "main_name",
    "padding_id",
    "special_ids",
    "table_rows",
    "text_configuration",
    "token_beyond",
    "token_embedding",
    "virtual_tokens",
    "vocabulary_field",
    "vocabulary_size",
    "whole_number",
]

_POSITIONS = (
    "max_position_embeddings",
    "max_encoder_position_embeddings",
    "n_positions",
    "max_seq_len",
    "max_target_positions",
    "block_size",  # nanoGPT's; BigBird's is another thing, but it names its positions above
)
_PLAIN_POSITIONS = (*_POSITIONS, "context_length", "max_seq_length", "sequence_len")
_VOCABULARIES = ("vocab_size", "src_vocab_size", "tgt_vocab_size", "decoder_vocab_size")
# Model types that name a number of positions but do not stop there.
_UNLIMITED = frozenset({"t5", "mt5", "umt5", "longt5", "switch_transformers", "xlnet", "mamba"})


def text_configuration(model: nn.Module) -> Any:
    """The configuration of the text part of a Hugging Face model, or None."""
    config: Any = getattr(configured_model(model), "config", None)
    if not hasattr(config, "get_text_config"):
        return config
    try:
        return config.get_text_config()
    except ValueError:
        # An encoder of text before a decoder of sound (MusicGen): two of them may be meant, and
        # what the model predicts is the decoder's.
        return config.get_text_config(decoder=True)


def vocabulary_size(model: nn.Module) -> int | None:
    """How many token ids the model takes; None where it takes none."""
    embedding = token_embedding(model)
    sizes = [embedding.num_embeddings] if embedding is not None else []
    config = text_configuration(model)
    sizes += [
        size
        for name in _VOCABULARIES
        if isinstance(size := getattr(config, name, None), int) and size > 0
    ]
    return min(sizes) if sizes else None


def vocabulary_field(model: nn.Module) -> str:
    """The field that sets the size of the vocabulary, with the nested configuration it is in."""
    config = getattr(configured_model(model), "config", None)
    nested = next(
        (name for name in getattr(config, "sub_configs", {}) if name.startswith("text")), None
    )
    return "vocab_size" if nested is None else f"{nested}.vocab_size"


def token_embedding(model: nn.Module) -> nn.Embedding | None:
    """The table of token ids: the one that the model names, else its first; None without any.

    A table that is called one of positions comes after all others.
    """
    inner = configured_model(model)
    if hasattr(inner, "get_input_embeddings"):
        try:
            table = inner.get_input_embeddings()  # pyright: ignore[reportCallIssue]
        except (NotImplementedError, AttributeError):
            table = None
        if isinstance(table, nn.Embedding):
            return table
        return None
    return _first_table(inner)


def _first_table(module: nn.Module) -> nn.Embedding | None:
    tables = [(n, m) for n, m in module.named_modules() if isinstance(m, nn.Embedding)]
    tables.sort(key=lambda one: _is_of_positions(one[0]))
    return tables[0][1] if tables else None


def table_rows(model: nn.Module, part: Literal["encoder", "decoder"]) -> int | None:
    """How many rows the table has that the ids of one half of a pair enter; None where unknown.

    The halves may have vocabularies of their own (Dia: bytes of text and codes of sound), and the
    configuration names one.
    """
    ask: Any = getattr(configured_model(model), f"get_{part}", None)
    half = ask() if callable(ask) and is_pair(model) else None
    if not isinstance(half, nn.Module):
        return None
    table = token_embedding(half) or _first_table(half)
    return None if table is None else table.num_embeddings


def _is_of_positions(name: str) -> bool:
    return any(word in name.lower() for word in ("pos", "wpe"))


def context_limit(model: nn.Module) -> int | None:
    """The number of tokens that the model has positions for; None where it names no limit.

    RoBERTa's kind counts positions from the padding id on, so some of the table is out of reach.
    """
    limit = _positions(model)
    return None if limit is None else limit - virtual_tokens(model)


def virtual_tokens(model: nn.Module) -> int:
    """How many tuned tokens PEFT puts before the text (prefix and prompt tuning)."""
    config = getattr(unwrapped(model), "active_peft_config", None)
    count = getattr(config, "num_virtual_tokens", None)
    return count if isinstance(count, int) else 0


def _positions(model: nn.Module) -> int | None:
    limit_of_model = getattr(configured_model(model), "context_limit", None)
    if isinstance(limit_of_model, int):
        return limit_of_model
    config = text_configuration(model)
    if not hasattr(config, "model_type"):
        return _plain_positions(configured_model(model), config)
    if config.model_type in _UNLIMITED:
        return None
    limits = [
        limit
        for name in _POSITIONS
        if isinstance(limit := getattr(config, name, None), int) and limit > 0
    ]
    if not limits:
        return None
    for name, module in configured_model(model).named_modules():
        if not isinstance(module, nn.Embedding) or not name.endswith("position_embeddings"):
            continue
        if module.padding_idx is not None and module.num_embeddings == limits[0]:
            return limits[0] - module.padding_idx - 1
    return limits[0]


def _plain_positions(model: nn.Module, config: Any) -> int | None:
    """The limit of a model outside transformers: by its configuration, else its table of positions."""
    for name in _PLAIN_POSITIONS:
        if isinstance(limit := getattr(config, name, None), int) and limit > 0:
            return limit
    tables = [
        module.num_embeddings
        for name, module in model.named_modules()
        if isinstance(module, nn.Embedding) and _is_of_positions(name) and "rel" not in name.lower()
    ]
    return min(tables) if tables else None


def special_ids(model: nn.Module) -> set[int]:
    """The ids that the configuration names for padding, start, end, mask, images and the like."""
    ids: set[int] = set()
    configs: list[Any] = [
        getattr(configured_model(model), "config", None),
        text_configuration(model),
    ]
    for config in configs:
        if not hasattr(config, "to_dict"):
            continue
        for name, value in config.to_dict().items():
            if name.endswith(("token_id", "token_index")):
                values = value if isinstance(value, list) else [value]
                ids |= {item for item in values if isinstance(item, int)}
    return ids


def whole_number(config: Any, *names: str) -> int | None:
    """The first of the fields that holds a whole number above zero."""
    for name in names:
        value = getattr(config, name, None)
        value = value[0] if isinstance(value, list | tuple) and value else value
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None


def token_beyond(model: nn.Module, sense: Literal["image", "audio"]) -> tuple[int, int] | None:
    """The token that stands for an image or a sound, and the vocabulary that it lies outside of.

    None where the configuration names no such token, or one of its vocabulary. The defaults of
    some types do not fit together (LLaVA: token 32000 and 32000 tokens).
    """
    config = getattr(configured_model(model), "config", None)
    token = whole_number(config, f"{sense}_token_id", f"{sense}_token_index")
    size = vocabulary_size(model)
    return (token, size) if token is not None and size is not None and token >= size else None


def padding_id(model: nn.Module) -> int:
    """An id to fill short rows with; the mask hides what it becomes."""
    config = text_configuration(model)
    vocabulary = vocabulary_size(model)
    for name in ("pad_token_id", "eos_token_id"):
        value = getattr(config, name, None)
        value = value[0] if isinstance(value, list) and value else value
        # A configuration may name an id that its own vocabulary does not have.
        if isinstance(value, int) and 0 <= value < (vocabulary or value + 1):
            return value
    return 0


def is_pair(model: nn.Module) -> bool:
    """Whether the model is an encoder with a decoder."""
    config = getattr(configured_model(model), "config", None)
    return bool(getattr(config, "is_encoder_decoder", False))


def forward_names(model: nn.Module) -> list[str]:
    """The names of the arguments of `forward`, without *args and **kwargs."""
    parameters = inspect.signature(configured_model(model).forward).parameters.values()
    return [p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]


def main_name(model: nn.Module) -> str:
    """The name under which the model takes its main input."""
    declared = getattr(configured_model(model), "main_input_name", None)
    if isinstance(declared, str):
        return declared
    names = forward_names(model)
    return names[0] if names else "input"


def ids_name(model: nn.Module) -> str:
    """The name under which the model takes token ids; its main input may be an image."""
    main = main_name(model)
    is_ids = main in ("input_ids", "decoder_input_ids")
    return "input_ids" if not is_ids and "input_ids" in forward_names(model) else main


def float_type(model: nn.Module) -> torch.dtype:
    """The number type of the model's weights, for inputs that are not ids."""
    for parameter in model.parameters():
        if parameter.is_floating_point():
            return parameter.dtype
    return torch.get_default_dtype()


def device_of(model: nn.Module) -> torch.device:
    """Where the first parameter is."""
    for parameter in model.parameters():
        return parameter.device
    return torch.device("cpu")
