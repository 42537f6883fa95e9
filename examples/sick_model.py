"""A small decoder with a fault that is easily made: one block forgets its skip connection.

    leadline diagnose examples/sick_model.py:build --random 2x32

Block 4 computes `x = mlp(norm(x))` where the others compute `x = x + mlp(norm(x))`. The model runs, its
shapes are right, and its loss even falls in training.
"""

import torch
from torch import nn

WIDTH, HEADS, DEPTH, VOCABULARY, CONTEXT = 64, 4, 6, 256, 128


class Block(nn.Module):
    def __init__(self, *, forgets_skip: bool = False) -> None:
        super().__init__()
        self.attention_norm, self.mlp_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )
        self.forgets_skip = forgets_skip

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        y = self.attention_norm(x)
        x = x + self.attention(y, y, y, attn_mask=mask, need_weights=False)[0]
        update = self.mlp(self.mlp_norm(x))
        return update if self.forgets_skip else x + update


class Decoder(nn.Module):
    def __init__(self, *, sick: bool = True) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block(forgets_skip=sick and at == 3) for at in range(DEPTH))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        length = tokens.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length, device=tokens.device)
        x = self.tokens(tokens) + self.positions(torch.arange(length, device=tokens.device))
        for block in self.blocks:
            x = block(x, mask)
        return self.head(self.norm(x))


def build() -> Decoder:
    """The sick model, with random weights."""
    torch.manual_seed(0)
    return Decoder()


def healthy() -> Decoder:
    """The same without the fault."""
    torch.manual_seed(0)
    return Decoder(sick=False)
