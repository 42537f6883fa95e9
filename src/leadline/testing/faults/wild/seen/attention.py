"""Heads, masks, positions and axes that were mixed up."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from leadline.testing.faults.wild.case import WildFault, wild_fault
from leadline.testing.faults.wild.modules import (
    DEPTH,
    HEADS,
    VOCABULARY,
    WIDTH,
    PlainAttention,
    PlainBlock,
    PlainDecoder,
    PlainEncoder,
    SettledBlock,
    Sinusoids,
)

__all__ = ["ATTENTION_FAULTS"]

ATTENTION_FAULTS: list[WildFault] = []


@wild_fault(
    ATTENTION_FAULTS,
    "reczoo/FuxiCTR#30",
    "Heads are split by a view without a transpose, so a head holds all features of a few tokens.",
    ("heads-split-wrong", "past-unreached"),
    sublayer="attention",
)
def heads_split_by_view(repaired: bool) -> nn.Module:
    """[example, token, width] viewed as [example * heads, token, head width]."""

    class MultiHeadAttention(PlainAttention):
        def split(self, x: Tensor) -> Tensor:
            examples, tokens, width = x.shape
            return x.reshape(examples * self.heads, tokens, width // self.heads)

        def merge(self, x: Tensor) -> Tensor:
            groups, tokens, width = x.shape
            return x.reshape(groups // self.heads, tokens, width * self.heads)

    attention = PlainAttention if repaired else MultiHeadAttention
    return PlainEncoder(SettledBlock(attention(causal=False)) for _ in range(DEPTH))


@wild_fault(
    ATTENTION_FAULTS,
    "MarcoMeter/episodic-transformer-memory-ppo#22",
    "The input is split into heads first and one small projection is applied to every head.",
    ("heads-equal", "heads-split-wrong"),
    sublayer="attention",
)
def one_projection_for_all_heads(repaired: bool) -> nn.Module:
    """Queries, keys and values of all heads share matrices of head width."""

    class MemoryAttention(PlainAttention):
        def __init__(self) -> None:
            super().__init__(causal=True)
            narrow = WIDTH // HEADS
            self.query = nn.Linear(narrow, narrow, bias=False)
            self.key = nn.Linear(narrow, narrow, bias=False)
            self.value = nn.Linear(narrow, narrow, bias=False)

        def forward(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
            parts = self.split(x)
            weights = self.weights(self.hide(self.logits(self.query(parts), self.key(parts))))
            return self.out(self.merge(weights @ self.value(parts)))

    attention = PlainAttention if repaired else MemoryAttention
    return PlainDecoder(PlainBlock(attention()) for _ in range(DEPTH))


@wild_fault(
    ATTENTION_FAULTS,
    "karpathy/minGPT#75",
    "The mask is the number -10,000 and attention has learnt logits below it, so it attends to the future.",
    ("future-leaks", "attention-saturated"),
    layers=(2,),
    sublayer="attention",
)
def mask_that_logits_undercut(repaired: bool) -> nn.Module:
    """Biases of queries and keys in the second block drive every logit to about -15,000."""

    class CausalSelfAttention(PlainAttention):
        def hide(self, logits: Tensor) -> Tensor:
            future = torch.ones_like(logits, dtype=torch.bool).triu(1)
            return logits.masked_fill(future, -1e4)

    attention = PlainAttention if repaired else CausalSelfAttention
    attentions = [attention() for _ in range(DEPTH)]
    model = PlainDecoder(PlainBlock(part) for part in attentions)
    drifted = attentions[1]
    nn.init.constant_(drifted.query.bias, 66.0)
    nn.init.constant_(drifted.key.bias, -66.0)
    return model


@wild_fault(
    ATTENTION_FAULTS,
    "huggingface/transformers#26792",
    "The mask of the sliding window starts one diagonal too far, so a token sees one token more than the window holds.",
    ("not-as-intended", "parts-from-reference"),
    sublayer="attention",
    intended="pre-norm, causal, window 4",
    by_reference=True,
)
def window_one_too_long(repaired: bool) -> nn.Module:
    """A rotary decoder whose window is four tokens."""

    class WindowAttention(PlainAttention):
        oldest = -4

        def __init__(self) -> None:
            super().__init__(causal=True, rotary=True)

        def hide(self, logits: Tensor) -> Tensor:
            everything = torch.ones_like(logits, dtype=torch.bool)
            window = everything.tril(0) & everything.triu(self.oldest)
            return logits.masked_fill(~window, float("-inf"))

    class RepairedWindow(WindowAttention):
        oldest = -3

    attention = RepairedWindow if repaired else WindowAttention
    blocks = (PlainBlock(attention()) for _ in range(DEPTH))
    return PlainDecoder(blocks, learned_positions=False)


@wild_fault(
    ATTENTION_FAULTS,
    "DaoyuanLi2816/Molecule-Generator#22",
    "The layers take the first axis for the sequence, but the model gives them the batch there, so molecules of one batch attend to each other.",
    ("examples-mixed", "past-unreached"),
    sublayer="attention",
)
def batch_taken_for_sequence(repaired: bool) -> nn.Module:
    """torch's encoder layers without batch_first."""

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(VOCABULARY, WIDTH)
            self.positions = Sinusoids()
            self.layers = nn.ModuleList(
                nn.TransformerEncoderLayer(WIDTH, HEADS, 2 * WIDTH, 0.1, batch_first=repaired)
                for _ in range(DEPTH)
            )
            self.head = nn.Linear(WIDTH, VOCABULARY)

        def forward(self, ids: Tensor) -> Tensor:
            x = self.positions(self.embedding(ids))
            for layer in self.layers:
                x = layer(x)
            return self.head(x)

    return Encoder()


@wild_fault(
    ATTENTION_FAULTS,
    "DiffPoseTalk/DiffPoseTalk#20",
    "The table of positions is indexed by the length instead of sliced up to it, so all tokens get one and the same position.",
    ("positions-unused", "positions-wrong"),
)
def one_position_for_all_tokens(repaired: bool) -> nn.Module:
    """A bidirectional encoder that cannot tell the order of its tokens."""

    class PositionalEncoding(Sinusoids):
        def forward(self, x: Tensor) -> Tensor:
            return x + self.table[:, x.shape[1], :]

    positions = Sinusoids() if repaired else PositionalEncoding()
    return PlainEncoder((SettledBlock() for _ in range(DEPTH)), positions)
