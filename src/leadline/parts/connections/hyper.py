"""Hyper-connections: several lanes, mixed by learned numbers.

    read     A_m' H                       H = [lane, width]
    write    H' = A_r' H + B u            lane i: sum_j A_r[j, i] h_j + B[i] u
    dynamic  A_m[j]    = a_m[j]    + s_a tanh(N(h_j) . w_m)
             A_r[j, i] = a_r[j, i] + s_a tanh(N(h_j) . w_r[i])
             B[i]      = b[i]      + s_b tanh(N(h_i) . w_b)

Zhu et al. 2024, arXiv 2409.19606. 4 lanes. At first a_m = e_(k mod n) with k the write from 0 and
n the lanes, a_r = I, b = 1, all w = 0, s_a = s_b = 0.01, and every lane holds the embedding: each
lane then is the plain stream, x + u. N is the recipe's norm (a LayerNorm in the paper). The paper
sums the lanes in the end, which a norm after it undoes; `close="mean"` is the default, with which
the model starts exactly as the plain one, `close="sum"` the other. The paper also rescales the
weights that write because of that sum; this is left to the recipe's init. `dynamic=false` keeps
the static numbers alone. Zero updates leave the stream as it was only while a_r = I. It costs
n^2 + 2 n parameters per write, dynamic (n + 2) width + 2 more and a norm, and n times the memory
of the stream.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from leadline.parts.connections._connection import CONNECTIONS, Connection
from leadline.parts.options import flag, one_of, whole_number
from leadline.parts.place import Place

SCALE = 0.01
"""Where s_a and s_b start."""


@CONNECTIONS.register("hyper")
class Hyper(Connection):
    """Lanes that each keep, mix and receive by learned numbers (hyper-connections)."""

    formula = "A_r' H + B u on lanes H, read as A_m' H"
    keeps_identity = False
    starts_as = "plain"

    def __init__(
        self, place: Place, *, lanes: int = 4, dynamic: bool = True, close: str = "mean"
    ) -> None:
        super().__init__(place)
        self.lanes = whole_number("hyper", "lanes", lanes)
        self.ends_as = one_of("hyper", "close", close, ("mean", "sum"))
        if self.ends_as == "sum":
            self.starts_as = None
        self.dynamic = flag("hyper", "dynamic", dynamic)
        eye = torch.eye(lanes)
        self.static_read = nn.Parameter(eye[(place.write - 1) % lanes].clone())
        self.static_mix = nn.Parameter(eye)
        self.static_write = nn.Parameter(torch.ones(lanes))
        if self.dynamic:
            self.norm = place.norm(place.width)
            self.to_read = nn.Parameter(torch.zeros(1, place.width))
            self.to_mix = nn.Parameter(torch.zeros(lanes, place.width))
            self.to_write = nn.Parameter(torch.zeros(1, place.width))
            self.scale_in = nn.Parameter(torch.tensor(SCALE))
            self.scale_out = nn.Parameter(torch.tensor(SCALE))

    def open(self, stream: Tensor) -> Tensor:
        return stream.unsqueeze(-2).expand(*stream.shape[:-1], self.lanes, -1).contiguous()

    def close(self, state: Tensor) -> Tensor:
        return state.mean(-2) if self.ends_as == "mean" else state.sum(-2)

    def read(self, state: Tensor) -> Tensor:
        with torch.autocast(state.device.type, enabled=False):
            share = self.static_read
            if self.dynamic:
                moved = torch.tanh(F.linear(self._normed(state), self.to_read)).squeeze(-1)
                share = share + self.scale_in * moved
            return torch.matmul(share.unsqueeze(-2), state).squeeze(-2)

    def write(self, state: Tensor, update: Tensor) -> Tensor:
        kept, written = self.split(state, update)
        return kept + written

    def split(self, state: Tensor, update: Tensor) -> tuple[Tensor, Tensor]:
        # Products with the lanes are the stream itself: autocast must not round them.
        with torch.autocast(state.device.type, enabled=False):
            mix, share = self.static_mix, self.static_write
            if self.dynamic:
                normed = self._normed(state)
                mix = mix + self.scale_in * torch.tanh(F.linear(normed, self.to_mix))
                moved = torch.tanh(F.linear(normed, self.to_write)).squeeze(-1)
                share = share + self.scale_out * moved
            kept = torch.matmul(mix.transpose(-1, -2), state)
            return kept, share.unsqueeze(-1) * update.to(state.dtype).unsqueeze(-2)

    def _normed(self, state: Tensor) -> Tensor:
        return state if self.norm is None else self.norm(state)
