"""Three more plain models, written in other styles than those of the first round.

`PlainGpt` has separate matrices for queries, keys and values and its MLP in an `nn.Sequential`;
`PlainLlama` fuses queries, keys and values, and gate and up, and turns neighbouring features;
`MultiheadEncoder` uses torch's `nn.MultiheadAttention`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["PLAIN", "MultiheadEncoder", "PlainGpt", "PlainLlama"]


@dataclass
class PlainGptConfig:
    """Sizes of a `PlainGpt`."""

    vocab_size: int = 220
    context: int = 160
    depth: int = 9
    n_head: int = 5
    width: int = 80


class _MixTokens(nn.Module):
    def __init__(self, config: PlainGptConfig) -> None:
        super().__init__()
        self.n_head = config.n_head
        self.softmax_scale = 1 / math.sqrt(config.width / config.n_head)
        self.queries = nn.Linear(config.width, config.width)
        self.keys = nn.Linear(config.width, config.width)
        self.values = nn.Linear(config.width, config.width)
        self.out = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        q = self.queries(x).unflatten(-1, (self.n_head, -1)).transpose(1, 2)
        k = self.keys(x).unflatten(-1, (self.n_head, -1)).transpose(1, 2)
        v = self.values(x).unflatten(-1, (self.n_head, -1)).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=self.softmax_scale)
        return self.out(y.transpose(1, 2).flatten(2))


class _PlainGptLayer(nn.Module):
    def __init__(self, config: PlainGptConfig) -> None:
        super().__init__()
        self.before_mix = nn.LayerNorm(config.width)
        self.mix = _MixTokens(config)
        self.before_feed = nn.LayerNorm(config.width)
        self.feed = nn.Sequential(
            nn.Linear(config.width, 3 * config.width),
            nn.GELU(approximate="tanh"),
            nn.Linear(3 * config.width, config.width),
            nn.Dropout(0.0),
        )

    def forward(self, h: Tensor) -> Tensor:
        a = self.mix(self.before_mix(h))
        h = h + a
        m = self.feed(self.before_feed(h))
        h = h + m
        return h  # noqa: RET504 - one line per addition, as a fault finds it


class PlainGpt(nn.Module):
    """Learned positions, LayerNorm, GELU, the head tied, what writes scaled by depth."""

    def __init__(self, config: PlainGptConfig) -> None:
        super().__init__()
        self.config = config
        self.token_table = nn.Embedding(config.vocab_size, config.width)
        self.place_table = nn.Embedding(config.context, config.width)
        self.layers = nn.ModuleList(_PlainGptLayer(config) for _ in range(config.depth))
        self.last = nn.LayerNorm(config.width)
        self.to_logits = nn.Linear(config.width, config.vocab_size, bias=False)
        self.to_logits.weight = self.token_table.weight
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                writes = name.endswith(("mix.out.weight", "feed.2.weight"))
                nn.init.normal_(
                    parameter, std=0.02 / (math.sqrt(2 * config.depth) if writes else 1)
                )
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, ids: Tensor) -> Tensor:
        places = torch.arange(ids.shape[1], device=ids.device)
        h = self.token_table(ids) + self.place_table(places)
        for layer in self.layers:
            h = layer(h)
        return self.to_logits(self.last(h))


@dataclass
class PlainLlamaConfig:
    """Sizes of a `PlainLlama`."""

    vocab_size: int = 210
    n_layers: int = 8
    n_heads: int = 6
    dim: int = 96


class _RmsNorm(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.eps = 1e-6
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        return x / (x.square().mean(-1, keepdim=True) + self.eps).sqrt() * self.weight


class _Turns(nn.Module):
    inv_freq: Tensor

    def __init__(self, head_dim: int) -> None:
        super().__init__()
        powers = torch.arange(head_dim // 2) * 2 / head_dim
        self.register_buffer("inv_freq", 1 / 10000.0**powers, persistent=False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        angles = torch.outer(torch.arange(x.shape[1], device=x.device).float(), self.inv_freq)
        return angles.cos().type_as(x), angles.sin().type_as(x)


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    even, odd = x[..., ::2], x[..., 1::2]
    return torch.stack([even * cos - odd * sin, odd * cos + even * sin], dim=-1).flatten(-2)


class _FusedAttention(nn.Module):
    def __init__(self, config: PlainLlamaConfig) -> None:
        super().__init__()
        self.n_heads = config.n_heads
        self.softmax_scale = (config.dim // config.n_heads) ** -0.5
        self.wqkv = nn.Linear(config.dim, 3 * config.dim, bias=False)
        self.proj = nn.Linear(config.dim, config.dim, bias=False)

    def forward(self, x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
        cos, sin = turn
        split = [
            part.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
            for part in self.wqkv(x).chunk(3, dim=-1)
        ]
        q, k, v = split
        q = _rotated(q, cos, sin)
        k = _rotated(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=self.softmax_scale)
        return self.proj(y.transpose(1, 2).flatten(2))


class _FusedSwiglu(nn.Module):
    def __init__(self, config: PlainLlamaConfig) -> None:
        super().__init__()
        inner = 2 * config.dim
        self.w12 = nn.Linear(config.dim, 2 * inner, bias=False)
        self.w3 = nn.Linear(inner, config.dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.w12(x).chunk(2, dim=-1)
        return self.w3(F.silu(gate) * up)


class _PlainLlamaLayer(nn.Module):
    def __init__(self, config: PlainLlamaConfig) -> None:
        super().__init__()
        self.norm_a = _RmsNorm(config.dim)
        self.self_attention = _FusedAttention(config)
        self.norm_b = _RmsNorm(config.dim)
        self.swiglu = _FusedSwiglu(config)

    def forward(self, h: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
        a = self.self_attention(self.norm_a(h), turn)
        h = h + a
        m = self.swiglu(self.norm_b(h))
        h = h + m
        return h  # noqa: RET504 - one line per addition, as a fault finds it


class PlainLlama(nn.Module):
    """Rotary positions, RMSNorm, SwiGLU, a head of its own, everything fused that can be."""

    def __init__(self, config: PlainLlamaConfig) -> None:
        super().__init__()
        self.config = config
        self.embed = nn.Embedding(config.vocab_size, config.dim)
        self.turns = _Turns(config.dim // config.n_heads)
        self.stack = nn.ModuleList(_PlainLlamaLayer(config) for _ in range(config.n_layers))
        self.out_norm = _RmsNorm(config.dim)
        self.unembed = nn.Linear(config.dim, config.vocab_size, bias=False)
        for parameter in self.parameters():
            if parameter.ndim == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, ids: Tensor) -> Tensor:
        h = self.embed(ids)
        turn = self.turns(h)
        for layer in self.stack:
            h = layer(h, turn)
        return self.unembed(self.out_norm(h))


@dataclass
class MultiheadEncoderConfig:
    """Sizes of a `MultiheadEncoder`."""

    vocab_size: int = 190
    context: int = 96
    n_layers: int = 7
    n_heads: int = 4
    dim: int = 72


class _MultiheadEncoderLayer(nn.Module):
    def __init__(self, config: MultiheadEncoderConfig) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(config.dim)
        self.attend = nn.MultiheadAttention(config.dim, config.n_heads, batch_first=True)
        self.norm2 = nn.LayerNorm(config.dim)
        self.mlp = nn.Sequential(
            nn.Linear(config.dim, 4 * config.dim), nn.ReLU(), nn.Linear(4 * config.dim, config.dim)
        )

    def forward(self, h: Tensor) -> Tensor:
        n = self.norm1(h)
        a, _ = self.attend(n, n, n, need_weights=False)
        h = h + a
        m = self.mlp(self.norm2(h))
        h = h + m
        return h  # noqa: RET504 - one line per addition, as a fault finds it


class MultiheadEncoder(nn.Module):
    """torch's own attention between plain norms; every token sees every other."""

    def __init__(self, config: MultiheadEncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.words = nn.Embedding(config.vocab_size, config.dim)
        self.places = nn.Embedding(config.context, config.dim)
        self.layers = nn.ModuleList(_MultiheadEncoderLayer(config) for _ in range(config.n_layers))
        self.norm = nn.LayerNorm(config.dim)
        self.predict = nn.Linear(config.dim, config.vocab_size)

    def forward(self, ids: Tensor) -> Tensor:
        places = torch.arange(ids.shape[1], device=ids.device)
        h = self.words(ids) + self.places(places)
        for layer in self.layers:
            h = layer(h)
        return self.predict(self.norm(h))


PLAIN: Mapping[str, tuple[Callable[[Any], nn.Module], Callable[..., Any]]] = {
    "plain-gpt": (PlainGpt, PlainGptConfig),
    "plain-llama": (PlainLlama, PlainLlamaConfig),
    "plain-encoder": (MultiheadEncoder, MultiheadEncoderConfig),
}
