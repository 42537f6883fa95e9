"""What a stuck model scores: cross-entropies by frequencies alone, in nats per counted target.

    unigram = mean of -log (n(y) + a) / (n + a V)
    bigram  = mean of -log (n(x, y) + a) / (n(x) + a V)

n counts training targets: all of them, those equal to y, those whose input token at the same
position is x, and those with both. The mean is over the counted targets y of a validation batch,
x the input token at their position; for text that is the byte before the predicted one. V is the
size of the vocabulary. a = 0.01 keeps a pair that training never shows from costing infinitely
much, and changes nothing where pairs are seen often.

Neither is above log V, which a model scores that knows nothing: held-out targets that training
hardly shows would cost more than that, and a loss below them would mean nothing.

A model that gives one answer everywhere cannot get below the unigram entropy, except by chance;
one that looks at the token of its position alone, not below the bigram entropy.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from leadline.lab.tasks._batch import IGNORED, Batch

__all__ = ["ADDED", "Counts", "Entropies", "count", "entropies_of"]

ADDED = 0.01
"""a: what is added to every count, so that an unseen pair has a finite cost."""


@dataclass(frozen=True)
class Entropies:
    """Cross-entropies of validation targets by the frequencies of training, nats per target.

    Both are at most log V, V the size of the vocabulary.
    """

    unigram: float
    """By how often each target occurs."""
    bigram: float
    """By how often it occurs where the input token at the same position is the same."""


@dataclass(frozen=True, eq=False)
class Counts:
    """How often training shows what. A pair has the code x V + y; codes are sorted."""

    vocabulary: int
    codes: Tensor
    pairs: Tensor
    """How often the pair of each code occurs."""
    inputs: Tensor
    """[V] how often each input token stands where a target is counted."""
    targets: Tensor
    """[V] how often each target is asked for."""


def count(batches: Iterable[Batch], vocabulary: int) -> Counts:
    """Count inputs, targets and pairs of both over batches."""
    codes_by_batch = [_codes(batch, vocabulary) for batch in batches]
    codes, pairs = torch.cat(codes_by_batch).unique(return_counts=True)
    inputs, targets = torch.zeros(2, vocabulary, dtype=torch.int64)
    return Counts(
        vocabulary=vocabulary,
        codes=codes,
        pairs=pairs,
        inputs=inputs.index_add(0, codes // vocabulary, pairs),
        targets=targets.index_add(0, codes % vocabulary, pairs),
    )


def entropies_of(counts: Counts, batch: Batch) -> Entropies:
    """Return the cross-entropies of a batch by the counts of training."""
    codes = _codes(batch, counts.vocabulary)
    x, y = codes // counts.vocabulary, codes % counts.vocabulary
    place = torch.searchsorted(counts.codes, codes).clamp(max=len(counts.codes) - 1)
    both = torch.where(counts.codes[place] == codes, counts.pairs[place], 0)
    return Entropies(
        unigram=_cost(counts.targets[y], counts.targets.sum(), counts.vocabulary),
        bigram=_cost(both, counts.inputs[x], counts.vocabulary),
    )


def _codes(batch: Batch, vocabulary: int) -> Tensor:
    counted = batch.targets != IGNORED
    return batch.ids[counted] * vocabulary + batch.targets[counted]


def _cost(hits: Tensor, total: Tensor, vocabulary: int) -> float:
    share = (hits.double() + ADDED) / (total.double() + ADDED * vocabulary)
    return min(float(-share.log().mean()), math.log(vocabulary))
