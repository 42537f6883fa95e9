"""The block of the long note's experiment on rank collapse, with its parts switched on and off.

    y = attention(norm(x));    with an MLP: y = W_2 relu(W_1 norm(y) + b_1) + b_2
    x' = y, or x + y with a skip

One skip spans attention and MLP, and the MLP is as wide as the stream. Weights are drawn by torch's
own modules in the order of the note's script, so a seed gives its numbers. The block runs on
tensors and on split tokens.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

__all__ = ["NoteBlock", "note_blocks"]

NORMS = {"layernorm": nn.LayerNorm, "rmsnorm": nn.RMSNorm, "none": lambda _width: nn.Identity()}


class NoteBlock(nn.Module):
    """See the module's first lines."""

    def __init__(
        self, width: int, heads: int, *, mlp: bool, skip: bool, norm: str, causal: bool
    ) -> None:
        super().__init__()
        self.heads, self.skip, self.causal = heads, skip, causal
        self.norm = NORMS[norm](width)
        self.attention = nn.MultiheadAttention(width, heads, bias=False, batch_first=True)
        self.mlp_norm: nn.Module | None = None
        if mlp:
            self.mlp_norm = NORMS[norm](width)
            self.up = nn.Linear(width, width)
            self.down = nn.Linear(width, width)

    def forward(self, x: Any) -> Any:
        y = self._attend(self.norm(x))
        if self.mlp_norm is not None:
            y = self.down(F.relu(self.up(self.mlp_norm(y))))
        return x + y if self.skip else y

    def _attend(self, z: Any) -> Any:
        if isinstance(z, torch.Tensor):
            hidden = nn.Transformer.generate_square_subsequent_mask(z.shape[1], dtype=z.dtype)
            return self.attention(z, z, z, attn_mask=hidden if self.causal else None)[0]
        examples, tokens, width = z.shape

        def by_head(part: Any) -> Any:
            return part.view(examples, tokens, self.heads, -1).transpose(1, 2)

        q, k, v = map(by_head, F.linear(z, self.attention.in_proj_weight).chunk(3, -1))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        out = out.transpose(1, 2).reshape(examples, tokens, width)
        return F.linear(out, self.attention.out_proj.weight)


def note_blocks(
    depth: int, width: int, heads: int, *, mlp: bool, skip: bool, norm: str, causal: bool
) -> nn.ModuleList:
    """A stack of them, drawn with torch's random numbers as they stand."""
    return nn.ModuleList(
        NoteBlock(width, heads, mlp=mlp, skip=skip, norm=norm, causal=causal) for _ in range(depth)
    )
