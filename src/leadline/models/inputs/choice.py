"""Which inputs were chosen, before there is a model: a text, a file, or random tokens of a seed.

A command line and a scan of many checkpoints choose once and read the same choice with every model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from leadline.models.inputs.drawn import random_inputs
from leadline.models.inputs.model_facts import context_limit
from leadline.models.inputs.text import text_file, text_inputs
from leadline.models.inputs.token_files import token_file

if TYPE_CHECKING:
    from leadline.models.inputs.batch import Inputs
    from leadline.models.loading import LoadedModel

__all__ = ["DEFAULT_SIZE", "InputChoice"]

DEFAULT_SIZE = (4, 128)
"""Examples and length where no size is named; the length is cut to the model's context."""


@dataclass(frozen=True)
class InputChoice:
    """One kind of input; random tokens where none is named. Sizes are (examples, length)."""

    text: Sequence[str] = ()
    text_file: Path | None = None
    windows: tuple[int, int] | None = None
    tokens_file: Path | None = None
    random: tuple[int, int] | None = None
    truncate: bool = False
    seed: int = 0

    def read(self, loaded: LoadedModel) -> Inputs:
        """Make the inputs for a model, with its own tokenizer."""
        model = loaded.model
        if self.text:
            return text_inputs(self.text, loaded.tokenizer, model, truncate=self.truncate)
        if self.text_file is not None:
            examples, length = _size(self.windows, loaded)
            return text_file(
                self.text_file,
                loaded.tokenizer,
                model,
                examples=examples,
                length=length,
                truncate=self.truncate,
            )
        if self.tokens_file is not None:
            return token_file(self.tokens_file, model, truncate=self.truncate)
        examples, length = _size(self.random, loaded)
        return random_inputs(model, examples=examples, length=length, seed=self.seed)


def _size(size: tuple[int, int] | None, loaded: LoadedModel) -> tuple[int, int]:
    """The size asked for; without one the default, cut to the model's context."""
    if size is not None:
        return size
    examples, length = DEFAULT_SIZE
    limit = context_limit(loaded.model)
    return examples, length if limit is None else min(length, limit)
