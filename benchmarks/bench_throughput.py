"""How fast does our Transformer train, beside Hugging Face, x-transformers and a block by hand?

A GPT-2-shaped model in float32 (6 layers, width 256, context 256, batch 8) and a deep narrow one
(48 layers, width 64), each with heads of 64 as in GPT-2. A step is forward, loss, backward and
fused AdamW; dropout 0, no cache, the same ids, vocabulary and threads for all, interleaved in one
process. The ratio is tokens per second of ours over theirs, so above 1 we are faster.

`hugging face` is GPT2LMHeadModel with SDPA. `x-transformers` is its Decoder with flash attention
and the same tanh GELU; it has no biases in attention, which spares it some work. `by hand` is the
same equation and the same loss typed as one block without any part to exchange: what the
swappable design costs. `flat` is ours with all parameters in one buffer, so that the optimizer
walks over one tensor. `bf16` is ours under autocast against ours without, in rounds of their own:
on processors without bfloat16 units it is several times slower and would heat the others' rounds.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from _harness import Result, interleave, ratio
from leadline.parts import Transformer
from leadline.parts.loss import linear_cross_entropy

ROUNDS = 11
OURS = "leadline"
HEAD = 64


@dataclass(frozen=True)
class Size:
    """One model and its batch, with the targets that are set for it."""

    depth: int
    width: int
    vocabulary: int
    context: int = 256
    batch: int = 8
    over_hugging_face: float | None = None
    over_x_transformers: float | None = None
    over_hand: float | None = None

    @property
    def heads(self) -> int:
        return self.width // HEAD

    def __str__(self) -> str:
        return f"{self.depth} x {self.width}, vocabulary {self.vocabulary}"


SIZES = (
    Size(6, 256, 512, over_hugging_face=1.2, over_x_transformers=1.0, over_hand=0.97),
    Size(6, 256, 50257, over_hugging_face=1.2, over_x_transformers=1.0),
    Size(48, 64, 512, over_hugging_face=1.3, over_hand=0.97),
)


class _HandBlock(nn.Module):
    """x + A(N(x)), x + M(N(x)), typed out."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)
        self.norm_2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm_1(x)).split(d, -1)
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.output(y.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.norm_2(x)), approximate="tanh"))


class _Hand(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.tokens = nn.Embedding(size.vocabulary, size.width)
        self.positions = nn.Embedding(size.context, size.width)
        self.blocks = nn.ModuleList(_HandBlock(size.width, size.heads) for _ in range(size.depth))
        self.norm = nn.LayerNorm(size.width)
        nn.init.normal_(self.tokens.weight, std=0.02)

    def loss(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.positions.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)[:, :-1].flatten(0, 1)
        return linear_cross_entropy(x, self.tokens.weight, ids[:, 1:].flatten())


def _step(
    parameters: Iterable[nn.Parameter], loss: Callable[[], Tensor], *, keep_grads: bool = False
) -> Callable[[], object]:
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, fused=True)

    def step() -> None:
        loss().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=not keep_grads)

    return step


def ours(size: Size) -> Transformer:
    """Our model of that size, GPT-2's parts."""
    return Transformer(
        depth=size.depth,
        width=size.width,
        heads=size.heads,
        context=size.context,
        vocabulary=size.vocabulary,
        head="tied",
    )


def hugging_face(size: Size) -> Any:
    """The same model of transformers."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        n_layer=size.depth,
        n_embd=size.width,
        n_head=size.heads,
        n_positions=size.context,
        vocab_size=size.vocabulary,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        use_cache=False,
        bos_token_id=0,
        eos_token_id=0,
        loss_type="ForCausalLM",
        attn_implementation="sdpa",
    )
    return GPT2LMHeadModel(config).train()


def _x_transformers(size: Size) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from x_transformers import AutoregressiveWrapper, Decoder, TransformerWrapper
    layers = Decoder(
        dim=size.width,
        depth=size.depth,
        heads=size.heads,
        attn_dim_head=HEAD,
        attn_flash=True,
        ff_custom_activation=nn.GELU(approximate="tanh"),
    )
    wrapper = TransformerWrapper(
        num_tokens=size.vocabulary,
        max_seq_len=size.context,
        attn_layers=layers,
        tie_embedding=True,
    )
    return AutoregressiveWrapper(wrapper)


def _flat(model: nn.Module) -> nn.Parameter:
    """Move all parameters into one buffer and their gradients into another."""
    parameters = list(model.parameters())
    buffer = nn.Parameter(torch.cat([p.detach().flatten() for p in parameters]))
    buffer.grad = torch.zeros_like(buffer)
    start = 0
    for p in parameters:
        end = start + p.numel()
        p.data = buffer.data[start:end].view_as(p)
        p.grad = buffer.grad[start:end].view_as(p)
        start = end
    return buffer


def contenders(size: Size) -> dict[str, Callable[[], object]]:
    """One training step of each, on the same ids."""
    torch.manual_seed(0)
    ids = torch.randint(size.vocabulary, (size.batch, size.context))
    mine, flat, hand = ours(size), ours(size), _Hand(size)
    theirs, other = hugging_face(size), _x_transformers(size)
    return {
        OURS: _step(mine.parameters(), lambda: mine.loss(ids)),
        "hugging face": _step(theirs.parameters(), lambda: theirs(input_ids=ids, labels=ids).loss),
        "x-transformers": _step(other.parameters(), lambda: other(ids)),
        "by hand": _step(hand.parameters(), lambda: hand.loss(ids)),
        "flat": _step([_flat(flat)], lambda: flat.loss(ids), keep_grads=True),
    }


def in_half(size: Size) -> dict[str, Callable[[], object]]:
    """One training step of ours, in float32 and under autocast."""
    torch.manual_seed(0)
    ids = torch.randint(size.vocabulary, (size.batch, size.context))
    plain, half = ours(size), ours(size)

    def loss() -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return half.loss(ids)

    return {
        OURS: _step(plain.parameters(), lambda: plain.loss(ids)),
        "bf16": _step(half.parameters(), loss),
    }


def run() -> Iterable[Result]:
    """Tokens per second of ours over each of the others."""
    for size in SIZES:
        rounds = ROUNDS if size.vocabulary < 10_000 else 5
        times = interleave(contenders(size), rounds=rounds, warmup=2)
        targets = {
            "hugging face": size.over_hugging_face,
            "x-transformers": size.over_x_transformers,
            "by hand": size.over_hand,
        }
        for other, target in targets.items():
            yield ratio(
                times,
                other,
                OURS,
                name=f"tokens per second, {size}, against {other}",
                target=target,
                at_least=True,
            )
        yield ratio(times, OURS, "flat", name=f"tokens per second, {size}, flat", at_least=True)
    size = SIZES[0]
    times = interleave(in_half(size), rounds=5, warmup=1)
    yield ratio(times, OURS, "bf16", name=f"tokens per second, {size}, bf16", at_least=True)
