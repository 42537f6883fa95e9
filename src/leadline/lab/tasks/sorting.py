"""Sorting: a sequence, then the same in rising order after a delimiter.

    ids      s_1 ... s_n | y_1 ... y_(n-1)
    targets  -   ... -   y_1 y_2 ... y_n,      y = sort(s)

s_i are uniform among v symbols, equal ones included; the delimiter | has the id v, so the
vocabulary is v + 1 and the length 2 n. Only the sorted part is counted. The unigram entropy is
log v; the bigram entropy is lower, because what follows a symbol is not below it and mostly near.
v = 16, n = 16. After the sorting task of Graves et al. 2014, arXiv 1410.5401.
"""

from __future__ import annotations

import torch

from leadline.lab.tasks._batch import IGNORED, Batch
from leadline.lab.tasks._drawn import Drawn
from leadline.lab.tasks._task import TASKS, check_whole


@TASKS.register("sorting")
class Sorting(Drawn):
    """Write a random sequence in rising order."""

    name = "sorting"

    def __init__(self, *, symbols: int = 16, items: int = 16) -> None:
        self.symbols = check_whole("sorting", "symbols", symbols, least=2)
        self.items = check_whole("sorting", "items", items)
        self.vocabulary = symbols + 1
        self.length = 2 * items

    def draw(self, examples: int, generator: torch.Generator) -> Batch:
        prompt = torch.randint(self.symbols, (examples, self.items), generator=generator)
        rising = prompt.sort(1).values
        delimiter = prompt.new_full((examples, 1), self.symbols)
        nothing = torch.full_like(prompt, IGNORED)
        return Batch(
            torch.cat([prompt, delimiter, rising[:, :-1]], 1), torch.cat([nothing, rising], 1)
        )
