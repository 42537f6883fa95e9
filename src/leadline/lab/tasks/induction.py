"""Induction: what followed a token the first time follows it again.

    ids      s_1 ... s_n  s_i s_(i+1)  s_j s_(j+1)  ...  s_k
    targets  -   ... -    s_(i+1) -    s_(j+1) -    ...  s_(k+1)

s is a sequence of n different symbols among v, uniform; then q times one of s_1 ... s_(n-1) is
shown again, uniform, and the symbol behind it is asked for and shown. Only these answers are
counted. The vocabulary is v, the length n + 2 q - 1. Unigram entropy log v, bigram entropy
log (v - 1): a symbol tells only that the next is another. v = 32, n = 16, q = 8. The pattern
A B ... A -> B of Olsson et al. 2022, arXiv 2209.11895.
"""

from __future__ import annotations

import torch

from leadline.errors import LabError
from leadline.lab.tasks._batch import Batch
from leadline.lab.tasks._drawn import Drawn, ask, draw_distinct
from leadline.lab.tasks._task import TASKS, check_whole


@TASKS.register("induction")
class Induction(Drawn):
    """Say what followed a symbol when it was shown before."""

    name = "induction"

    def __init__(self, *, symbols: int = 32, items: int = 16, queries: int = 8) -> None:
        self.symbols = check_whole("induction", "symbols", symbols, least=2)
        self.items = check_whole("induction", "items", items, least=2)
        self.queries = check_whole("induction", "queries", queries)
        if items > symbols:
            raise LabError(
                f"The task induction shows {items} different symbols and has {symbols}; "
                "give it as many symbols as items, or more."
            )
        self.vocabulary = symbols
        self.length = items + 2 * queries - 1

    def draw(self, examples: int, generator: torch.Generator) -> Batch:
        prompt = draw_distinct(
            examples, items=self.items, symbols=self.symbols, generator=generator
        )
        place = torch.randint(self.items - 1, (examples, self.queries), generator=generator)
        return ask(prompt, prompt.gather(1, place), prompt.gather(1, place + 1))
