"""Associative recall: keys with their values, then keys whose values are asked for.

    ids      k_1 v_1 ... k_n v_n  k_i v_i  k_j v_j  ...  k_l
    targets  -   -   ... -   -    v_i -    v_j -    ...  v_l

The keys are n different ones among K, uniform; values are uniform among V, equal ones included;
then q times one of the n keys is shown, uniform, and its value asked for and shown. Only these
answers are counted. Keys have the ids 0 to K - 1, values K to K + V - 1, so the vocabulary is
K + V; the length is 2 n + 2 q - 1. Unigram and bigram entropy are log V. K = 16, V = 16, n = 8,
q = 4. After Arora et al. 2023, arXiv 2312.04927.
"""

from __future__ import annotations

import torch

from leadline.errors import LabError
from leadline.lab.tasks._batch import Batch
from leadline.lab.tasks._drawn import Drawn, ask, draw_distinct
from leadline.lab.tasks._task import TASKS, check_whole


@TASKS.register("recall")
class Recall(Drawn):
    """Say the value that a key was shown with."""

    name = "recall"

    def __init__(
        self, *, keys: int = 16, values: int = 16, pairs: int = 8, queries: int = 4
    ) -> None:
        self.keys = check_whole("recall", "keys", keys)
        self.values = check_whole("recall", "values", values, least=2)
        self.pairs = check_whole("recall", "pairs", pairs)
        self.queries = check_whole("recall", "queries", queries)
        if pairs > keys:
            raise LabError(
                f"The task recall shows {pairs} pairs with different keys and has {keys} keys; "
                "give it as many keys as pairs, or more."
            )
        self.vocabulary = keys + values
        self.length = 2 * pairs + 2 * queries - 1

    def draw(self, examples: int, generator: torch.Generator) -> Batch:
        key = draw_distinct(examples, items=self.pairs, symbols=self.keys, generator=generator)
        value = torch.randint(self.values, (examples, self.pairs), generator=generator) + self.keys
        place = torch.randint(self.pairs, (examples, self.queries), generator=generator)
        prompt = torch.stack([key, value], 2).flatten(1)
        return ask(prompt, key.gather(1, place), value.gather(1, place))
