"""Tasks whose examples are drawn at random.

Training and validation have generators of their own, and no example is ever in both: the ids of
an example decide where it belongs. With t_i the token at position i, from 1,

    h = sum_i (t_i 48271^i mod P) mod P,    P = 2^31 - 1

an example is held out where 10 divides h. Training skips these and validation takes no others,
however few examples there are.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor

from leadline.errors import LabError
from leadline.lab.tasks._batch import IGNORED, Batch
from leadline.lab.tasks._entropies import Entropies
from leadline.lab.tasks._task import HELD_OUT, Task, at_least_one, generator_of

__all__ = ["Drawn", "ask", "draw_distinct", "is_held_out"]

_PRIME = 2**31 - 1
_FACTOR = 48271
_ROUNDS = 100
"""A task that gives too few examples in so many draws of a batch is refused."""
_TIMES = 20
"""From so many training targets per symbol on, a symbol that is not among them counts as unseen."""


class Drawn(Task):
    """A task that says how examples are drawn, and nothing else."""

    @abstractmethod
    def draw(self, examples: int, generator: torch.Generator) -> Batch:
        """Draw so many examples, held out or not."""

    def train(self, step: int, examples: int, *, seed: int) -> Batch:
        generator = generator_of(self.name, seed=seed, step=step)
        return self._take(examples, generator, held_out=False)

    def validation(self, examples: int) -> Batch:
        generator = generator_of(self.name, part="validation")
        return self._take(examples, generator, held_out=True)

    def entropies(self, examples: int) -> Entropies:
        """See `Task`; a task that asks in validation only for what training never does is refused."""
        targets = self.validation(examples).targets
        counts = self._counts.targets
        unseen = not bool(counts[targets[targets != IGNORED]].any())
        # So many draws that a symbol that can be drawn is among them.
        if unseen and int(counts.sum()) >= _TIMES * self.vocabulary:
            raise LabError(
                f"Validation of the task {self.choice()} asks only for symbols that its training "
                "examples never do, so nothing can be learned for it; give it larger options."
            )
        return super().entropies(examples)

    def facts(self) -> dict[str, Any]:
        return {
            **super().facts(),
            "split": f"by a hash of the ids, one example in {HELD_OUT} is held out",
        }

    def _take(self, examples: int, generator: torch.Generator, *, held_out: bool) -> Batch:
        at_least_one(self.name, examples)
        # A quarter more than is needed on average: one round is nearly always enough.
        draws = 16 + examples * (HELD_OUT if held_out else 1) * 5 // 4
        ids, targets = [], []
        for _ in range(_ROUNDS):
            batch = self.draw(draws, generator)
            belongs = is_held_out(batch.ids) == held_out
            ids.append(batch.ids[belongs])
            targets.append(batch.targets[belongs])
            if sum(map(len, ids)) >= examples:
                return Batch(torch.cat(ids)[:examples], torch.cat(targets)[:examples])
        raise LabError(
            f"The task {self.choice()} has too few different examples to have some "
            f"{'held out' if held_out else 'to train on'}; give it larger options."
        )


def is_held_out(ids: Tensor) -> Tensor:
    """Return [example] whether each example belongs to validation."""
    factors = [pow(_FACTOR, i + 1, _PRIME) for i in range(ids.shape[1])]
    mixed = (ids * torch.tensor(factors) % _PRIME).sum(1) % _PRIME
    return mixed % HELD_OUT == 0


def ask(prompt: Tensor, query: Tensor, answer: Tensor) -> Batch:
    """Return examples of a prompt and then queries with their answers, the last without its answer."""
    tail = torch.stack([query, answer], 2).flatten(1)[:, :-1]
    targets = torch.stack([answer, torch.full_like(answer, IGNORED)], 2).flatten(1)[:, :-1]
    return Batch(
        torch.cat([prompt, tail], 1), torch.cat([torch.full_like(prompt, IGNORED), targets], 1)
    )


def draw_distinct(examples: int, *, items: int, symbols: int, generator: torch.Generator) -> Tensor:
    """Return [example, item] symbols, different in every example and in uniformly random order."""
    noise = torch.rand(examples, symbols, generator=generator)
    # Stable: a tie has the same order on every machine.
    return noise.sort(dim=1, stable=True).indices[:, :items]
