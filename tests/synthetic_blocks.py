"""A plain GPT whose blocks can be given a fault of code, one layer or all; the answers are its author's."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["FAULTS", "HEALTHY", "PlainBlock", "PlainGPT", "plain_gpt"]

VOCABULARY = 50


class PlainAttention(nn.Module):
    def __init__(self, width: int, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        q, k, v = (
            t.view(batch, tokens, self.heads, -1).transpose(1, 2)
            for t in self.c_attn(x).split(width, dim=2)
        )
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(batch, tokens, width))


class PlainMLP(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.c_fc = nn.Linear(width, 4 * width)
        self.c_proj = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.c_proj(functional.gelu(self.c_fc(x)))


class PlainBlock(nn.Module):
    """x + attn(ln_1(x)), then x + mlp(ln_2(x)), or what `law` makes of the parts."""

    def __init__(self, width: int, law: Callable[[PlainBlock, Tensor], Tensor] | None) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = PlainAttention(width)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = PlainMLP(width)
        self.drop = nn.Dropout(0.1)
        self.law = law

    def a(self, x: Tensor) -> Tensor:
        return self.drop(self.attn(self.ln_1(x)))

    def m(self, x: Tensor) -> Tensor:
        return self.drop(self.mlp(self.ln_2(x)))

    def forward(self, x: Tensor) -> Tensor:
        if self.law is not None:
            return self.law(self, x)
        x = x + self.a(x)
        return x + self.m(x)


class PlainGPT(nn.Module):
    def __init__(
        self, laws: dict[int, Callable[[PlainBlock, Tensor], Tensor]], depth: int, width: int
    ) -> None:
        super().__init__()
        self.wte = nn.Embedding(VOCABULARY, width)
        self.wpe = nn.Embedding(64, width)
        self.h = nn.ModuleList(PlainBlock(width, laws.get(i + 1)) for i in range(depth))
        self.ln_f = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, idx: Tensor) -> Tensor:
        x = self.wte(idx) + self.wpe(torch.arange(idx.shape[1]))
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))


def _mlp_missing(b: PlainBlock, x: Tensor) -> Tensor:
    x = x + b.a(x)
    return b.m(x)


def _attention_missing(b: PlainBlock, x: Tensor) -> Tensor:
    x = b.a(x)
    return x + b.m(x)


def _attention_times(b: PlainBlock, x: Tensor) -> Tensor:
    x = x * b.a(x)
    return x + b.m(x)


def _attention_doubled(b: PlainBlock, x: Tensor) -> Tensor:
    x = x + x + b.a(x)
    return x + b.m(x)


def _mlp_doubled(b: PlainBlock, x: Tensor) -> Tensor:
    x = x + b.a(x)
    return x + x + b.m(x)


def _update_doubled(b: PlainBlock, x: Tensor) -> Tensor:
    u = b.a(x)
    x = x + u + u
    return x + b.m(x)


def _attention_normed(b: PlainBlock, x: Tensor) -> Tensor:
    h = b.ln_1(x)
    x = h + b.attn(h)
    return x + b.m(x)


def _mlp_normed(b: PlainBlock, x: Tensor) -> Tensor:
    x = x + b.a(x)
    h = b.ln_2(x)
    return h + b.mlp(h)


def _skip_from_entry(b: PlainBlock, x: Tensor) -> Tensor:
    y = x + b.a(x)
    return x + b.m(y)


def _attention_lost(b: PlainBlock, x: Tensor) -> Tensor:
    b.a(x)
    return x + b.m(x)


def _mlp_lost(b: PlainBlock, x: Tensor) -> Tensor:
    x = x + b.a(x)
    b.m(x)
    return x


def _half(b: PlainBlock, x: Tensor) -> Tensor:
    x = x + b.a(x)
    return x + 0.5 * b.m(x)


def _keep_half(b: PlainBlock, x: Tensor) -> Tensor:
    x = 0.5 * x + b.a(x)
    return x + b.m(x)


def _attention_bare(b: PlainBlock, x: Tensor) -> Tensor:
    x = x + b.attn(x)
    return x + b.m(x)


def _mlp_bare(b: PlainBlock, x: Tensor) -> Tensor:
    x = x + b.a(x)
    return x + b.mlp(x)


def _post(b: PlainBlock, x: Tensor) -> Tensor:
    x = b.ln_1(x + b.attn(x))
    return b.ln_2(x + b.mlp(x))


def _norms_exchanged(b: PlainBlock, x: Tensor) -> Tensor:
    x = x + b.attn(b.ln_2(x))
    return x + b.mlp(b.ln_1(x))


def _parallel(b: PlainBlock, x: Tensor) -> Tensor:
    return x + b.a(x) + b.m(x)


def _deepnorm(b: PlainBlock, x: Tensor, alpha: float = 12**0.25) -> Tensor:
    x = b.ln_1(alpha * x + b.attn(x))
    return b.ln_2(alpha * x + b.mlp(x))


def _deepnorm_on_branch(b: PlainBlock, x: Tensor, alpha: float = 12**0.25) -> Tensor:
    x = b.ln_1(x + alpha * b.attn(x))
    return b.ln_2(x + alpha * b.mlp(x))


def _both_halved(b: PlainBlock, x: Tensor) -> Tensor:
    x = (x + b.a(x)) * 0.5**0.5
    return (x + b.m(x)) * 0.5**0.5


def _multiplier(b: PlainBlock, x: Tensor) -> Tensor:
    x = x + 0.22 * b.a(x)
    return x + 0.22 * b.m(x)


FAULTS = {
    "mlp skip missing": (_mlp_missing, "R01", "mlp"),
    "attention skip missing": (_attention_missing, "R01", "attention"),
    "attention multiplied": (_attention_times, "R01", "attention"),
    "attention skip doubled": (_attention_doubled, "R02", "attention"),
    "mlp skip doubled": (_mlp_doubled, "R02", "mlp"),
    "attention skip normed": (_attention_normed, "R03", "attention"),
    "mlp skip normed": (_mlp_normed, "R03", "mlp"),
    "skip from entry": (_skip_from_entry, "R03", "mlp"),
    "attention lost": (_attention_lost, "R04", "attention"),
    "mlp lost": (_mlp_lost, "R04", "mlp"),
    "attention bare": (_attention_bare, "N01", "attention"),
    "mlp bare": (_mlp_bare, "N01", "mlp"),
}
"""Faults that show whether one layer has them or all: (law, code, sublayer)."""
ODD_LAYERS = {
    "update doubled": (_update_doubled, "R05", "attention"),
    "half": (_half, "R05", "mlp"),
    "keep half": (_keep_half, "R05", "attention"),
    "parallel": (_parallel, "R03", "mlp"),
    "post": (_post, "N02", None),
    "norms exchanged": (_norms_exchanged, "N02", None),
}
"""Faults only beside layers without them."""
HEALTHY = {
    "parallel": _parallel,
    "post": _post,
    "deepnorm": _deepnorm,
    "sum over root 2": _both_halved,
    "multiplier": _multiplier,
    "norms by other names": _norms_exchanged,
}
"""Designs, if all layers have them. DeepNorm's alpha is that of 6 layers."""
DEEPNORM_ON_BRANCH = _deepnorm_on_branch


def plain_gpt(
    law: Callable[[PlainBlock, Tensor], Tensor] | None = None,
    layers: tuple[int, ...] = (),
    *,
    depth: int = 6,
    width: int = 32,
) -> PlainGPT:
    """A seeded model whose `layers` (all, without any) follow the law."""
    torch.manual_seed(0)
    where = layers or tuple(range(1, depth + 1))
    laws = {} if law is None else dict.fromkeys(where, law)
    return PlainGPT(laws, depth, width).eval()
