"""A decoder in plain torch whose attention can be made sick in one named way, layer by layer."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["Attention", "PlainGPT"]


TURNED = {
    "turn": (2, 2),
    "turn queries": (2, 0),
    "turn keys": (0, 2),
    "turn by head": (1, 1),
    "turn values": (2, 2),
    "turn back": (2, -2),
}
"""The axis of [example, head, token, feature] by which queries and keys are turned; 0 for none, a
negative one turns the other way."""


def _turned(x: Tensor, axis: int) -> Tensor:
    """Rotary positions that count along an axis."""
    if not axis:
        return x
    half, sign = x.shape[-1] // 2, 1 if axis > 0 else -1
    axis = abs(axis)
    shape = [-1 if at == axis else 1 for at in range(4)]
    angles = sign * torch.arange(x.shape[axis]).view(shape) * 100.0 ** (-torch.arange(half) / half)
    left, right = x.chunk(2, -1)
    turned = left * angles.cos() - right * angles.sin(), left * angles.sin() + right * angles.cos()
    return torch.cat(turned, -1)


class Attention(nn.Module):
    """Causal attention written out; `fault` names what is wrong with it."""

    def __init__(self, width: int, heads: int, fault: str) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        self.heads, self.fault = heads, fault

    def forward(self, x: Tensor) -> Tensor:
        b, n, d = x.shape
        h, fault = self.heads, self.fault
        projected = [one(x) for one in (self.q, self.k, self.v)]
        if fault == "view":
            q, k, v = (one.view(b, h, n, d // h) for one in projected)
        elif fault == "over heads":
            q, k, v = (one.view(b, n, h, d // h) for one in projected)
            return self.o(((q @ k.mT).softmax(-1) @ v).reshape(b, n, d))
        else:
            q, k, v = (one.view(b, n, h, d // h).transpose(1, 2) for one in projected)
        if fault in TURNED:
            query, key = TURNED[fault]
            q, k = _turned(q, query), _turned(k, key)
            if fault == "turn values":
                v = _turned(v, 2)
        scale = {"no scale": 1.0, "model width": d**-0.5}.get(fault, (d // h) ** -0.5)
        logits = q @ k.mT * scale
        hidden = torch.ones(n, n, dtype=torch.bool).triu({"ahead": 2, "strict": 0}.get(fault, 1))
        if fault == "window":
            hidden |= torch.ones(n, n, dtype=torch.bool).tril(-4)
        if fault == "sink":
            logits = logits + 8.0 * (torch.arange(n) == 0)
        if fault == "empty":
            hidden[5] = True
        if fault == "flags":
            logits = logits + (1 - torch.zeros(n, n).masked_fill(hidden, -torch.inf)) * -1e9
        elif fault == "undercut":
            logits = (logits - 2e4).masked_fill(hidden, -1e4)
        elif fault == "wide":
            logits = (logits * 1e4).masked_fill(hidden, -torch.inf)
        elif fault != "leak":
            logits = logits.masked_fill(hidden, -1e9)
        weights = logits.softmax(-2 if fault == "queries" else -1)
        if fault == "dropout":
            weights = F.dropout(weights, 0.2)
        mixed = weights @ v
        return self.o((mixed if fault == "merge" else mixed.transpose(1, 2)).reshape(b, n, d))


class _Block(nn.Module):
    def __init__(self, width: int, heads: int, fault: str) -> None:
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = Attention(width, heads, fault)
        self.mlp = nn.Sequential(nn.Linear(width, 64), nn.GELU(), nn.Linear(64, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class PlainGPT(nn.Module):
    """Blocks by their faults; `positions`: learned, none, constant, reverse, or by example."""

    def __init__(self, faults: Sequence[str], positions: str = "learned") -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(97, 48), None
        if positions != "none":
            self.wpe = nn.Embedding(64, 48)
        self.positions = positions
        self.h = nn.ModuleList(_Block(48, 4, fault) for fault in faults)
        self.ln, self.head = nn.LayerNorm(48), nn.Linear(48, 97, bias=False)

    def forward(self, idx: Tensor) -> Tensor:
        x = self.wte(idx)
        places = torch.arange(idx.shape[1])
        if self.positions == "constant":
            places = places * 0
        elif self.positions == "reverse":
            places = places.flip(0)
        if self.wpe is not None and self.positions == "by example":
            x = x + self.wpe(torch.arange(idx.shape[0]))[:, None]
        elif self.wpe is not None:
            x = x + self.wpe(places)
        for block in self.h:
            x = block(x)
        return self.head(self.ln(x))
