"""The plain Transformers in which wild faults live, written as people write them for themselves.

Every step that somebody got wrong is a method of its own, so that a wild fault overrides just that
step. Sizes are tiny. Weights are drawn so that width times variance is that of GPT-2: a matrix with
n inputs has standard deviation 0.55 / sqrt(n), and what pre-norm blocks write is divided by
sqrt(2 depth).
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = [
    "DEPTH",
    "HEADS",
    "VOCABULARY",
    "WIDTH",
    "PlainAttention",
    "PlainBlock",
    "PlainDecoder",
    "PlainEncoder",
    "PlainMlp",
    "PlainTranslator",
    "ReadingBlock",
    "SettledBlock",
    "Sinusoids",
    "draw_weights",
    "pair_ids",
    "rotate",
    "token_ids",
]

WIDTH = 48
HEADS = 4
DEPTH = 4
VOCABULARY = 120
LENGTH = 64
SPREAD = 0.55


def token_ids(examples: int = 4, tokens: int = 16, *, seed: int = 0) -> Tensor:
    """Random token ids, [example, token]."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, VOCABULARY, (examples, tokens), generator=generator)


def pair_ids() -> dict[str, Tensor]:
    """Random token ids for an encoder and its decoder."""
    return {"input_ids": token_ids(seed=1), "decoder_input_ids": token_ids(seed=2)}


def draw_weights(model: nn.Module, *, depth: int | None = None) -> None:
    """Draw all matrices and embeddings; with `depth`, divide what blocks write by sqrt(2 depth)."""
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            spread = SPREAD / math.sqrt(module.in_features)
            if depth is not None and name.endswith((".out", ".down")):
                spread /= math.sqrt(2 * depth)
            nn.init.normal_(module.weight, std=spread)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=SPREAD / math.sqrt(module.embedding_dim))


def rotate(x: Tensor, *, position_axis: int = -2, base: float = 10000.0) -> Tensor:
    """Rotary positions on the last axis, halves paired; positions run along `position_axis`."""
    half = x.size(-1) // 2
    frequencies = base ** (-torch.arange(half, device=x.device, dtype=torch.float32) / half)
    shape = [1] * x.dim()
    shape[position_axis] = x.size(position_axis)
    positions = torch.arange(x.size(position_axis), device=x.device, dtype=torch.float32)
    angles = positions.view(shape) * frequencies
    left, right = x.chunk(2, dim=-1)
    turned = (
        left * angles.cos() - right * angles.sin(),
        left * angles.sin() + right * angles.cos(),
    )
    return torch.cat(turned, dim=-1).to(x.dtype)


class PlainAttention(nn.Module):
    """Attention with several heads; with a memory, the keys and values are those of the memory."""

    def __init__(
        self, width: int = WIDTH, heads: int = HEADS, *, causal: bool = True, rotary: bool = False
    ) -> None:
        super().__init__()
        self.heads, self.causal, self.rotary = heads, causal, rotary
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def split(self, x: Tensor) -> Tensor:
        """[example, token, width] to [example, head, token, head width]."""
        examples, tokens, width = x.shape
        return x.view(examples, tokens, self.heads, width // self.heads).transpose(1, 2)

    def merge(self, x: Tensor) -> Tensor:
        """[example, head, token, head width] to [example, token, width]."""
        return x.transpose(1, 2).flatten(2)

    def place(self, x: Tensor) -> Tensor:
        """Rotary positions on split queries or keys."""
        return rotate(x) if self.rotary else x

    def logits(self, query: Tensor, key: Tensor) -> Tensor:
        """Scaled products of queries and keys."""
        return query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))

    def hide(self, logits: Tensor) -> Tensor:
        """Logits with the future taken out."""
        if not self.causal:
            return logits
        future = torch.ones_like(logits, dtype=torch.bool).triu(1)
        return logits.masked_fill(future, float("-inf"))

    def weights(self, logits: Tensor) -> Tensor:
        """Attention weights."""
        return logits.softmax(dim=-1)

    def forward(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
        source = x if memory is None else memory
        query, key = self.place(self.split(self.query(x))), self.place(self.split(self.key(source)))
        weights = self.weights(self.hide(self.logits(query, key)))
        return self.out(self.merge(weights @ self.split(self.value(source))))


class PlainMlp(nn.Module):
    """Two matrices with a GELU between them."""

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x)))


