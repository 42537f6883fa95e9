"""Two plain language models in one file each, as people write them after nanoGPT and llama2.c.

They know nothing of Leadline: no recipe, no declared anatomy, no Hugging Face configuration.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["NanoGpt", "NanoGptConfig", "NanoLlama", "NanoLlamaConfig"]


@dataclass
class NanoGptConfig:
    """Sizes of a `NanoGpt`."""

    vocab_size: int = 200
    block_size: int = 128
    n_layer: int = 6
    n_head: int = 4
    n_embd: int = 64
    dropout: float = 0.0


class _CausalSelfAttention(nn.Module):
    def __init__(self, config: NanoGptConfig) -> None:
        super().__init__()
        self.n_head = config.n_head
        self.scale = (config.n_embd // config.n_head) ** -0.5
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd)
        self.resid_dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        B, T, C = x.shape
        q, k, v = self.c_attn(x).split(C, dim=2)
        q = q.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        k = k.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        v = v.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=self.scale)
        y = y.transpose(1, 2).contiguous().view(B, T, C)
        return self.resid_dropout(self.c_proj(y))


class _GeluMlp(nn.Module):
    def __init__(self, config: NanoGptConfig) -> None:
        super().__init__()
        self.c_fc = nn.Linear(config.n_embd, 4 * config.n_embd)
        self.c_proj = nn.Linear(4 * config.n_embd, config.n_embd)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(self.c_proj(F.gelu(self.c_fc(x))))


class _NanoGptBlock(nn.Module):
    def __init__(self, config: NanoGptConfig) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(config.n_embd)
        self.attn = _CausalSelfAttention(config)
        self.ln_2 = nn.LayerNorm(config.n_embd)
        self.mlp = _GeluMlp(config)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        x = x + self.mlp(self.ln_2(x))
        return x  # noqa: RET504 - one line per sublayer, as a fault finds it


class NanoGpt(nn.Module):
    """A GPT-2 in a hundred lines: learned positions, LayerNorm, GELU, the head tied."""

    def __init__(self, config: NanoGptConfig) -> None:
        super().__init__()
        self.config = config
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.wpe = nn.Embedding(config.block_size, config.n_embd)
        self.blocks = nn.ModuleList(_NanoGptBlock(config) for _ in range(config.n_layer))
        self.ln_f = nn.LayerNorm(config.n_embd)
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.lm_head.weight = self.wte.weight
        self.apply(self._init_weights)
        for name, parameter in self.named_parameters():
            if name.endswith("c_proj.weight"):
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * config.n_layer))

    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(self, idx: Tensor) -> Tensor:
        positions = torch.arange(idx.shape[1], device=idx.device)
        x = self.wte(idx) + self.wpe(positions)
        for block in self.blocks:
            x = block(x)
        return self.lm_head(self.ln_f(x))


@dataclass
class NanoLlamaConfig:
    """Sizes of a `NanoLlama`."""

    vocab_size: int = 200
    n_layers: int = 6
    n_heads: int = 4
    dim: int = 64
    hidden_dim: int = 160
    norm_eps: float = 1e-5


class _NanoRMSNorm(nn.Module):
    """RMSNorm, written out."""

    def __init__(self, dim: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)


class _Rope(nn.Module):
    inv_freq: Tensor

    def __init__(self, head_dim: int) -> None:
        super().__init__()
        steps = torch.arange(0, head_dim, 2).float() / head_dim
        self.register_buffer("inv_freq", 10000.0**-steps, persistent=False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        angles = torch.arange(x.shape[1], device=x.device)[:, None] * self.inv_freq
        return angles.cos(), angles.sin()


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


class _RotaryAttention(nn.Module):
    def __init__(self, config: NanoLlamaConfig) -> None:
        super().__init__()
        self.n_heads = config.n_heads
        self.scale = (config.dim // config.n_heads) ** -0.5
        self.wq = nn.Linear(config.dim, config.dim, bias=False)
        self.wk = nn.Linear(config.dim, config.dim, bias=False)
        self.wv = nn.Linear(config.dim, config.dim, bias=False)
        self.wo = nn.Linear(config.dim, config.dim, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        shape = (*x.shape[:2], self.n_heads, -1)
        q = _rotated(self.wq(x).view(shape).transpose(1, 2), cos, sin)
        k = _rotated(self.wk(x).view(shape).transpose(1, 2), cos, sin)
        v = self.wv(x).view(shape).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=self.scale)
        return self.wo(y.transpose(1, 2).reshape(x.shape))


class _SwigluMlp(nn.Module):
    def __init__(self, config: NanoLlamaConfig) -> None:
        super().__init__()
        self.w1 = nn.Linear(config.dim, config.hidden_dim, bias=False)
        self.w2 = nn.Linear(config.hidden_dim, config.dim, bias=False)
        self.w3 = nn.Linear(config.dim, config.hidden_dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class _NanoLlamaBlock(nn.Module):
    def __init__(self, config: NanoLlamaConfig) -> None:
        super().__init__()
        self.ln_1 = _NanoRMSNorm(config.dim, config.norm_eps)
        self.attn = _RotaryAttention(config)
        self.ln_2 = _NanoRMSNorm(config.dim, config.norm_eps)
        self.mlp = _SwigluMlp(config)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x), cos, sin)
        x = x + self.mlp(self.ln_2(x))
        return x  # noqa: RET504 - one line per sublayer, as a fault finds it


class NanoLlama(nn.Module):
    """A Llama in a hundred lines: rotary positions, RMSNorm, SwiGLU, a head of its own."""

    def __init__(self, config: NanoLlamaConfig) -> None:
        super().__init__()
        self.config = config
        self.tok_embeddings = nn.Embedding(config.vocab_size, config.dim)
        self.rope = _Rope(config.dim // config.n_heads)
        self.layers = nn.ModuleList(_NanoLlamaBlock(config) for _ in range(config.n_layers))
        self.norm = _NanoRMSNorm(config.dim, config.norm_eps)
        self.output = nn.Linear(config.dim, config.vocab_size, bias=False)
        for parameter in self.parameters():
            if parameter.ndim == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tok_embeddings(tokens)
        cos, sin = self.rope(x)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.output(self.norm(x))
