"""Run a training loop twice, alone and watched, and compare everything that it computes.

def loop(run):                     # a loop gets a run, and tells it what it trains
    model = tiny_gpt2()
    optimizer = torch.optim.AdamW(model.parameters())
    run.watch(model, optimizer)
    ...
    run.loss(loss)

plain, watched = run_twice(loop, tmp_path, every=2)
assert watched.same_as(plain)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from leadline.lab.watch.watch import Watch, watch
from leadline.record import Reading, Record
from tests.watched import LENGTH, VOCABULARY

__all__ = ["TrainingRun", "batches", "rows_of", "run_twice", "sampled_steps", "train"]

UPDATES = 5
"""With `every=2` the updates 1, 2 and 4 are sampled."""


class TrainingRun:
    """What one training run computes, to the bit: losses, gradients, weights, random state."""

    def __init__(self, path: Path | None = None, **options: Any) -> None:
        self.path = path
        self.losses: list[Tensor] = []
        self.gradients: list[list[Tensor | None]] = []
        """Of every parameter, as every step of an optimizer takes them."""
        self.watcher: Watch | None = None
        self._options = {"every": 1, "quiet": True} | options
        self._model: nn.Module | None = None
        self._extra: list[Any] = []
        self._state: list[Tensor] = []

    def watch(
        self,
        model: nn.Module,
        optimizer: Any,
        *,
        watched: nn.Module | None = None,
        given: Any = ...,
        follow: bool = True,
        **options: Any,
    ) -> None:
        """Watch a model and its optimizers; `given` is what the watch gets in their place.

        Gradients are kept by a step hook, which a compiled step would compile: not without `follow`.
        """
        self._model = model
        steppers = optimizer if isinstance(optimizer, list) else [optimizer]
        for one in steppers if follow else ():
            one.register_step_pre_hook(self._keep_gradients)
        if self.path is not None:
            handed = optimizer if given is ... else given
            self.watcher = watch(
                model if watched is None else watched,
                handed,
                self.path,
                **(self._options | options),
            )

    def loss(self, value: Tensor) -> None:
        """Keep a loss."""
        self.losses.append(value.detach().clone())

    def _keep_gradients(self, *_: object) -> None:
        assert self._model is not None
        self.gradients.append(
            [None if p.grad is None else p.grad.detach().clone() for p in self._model.parameters()]
        )

    def end(self) -> None:
        """Close the watch and keep what the loop has left behind."""
        assert self._model is not None
        self._state = [one.detach().clone() for one in self._model.state_dict().values()]
        self._state.append(torch.get_rng_state())
        if self.watcher is not None:
            self.watcher.close()

    def differences(self, other: TrainingRun) -> list[str]:
        """What differs between two runs; nothing where they are equal bit for bit."""
        found: list[str] = []
        if not _equal(self.losses, other.losses):
            found.append("losses")
        if len(self.gradients) != len(other.gradients):
            found.append(f"steps: {len(self.gradients)} and {len(other.gradients)}")
        found += [
            f"gradients of step {at}"
            for at, (ours, theirs) in enumerate(
                zip(self.gradients, other.gradients, strict=False), start=1
            )
            if not _equal(ours, theirs)
        ]
        if not _equal(self._state, other._state):
            found.append("weights, buffers or the random state")
        return found


def _equal(ours: Sequence[Tensor | None], theirs: Sequence[Tensor | None]) -> bool:
    if len(ours) != len(theirs):
        return False
    for one, other in zip(ours, theirs, strict=True):
        if one is None or other is None:
            if one is not other:
                return False
        elif one.dtype != other.dtype or not _same_bits(one, other):
            return False
    return True


def _same_bits(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors are equal, NaN for NaN."""
    return torch.equal(one.nan_to_num(), other.nan_to_num()) and torch.equal(
        one.isnan(), other.isnan()
    )


def run_twice(
    loop: Callable[[TrainingRun], None], folder: Path, **options: Any
) -> tuple[TrainingRun, TrainingRun]:
    """Run a loop alone and then watched; the record is `run.leadline` in the folder."""
    runs = (TrainingRun(), TrainingRun(folder / "run.leadline", **options))
    for run in runs:
        torch.manual_seed(0)
        loop(run)
        run.end()
    return runs


def batches(count: int = UPDATES, *, examples: int = 2, seed: int = 3) -> list[dict[str, Tensor]]:
    """Batches of tokens that are their own labels."""
    generator = torch.Generator().manual_seed(seed)
    tokens = [
        torch.randint(VOCABULARY, (examples, LENGTH), generator=generator) for _ in range(count)
    ]
    return [{"input_ids": one, "labels": one} for one in tokens]


def sampled_steps(updates: int, every: int) -> list[int]:
    """The updates that are sampled: the first and every so-many-th."""
    return [step for step in range(1, updates + 1) if step == 1 or step % every == 0]


def train(
    run: TrainingRun,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: Sequence[dict[str, Tensor]],
    *,
    called: Any = None,
    clip: float | None = None,
) -> None:
    """Update a model that returns its loss once for every batch."""
    for batch in batches:
        loss = (model if called is None else called)(**batch).loss
        run.loss(loss)
        loss.backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        optimizer.zero_grad()


def rows_of(path: Path, quantity: str) -> dict[int, list[Reading]]:
    """The readings of a quantity in a record, by step."""
    rows: dict[int, list[Reading]] = {}
    with Record.open(path) as record:
        for reading in record.select(quantity) if quantity in record else ():
            rows.setdefault(reading.step, []).append(reading)
    return rows
