"""LAuReL: learned weights, a low-rank map or earlier streams beside the plain stream.

    rw    x' = b x + a u,        (a, b) = 2 softmax(a~, b~)
    lr    x' = x + B A x + u
    pa    x' = x + B A (sum_j g_j x_{i-j}) + u,        j = 0 .. k - 1

Menghani, Kumar and Kumar 2024, arXiv 2411.07501: residual weights, low rank, previous
activations. x_i is the stream before write i and x_{i-j} that before j writes earlier; A is
[rank, width], B [width, rank]. Rank 64 is that of their 4B model and of Gemma 3n, which norms
B A x as well. The paper bounds a and b by softmax or sigmoid and does not say which, nor where
anything starts, nor k. Ours: the softmax is doubled and starts at a = b = 1; B starts at 0, A is
drawn by the recipe's init, all g start at 1, and k = `previous` is 3. So every kind starts as the
plain connection. For stacks that should weigh, turn or remember the stream at little cost: 2
parameters per write (rw), 2 rank width (lr), or 2 rank width + k and the memory of k streams (pa).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from leadline.parts.connections._connection import CONNECTIONS, Connection
from leadline.parts.options import one_of, whole_number
from leadline.parts.place import Place


@CONNECTIONS.register("laurel")
class Laurel(Connection):
    """Learned weights, a low-rank map or earlier streams beside x + u (LAuReL)."""

    formula = "b x + a u (rw), x + B A x + u (lr), or x + B A (earlier streams) + u (pa)"
    keeps_identity = False
    starts_as = "plain"

    def __init__(
        self, place: Place, *, kind: str = "rw", rank: int = 64, previous: int = 3
    ) -> None:
        super().__init__(place)
        self.kind = one_of("laurel", "kind", kind, ("rw", "lr", "pa"))
        rank = whole_number("laurel", "rank", rank)
        self.previous = whole_number("laurel", "previous", previous)
        if kind == "rw":
            self.balance = nn.Parameter(torch.zeros(2))
            return
        self.down = nn.Linear(place.width, rank, bias=False)
        self.up = nn.Linear(rank, place.width, bias=False)
        nn.init.zeros_(self.up.weight)
        if kind == "pa":
            self.gamma = nn.Parameter(torch.ones(min(self.previous, place.write)))

    def open(self, stream: Tensor) -> Any:
        return (stream,) if self.kind == "pa" else stream

    def write(self, state: Any, update: Tensor) -> Any:
        kept, written = self.split(state, update)
        after = kept + written
        return (after, *state[: self.previous - 1]) if self.kind == "pa" else after

    def split(self, state: Any, update: Tensor) -> tuple[Tensor, Tensor]:
        x = self.stream(state)
        if self.kind == "rw":
            a, b = 2.0 * torch.softmax(self.balance, 0)
            return b * x, a * update
        source = x
        if self.kind == "pa":
            source = self.gamma[0] * x
            for share, older in zip(self.gamma[1:], state[1:], strict=False):
                source = source + share * older
        return x + self.up(self.down(source)), update

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        if self.kind != "rw":
            yield "low rank", self.down.weight
