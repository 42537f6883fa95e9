"""Text through a tokenizer: one example per text, or a file cut into windows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from leadline.errors import InputError, check_count, check_path
from leadline.models.inputs.batch import Inputs, check_ids, check_length, pad_rows, shorten
from leadline.models.inputs.model_facts import (
    context_limit,
    device_of,
    is_pair,
    main_name,
    padding_id,
    text_configuration,
    vocabulary_size,
)

__all__ = ["inputs_from_rows", "text_file", "text_inputs"]


def text_inputs(
    texts: str | Sequence[str], tokenizer: Any, model: nn.Module, *, truncate: bool = False
) -> Inputs:
    """One example per text, padded on the right; special tokens as the tokenizer puts them."""
    texts = [texts] if isinstance(texts, str) else list(texts)
    _check_tokenizer(tokenizer)
    if not texts:
        raise InputError("There is no text; give at least one (--text on the command line).")
    for number, text in enumerate(texts, start=1):
        if not text.strip():
            raise InputError(f"Text {number} of {len(texts)} is empty; give some words.")
    rows = [_encode(tokenizer, text) for text in texts]
    return inputs_from_rows(
        rows,
        model,
        kind="text",
        truncate=truncate,
        preview=shorten(texts[0]),
        mask_token_id=getattr(tokenizer, "mask_token_id", None),
    )


def text_file(
    path: str | Path,
    tokenizer: Any,
    model: nn.Module,
    *,
    examples: int = 4,
    length: int = 128,
    by_line: bool = False,
    truncate: bool = False,
) -> Inputs:
    """A UTF-8 file as windows of `length` tokens, the first `examples` of them.

    With `by_line` each line that is not blank is an example of its own, again the first
    `examples` of them.
    """
    _check_tokenizer(tokenizer)
    examples = check_count(examples, "examples", example="examples=4 (--windows 4x128)")
    length = check_count(length, "length", example="length=128 (--windows 4x128)")
    text = read_text(check_path(path, error=InputError))
    if by_line:
        lines = [line for line in text.splitlines() if line.strip()][:examples]
        rows = [_encode(tokenizer, line) for line in lines]
    else:
        limit = context_limit(model)
        if limit is not None and length > limit:
            if not truncate:
                check_length(length, limit, what="A window of the text")
            length = limit
        rows = _windows(tokenizer, text, length)[:examples]
    return inputs_from_rows(
        rows,
        model,
        kind="text file",
        truncate=truncate,
        preview=shorten(text),
        mask_token_id=getattr(tokenizer, "mask_token_id", None),
    )


def inputs_from_rows(
    rows: Sequence[Sequence[int]],
    model: nn.Module,
    *,
    kind: str,
    truncate: bool = False,
    preview: str = "",
    mask_token_id: int | None = None,
) -> Inputs:
    """Rows of token ids, checked against the model and padded.

    An encoder-decoder reads the row with its encoder and writes it again with its decoder, which
    sees it behind the start token.
    """
    pair = is_pair(model)
    limit = context_limit(model)
    if truncate and limit is not None:
        rows = [row[:limit] for row in rows]
    for number, row in enumerate(rows, start=1):
        if not row:
            raise InputError(f"Example {number} of {len(rows)} has no tokens; give some.")
    check_ids(rows, vocabulary_size(model))
    longest = max(len(row) for row in rows)
    check_length(longest, limit, what="The longest example")
    ids, mask = pad_rows(rows, padding_id(model))
    tensors: dict[str, Tensor] = {main_name(model): ids}
    if mask is not None:
        tensors["attention_mask"] = mask.long()
    decoder_mask = None
    if pair:
        tensors["decoder_input_ids"], decoder_mask = _behind_start(ids, mask, model)
        if decoder_mask is not None:
            tensors["decoder_attention_mask"] = decoder_mask.long()
    inputs = Inputs(
        tensors,
        mask=mask,
        kind=kind,
        preview=preview or "",
        decoder_mask=decoder_mask,
        mask_token_id=mask_token_id,
    )
    return inputs.to(device_of(model))


def _behind_start(
    ids: Tensor, mask: Tensor | None, model: nn.Module
) -> tuple[Tensor, Tensor | None]:
    config = text_configuration(model)
    start = getattr(config, "decoder_start_token_id", None)
    if not isinstance(start, int):
        start = padding_id(model)
    shifted = torch.cat([torch.full_like(ids[:, :1], start), ids[:, :-1]], dim=1)
    if mask is None:
        return shifted, None
    return shifted, torch.cat([torch.ones_like(mask[:, :1]), mask[:, :-1]], dim=1)


def _check_tokenizer(tokenizer: Any) -> None:
    if tokenizer is None:
        raise InputError(
            "The model came without a tokenizer, so it cannot read text; give token ids "
            "(leadline.models.inputs.token_file, --tokens-file) or random tokens "
            "(leadline.random_tokens, --random 4x128)."
        )


def _encode(tokenizer: Any, text: str) -> list[int]:
    encoded: Any = tokenizer(text) if callable(tokenizer) else tokenizer.encode(text)
    ids: Any = encoded["input_ids"] if hasattr(encoded, "keys") else encoded
    return [int(token) for token in getattr(ids, "ids", ids)]


def _windows(tokenizer: Any, text: str, length: int) -> list[list[int]]:
    """Consecutive windows. Tokenizers of transformers put special tokens around each of them."""
    if getattr(tokenizer, "is_fast", False):
        encoded = tokenizer(
            text, truncation=True, max_length=length, return_overflowing_tokens=True
        )
        return [list(row) for row in encoded["input_ids"]]
    ids = _encode(tokenizer, text)
    return [ids[start : start + length] for start in range(0, len(ids), length)]


def read_text(path: Path) -> str:
    """Read the text of a file, or raise an InputError that says what is wrong with it."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} is not text in UTF-8 (byte {error.start}); convert it first."
        ) from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from error
    if not text.strip():
        raise InputError(f"{path} is empty; give a file with some words.")
    return text
