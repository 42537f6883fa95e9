"""Copy: repeat a sequence after a delimiter.

    ids      s_1 ... s_n | s_1 ... s_(n-1)
    targets  -   ... -   s_1 s_2 ... s_n

s_i are uniform among v symbols; the delimiter | has the id v, so the vocabulary is v + 1 and the
length 2 n. Only the repeated part is counted. Unigram and bigram entropy are log v: neither the
frequency of a symbol nor the symbol before it says anything. v = 16, n = 16. After Graves et al.
2014, arXiv 1410.5401.
"""

from __future__ import annotations

import torch

from leadline.lab.tasks._batch import IGNORED, Batch
from leadline.lab.tasks._drawn import Drawn
from leadline.lab.tasks._task import TASKS, check_whole


@TASKS.register("copy")
class Copy(Drawn):
    """Repeat a random sequence after a delimiter."""

    name = "copy"

    def __init__(self, *, symbols: int = 16, items: int = 16) -> None:
        self.symbols = check_whole("copy", "symbols", symbols, least=2)
        self.items = check_whole("copy", "items", items)
        self.vocabulary = symbols + 1
        self.length = 2 * items

    def draw(self, examples: int, generator: torch.Generator) -> Batch:
        prompt = torch.randint(self.symbols, (examples, self.items), generator=generator)
        delimiter = prompt.new_full((examples, 1), self.symbols)
        nothing = torch.full_like(prompt, IGNORED)
        return Batch(
            torch.cat([prompt, delimiter, prompt[:, :-1]], 1), torch.cat([nothing, prompt], 1)
        )
