"""Identity: say the token that stands here.

    ids      s_1 ... s_n
    targets  s_1 ... s_n

s_i are uniform among v symbols; the vocabulary is v, the length n. Unigram entropy log v, bigram
entropy 0: the token itself is the answer, so no context is needed, only a way for the token
through all layers. It asks nothing of the mask and works with any model. v = 64, n = 32.
"""

from __future__ import annotations

import torch

from leadline.lab.tasks._batch import Batch
from leadline.lab.tasks._drawn import Drawn
from leadline.lab.tasks._task import TASKS, check_whole


@TASKS.register("identity")
class IdentityTask(Drawn):
    """Say the token that stands at the position."""

    name = "identity"
    causal = False

    def __init__(self, *, symbols: int = 64, items: int = 32) -> None:
        self.symbols = check_whole("identity", "symbols", symbols, least=2)
        self.items = check_whole("identity", "items", items)
        self.vocabulary = symbols
        self.length = items

    def draw(self, examples: int, generator: torch.Generator) -> Batch:
        ids = torch.randint(self.symbols, (examples, self.items), generator=generator)
        return Batch(ids, ids.clone())
