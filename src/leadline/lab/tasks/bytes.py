"""Language modelling by bytes: windows of a text, each byte predicted from those before it.

    ids = b_s ... b_(s+n-1),    targets = b_(s+1) ... b_(s+n),    n the length

The text is cut into chunks of 4096 bytes and every tenth is held out. Neighbouring chunks of one
part are a run, and a window of n + 1 bytes stands inside a run, so no validation byte is ever
trained on. A short text, or long windows, have chunks of another size, so that there are ten of
them and each holds eight windows: a text needs 80 (n + 1) bytes.

    chunk = max(8 (n + 1), min(4096, size // 10))

Training draws windows evenly from all places where one may begin. Validation takes them at equal
distances over all that is held out, so that a few stand for the whole.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from leadline.errors import InputError, LabError
from leadline.lab.tasks._batch import Batch
from leadline.lab.tasks._task import HELD_OUT, Task, at_least_one, check_whole, generator_of

__all__ = ["CHUNK", "HANDFUL", "ByteRuns", "ByteTask", "chunk_of", "split"]

CHUNK = 4096
"""The bytes of a chunk of a long text."""
HANDFUL = 8
"""A chunk holds at least so many windows."""


@dataclass(frozen=True, eq=False)
class ByteRuns:
    """The runs of one part of a text, and where a window may begin in them."""

    firsts: Tensor
    """[run] the first byte of each."""
    sizes: Tensor
    """[run] the bytes of each."""
    window: int

    @property
    def places(self) -> int:
        """At how many bytes a window may begin."""
        return int(self._ends[-1])

    def begin(self, place: Tensor) -> Tensor:
        """The byte at which the window of each place begins; places count from 0."""
        run = torch.searchsorted(self._ends, place, right=True)
        return self.firsts[run] + place - (self._ends[run] - self._starts[run])

    @property
    def _starts(self) -> Tensor:
        """[run] at how many bytes of each a window may begin."""
        return (self.sizes - self.window + 1).clamp(min=0)

    @property
    def _ends(self) -> Tensor:
        return self._starts.cumsum(0)


def chunk_of(size: int, window: int) -> int:
    """The bytes of a chunk."""
    return max(HANDFUL * window, min(CHUNK, size // HELD_OUT))


def split(size: int, window: int) -> tuple[ByteRuns, ByteRuns]:
    """The runs of training and of validation in a text of `size` bytes."""
    chunk = chunk_of(size, window)
    period = HELD_OUT * chunk
    training = [(s, min(s + period - chunk, size)) for s in range(0, size, period)]
    validation = [(s, min(s + chunk, size)) for s in range(period - chunk, size, period)]
    return _runs(training, window), _runs(validation, window)


def _runs(pairs: list[tuple[int, int]], window: int) -> ByteRuns:
    first, after = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).unbind(1)
    return ByteRuns(first, after - first, window)


class ByteTask(Task):
    """A task that says which text is read, and nothing else: it calls `read` once."""

    vocabulary = 256

    def read(self, text: bytes, *, source: str, length: int) -> None:
        """Take a text; `source` names it in a message."""
        self.length = check_whole(self.name, "length", length)
        window = length + 1
        least = HELD_OUT * HANDFUL * window
        if len(text) < least:
            raise InputError(
                f"{source} has {len(text):,} bytes, which is too short to train on windows of "
                f"{length} + 1 bytes and to hold some out: give {least:,} bytes or more, or a "
                "smaller length."
            )
        self.digest = hashlib.sha256(text).hexdigest()
        self._text = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        self._training_runs, self._validation_runs = split(len(text), window)

    def train(self, step: int, examples: int, *, seed: int) -> Batch:
        at_least_one(self.name, examples)
        generator = generator_of(self.name, seed=seed, step=step)
        place = torch.randint(self._training_runs.places, (examples,), generator=generator)
        return self._windows(self._training_runs.begin(place))

    def validation(self, examples: int) -> Batch:
        at_least_one(self.name, examples)
        places = self._validation_runs.places
        if examples > places:
            raise LabError(
                f"{examples:,} validation examples were asked for and the task {self.choice()} "
                f"has {places:,}; ask for fewer, or give a longer text."
            )
        # The middle of each of as many equal parts.
        return self._windows(
            self._validation_runs.begin((2 * torch.arange(examples) + 1) * places // (2 * examples))
        )

    def evidence(self) -> Iterable[Batch]:
        """Every training byte but the first of each run, with the byte before it."""
        for first, size in zip(
            self._training_runs.firsts.tolist(), self._training_runs.sizes.tolist(), strict=True
        ):
            run = self._text[first : first + size].long()
            yield Batch(run[None, :-1], run[None, 1:])

    def facts(self) -> dict[str, Any]:
        size = len(self._text)
        return {
            **super().facts(),
            "digest": self.digest,
            "bytes": size,
            "train_bytes": int(self._training_runs.sizes.sum()),
            "validation_bytes": int(self._validation_runs.sizes.sum()),
            "chunk": chunk_of(size, self.length + 1),
            "split": f"every {HELD_OUT}th chunk is held out",
        }

    def _windows(self, begin: Tensor) -> Batch:
        rows = self._text[begin[:, None] + torch.arange(self.length + 1)].long()
        return Batch(rows[:, :-1].contiguous(), rows[:, 1:].contiguous())