class PlainBlock(nn.Module):
    """A pre-norm block."""

    def __init__(self, attention: nn.Module | None = None, *, causal: bool = True) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH)
        self.attention = attention or PlainAttention(causal=causal)
        self.norm2 = nn.LayerNorm(WIDTH)
        self.mlp = PlainMlp()

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class SettledBlock(PlainBlock):
    """A post-norm block, bidirectional unless it is told otherwise."""

    def __init__(self, attention: nn.Module | None = None, *, causal: bool = False) -> None:
        super().__init__(attention, causal=causal)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm1(x + self.attention(x))
        return self.norm2(x + self.mlp(x))


class ReadingBlock(nn.Module):
    """A post-norm decoder block: self-attention, attention to the encoder, MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = PlainAttention(causal=True)
        self.norm1 = nn.LayerNorm(WIDTH)
        self.cross = PlainAttention(causal=False)
        self.norm2 = nn.LayerNorm(WIDTH)
        self.mlp = PlainMlp()
        self.norm3 = nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        x = self.norm1(x + self.attention(x))
        x = self.norm2(x + self.cross(x, memory))
        return self.norm3(x + self.mlp(x))


class Sinusoids(nn.Module):
    """Adds fixed sines and cosines of the position."""

    table: Tensor

    def __init__(self, width: int = WIDTH, length: int = LENGTH) -> None:
        super().__init__()
        self.register_buffer("table", self.waves(width, length))

    def waves(self, width: int, length: int) -> Tensor:
        """Sines at even places and cosines at odd ones, [1, position, width]."""
        angles = torch.arange(length)[:, None] * self.frequencies(width)
        return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)[None]

    def frequencies(self, width: int) -> Tensor:
        """From 1 down to nearly 1 / 10,000."""
        return torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.table[:, : x.size(1)]


class PlainDecoder(nn.Module):
    """A language model: embedding, learned positions if wanted, blocks, norm and head."""

    def __init__(
        self,
        blocks: Iterable[nn.Module],
        *,
        learned_positions: bool = True,
        final_norm: bool = True,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(LENGTH, WIDTH) if learned_positions else None
        self.blocks = nn.ModuleList(blocks)
        self.norm: nn.Module = nn.LayerNorm(WIDTH) if final_norm else nn.Identity()
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        draw_weights(self, depth=len(self.blocks))

    def embed(self, ids: Tensor) -> Tensor:
        """What enters the first block."""
        x = self.embedding(ids)
        if self.positions is None:
            return x
        return x + self.positions(torch.arange(ids.size(1), device=ids.device))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class PlainEncoder(nn.Module):
    """A bidirectional encoder with fixed positions that predicts a token at every place."""

    def __init__(self, blocks: Iterable[nn.Module], positions: nn.Module | None = None) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = positions or Sinusoids()
        self.blocks = nn.ModuleList(blocks)
        self.head = nn.Linear(WIDTH, VOCABULARY)
        draw_weights(self)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.positions(self.embedding(ids))
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class PlainTranslator(nn.Module):
    """An encoder, and a decoder whose blocks read what the encoder returns."""

    def __init__(self, blocks: Iterable[nn.Module]) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = Sinusoids()
        self.encoder = nn.ModuleList(SettledBlock() for _ in range(3))
        self.decoder = nn.ModuleList(blocks)
        self.head = nn.Linear(WIDTH, VOCABULARY)
        draw_weights(self)

    def forward(self, input_ids: Tensor, decoder_input_ids: Tensor) -> Tensor:
        memory = self.positions(self.embedding(input_ids))
        for block in self.encoder:
            memory = block(memory)
        x = self.positions(self.embedding(decoder_input_ids))
        for block in self.decoder:
            x = block(x, memory)
        return self.head(x)
