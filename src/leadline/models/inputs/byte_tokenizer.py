"""Text as its UTF-8 bytes: the tokenizer of a model whose vocabulary is the 256 bytes."""

from __future__ import annotations

from collections.abc import Iterable

from leadline.errors import InputError

__all__ = ["ByteTokenizer"]


class ByteTokenizer:
    """A token is a byte, its id the byte's value; no special tokens."""

    vocabulary = 256

    def __call__(self, text: str) -> list[int]:
        """The ids of a text."""
        try:
            return list(text.encode("utf-8"))
        except UnicodeEncodeError as error:
            raise InputError(
                f"Character {error.start + 1} of the text ({text[error.start]!r}) is half of a "
                "character and has no UTF-8 bytes; take it out."
            ) from error

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids; bytes that are no UTF-8, such as a character cut in two, become U+FFFD."""
        numbers = [int(token) for token in ids]
        for place, token in enumerate(numbers, start=1):
            if not 0 <= token < self.vocabulary:
                raise InputError(
                    f"Token {place} has the id {token}, which is no byte; give ids from 0 to 255."
                )
        return bytes(numbers).decode("utf-8", errors="replace")
