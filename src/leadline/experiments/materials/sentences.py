"""Short English sentences of a wanted number of tokens, drawn from a seed, or read from a CSV.

The i-th sentence has the same number of tokens for every tokenizer, where that tokenizer can make
one so short: matrices of different sizes have different norms, so models are compared at equal
sizes. A model without a tokenizer gets random token ids of the same lengths.
"""

from __future__ import annotations

import csv
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from leadline.errors import InputError

__all__ = ["COLUMN", "lengths", "random_rows", "read_sentences", "sentence_rows"]

COLUMN = "token_sequence"
_TRIES = 400
_WORDS = {
    "a": ["the", "a", "this", "that", "one", "her", "his", "my", "our", "some"],
    "j": [
        "old",
        "small",
        "red",
        "cold",
        "bright",
        "quiet",
        "green",
        "long",
        "young",
        "warm",
        "dark",
        "open",
    ],
    "n": [
        "man",
        "house",
        "river",
        "dog",
        "road",
        "tree",
        "ship",
        "child",
        "door",
        "bird",
        "king",
        "day",
        "night",
        "book",
        "fire",
    ],
    "v": [
        "saw",
        "found",
        "took",
        "left",
        "made",
        "held",
        "heard",
        "met",
        "built",
        "knew",
        "called",
        "sold",
    ],
    "p": ["in", "on", "by", "near", "under", "over", "from", "with", "behind"],
    "r": ["slowly", "again", "today", "there", "often", "never", "then", "once"],
    "c": ["and", "but", "while", "because"],
}
_CLAUSE = "anvajnpanrcajnvanpajnr"


def lengths(low: int, high: int, *, count: int, seed: int) -> list[int]:
    """How many tokens each sentence shall have, drawn evenly."""
    draw = random.Random(f"{seed} lengths {low} {high}")  # noqa: S311
    return [draw.randint(low, high) for _ in range(count)]


def random_rows(wanted: Sequence[int], *, vocabulary: int, seed: int) -> list[list[int]]:
    """Rows of random token ids."""
    draw = random.Random(f"{seed} ids")  # noqa: S311
    return [[draw.randrange(vocabulary) for _ in range(length)] for length in wanted]


def sentence_rows(
    wanted: Sequence[int], tokenizer: Any, *, seed: int
) -> tuple[list[list[int]], list[str]]:
    """Token rows and their sentences; the shortest that the tokenizer can make where it must."""
    draw = random.Random(f"{seed} words")  # noqa: S311
    least = len(_ids(tokenizer, draw.choice(_WORDS["n"])))
    rows: list[list[int]] = []
    texts: list[str] = []
    for length in wanted:
        target = max(length, least)
        for _ in range(_TRIES):
            text = _sentence(draw, max(1, target - least + 1 + draw.choice((-1, 0, 0, 0))))
            ids = _ids(tokenizer, text)
            if len(ids) == target:
                rows.append(ids)
                texts.append(text)
                break
        else:
            raise InputError(
                f"No sentence of {target} tokens was found for this tokenizer in {_TRIES} tries; "
                "give sentences of your own with --csv."
            )
    return rows, texts


def read_sentences(path: Path) -> list[str]:
    """The column `token_sequence` of a CSV file."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            if reader.fieldnames is None or COLUMN not in reader.fieldnames:
                found = ", ".join(reader.fieldnames or ()) or "none"
                raise InputError(
                    f"{path} has no column {COLUMN!r}; its columns: {found}. Name the column of "
                    f"the sentences {COLUMN}."
                )
            texts = [(row[COLUMN] or "").strip() for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} cannot be read as a CSV file: {error}.") from error
    texts = [text for text in texts if text]
    if not texts:
        raise InputError(f"{path} holds no sentence in its column {COLUMN!r}.")
    return texts


def _sentence(draw: random.Random, words: int) -> str:
    if words == 1:
        return draw.choice(_WORDS["n"])
    kinds = (_CLAUSE[1:] if words < 4 else _CLAUSE) * (1 + words // len(_CLAUSE))
    return " ".join(draw.choice(_WORDS[kind]) for kind in kinds[:words])


def _ids(tokenizer: Any, text: str) -> list[int]:
    encoded = tokenizer(text)
    found = encoded["input_ids"] if hasattr(encoded, "keys") else encoded
    return [int(token) for token in found]
