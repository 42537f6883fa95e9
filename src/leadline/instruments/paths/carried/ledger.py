"""What follows from the owners of an operation's arguments, worked out once for all equal layers.

Who owns a result depends on the operation, on shapes and on whose the arguments are, and not on
any number of the stream. Layers repeat the same operations on tokens of the same owners, so every
answer is kept under its question, in which owners stand as objects: two labels are the same if they
are one tensor. Answers of the last two blocks are kept, so memory does not grow with depth.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

__all__ = ["RowLedger"]

T = TypeVar("T")


class RowLedger:
    """Answers by question, those of this block and of the one before it."""

    def __init__(self) -> None:
        self._block: dict[Hashable, tuple[Any, Any]] = {}
        self._before: dict[Hashable, tuple[Any, Any]] = {}

    def answer(self, question: Hashable, compute: Callable[[], T], *, about: Any) -> T:
        """The answer to a question. `about`: what it names by `id`, which is kept alive here."""
        known = self._block.get(question)
        if known is None:
            known = self._before.get(question) or (compute(), about)
            self._block[question] = known
        return known[0]

    def turn(self) -> None:
        """A block has ended: let go of what was not asked in it."""
        self._before, self._block = self._block, {}
