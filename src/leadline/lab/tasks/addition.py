"""Modular addition: a + b mod p.

    ids      a b =
    targets  - - c,      c = (a + b) mod p

a and b are 0 to p - 1, = has the id p, so the vocabulary is p + 1 and the length 3. All p^2 pairs
are put in one order by a fixed permutation: the first floor(share p^2) are trained on, drawn
evenly with repetition, the others are held out. Validation takes the first of these. Unigram and
bigram entropy are near log p: frequencies are counted on all training pairs, and a sum that training
has more often is rarer in what is held out, so they are a little above it. p = 59, share = 0.5.
All pairs are held in memory, so p is at most 2048. After Power et al. 2022, arXiv 2201.02177.
"""

from __future__ import annotations

import numbers
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from leadline.errors import LabError
from leadline.lab.tasks._batch import IGNORED, Batch
from leadline.lab.tasks._task import TASKS, Task, at_least_one, check_whole, generator_of

MOST = 2048
"""The largest p."""


@TASKS.register("addition")
class Addition(Task):
    """Add two numbers modulo p."""

    name = "addition"
    causal = False

    def __init__(self, *, p: int = 59, share: float = 0.5) -> None:
        self.p = check_whole("addition", "p", p, least=2)
        if p > MOST:
            raise LabError(
                f"The option p of the task addition is {p}, and all p * p pairs are held in "
                f"memory; give at most {MOST}."
            )
        self.share = share
        self.vocabulary = p + 1
        self.length = 3
        is_number = isinstance(share, numbers.Real) and not isinstance(share, bool)
        count = int(share * p * p) if is_number and 0.0 < share < 1.0 else 0
        if count == 0:
            raise LabError(
                f"The option share of the task addition is {share!r}, which leaves no pair to "
                f"train on or to hold out of {p * p}; give a number between 0 and 1, such as 0.5."
            )
        order = torch.randperm(p * p, generator=generator_of(self.name, part="split"))
        self._training_pairs, self._validation_pairs = order[:count], order[count:]

    def train(self, step: int, examples: int, *, seed: int) -> Batch:
        at_least_one(self.name, examples)
        generator = generator_of(self.name, seed=seed, step=step)
        place = torch.randint(len(self._training_pairs), (examples,), generator=generator)
        return self._sums(self._training_pairs[place])

    def validation(self, examples: int) -> Batch:
        at_least_one(self.name, examples)
        if examples > len(self._validation_pairs):
            raise LabError(
                f"{examples:,} validation examples were asked for and the task {self.choice()} "
                f"holds out {len(self._validation_pairs):,}; ask for fewer, or give a larger p."
            )
        return self._sums(self._validation_pairs[:examples])

    def evidence(self) -> Iterable[Batch]:
        """Every training pair once."""
        return [self._sums(self._training_pairs)]

    def facts(self) -> dict[str, Any]:
        return {
            **super().facts(),
            "train_pairs": len(self._training_pairs),
            "validation_pairs": len(self._validation_pairs),
            "split": "by a fixed permutation of all pairs",
        }

    def _sums(self, pairs: Tensor) -> Batch:
        a, b = pairs // self.p, pairs % self.p
        ids = torch.stack([a, b, torch.full_like(a, self.p)], 1)
        nothing = torch.full_like(a, IGNORED)
        return Batch(ids, torch.stack([nothing, nothing, (a + b) % self.p], 1))
