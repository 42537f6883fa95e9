"""What a sampled update reads of stream, updates and gradients: one number per site each.

The definitions are those of the probes of `leadline measure`; medians, ranks and what only a few
readers ask for are left out. What rounding to bfloat16 would lose is taken of the first example.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

from leadline.anatomy import SeenAttention
from leadline.catalog import Choice
from leadline.errors import InputError
from leadline.instruments.passes.probe import At, Each, PerHead, PerToken, Result, Single
from leadline.instruments.passes.probe_plan import Plan, plan
from leadline.instruments.passes.probes.attention import ENTROPY, LOGIT_SPAN, LOGIT_STD
from leadline.instruments.passes.probes.extremes import FLOAT16_MAX, LARGEST, ROOM
from leadline.instruments.passes.probes.gradient import STREAM
from leadline.instruments.passes.probes.stream import NORM
from leadline.instruments.passes.probes.update import BF16, RATIO
from leadline.instruments.passes.probes.update import NORM as UPDATE_NORM
from leadline.instruments.passes.token_quantities import COSINE
from leadline.numerics.bf16 import write_loss
from leadline.numerics.devices import widest_float
from leadline.numerics.patterns.matrix_group import EMPTY, HIDDEN
from leadline.numerics.tokens import Tokens
from leadline.record import Reading

__all__ = [
    "AttentionGauges",
    "LayerGauges",
    "attention_results",
    "watch_plan",
    "without_endless_room",
]


def _largest(x: torch.Tensor) -> torch.Tensor:
    """max |x|; the same as a norm of infinite order, and many times as fast."""
    low, high = torch.aminmax(x)
    return torch.maximum(-low, high)


def without_endless_room(readings: Iterable[Reading]) -> list[Reading]:
    """Leave out the room in float16 of streams that are zero: it has no end, and is no number.

    That is asked of the readings, because asking a gauge would make the host wait for the device.
    """
    return [one for one in readings if one.quantity != ROOM.name or not math.isinf(one.value)]


class LayerGauges:
    """Stream, updates, tokens and gradients, by the cheapest statistics."""

    sees = ("stream", "update", "gradient")
    quantities = (NORM, LARGEST, ROOM, COSINE, UPDATE_NORM, RATIO, BF16, STREAM)

    def stream(self, at: At, x: Tokens, start: Tokens) -> Iterator[Result]:
        yield PerToken(NORM, x.norm)
        rows = x.real
        if rows.numel():
            largest = _largest(rows)
            yield Single(LARGEST, largest)
            yield Single(ROOM, FLOAT16_MAX / largest.to(widest_float(largest.device)))
        if x.length > 1:
            yield Each(COSINE, x.cosine)

    def update(self, at: At, u: Tokens, x: Tokens) -> Iterator[Result]:
        size, stream = u.norm, x.norm
        yield PerToken(UPDATE_NORM, size)
        yield PerToken(RATIO, torch.where(stream > 0, size / stream, float("nan")))
        first = slice(0, 1)
        mask = None if u.mask is None else u.mask[first]
        lost = write_loss(Tokens(u.x[first], mask), Tokens(x.x[first], mask))
        real = lost if mask is None else lost[:, u.rows[0]]
        yield Single(BF16, real.mean(), "mean")

    def gradient(self, at: At, g: Tokens) -> Iterator[Result]:
        norms = g.norm if g.mask is None else g.norm * g.mask
        total = torch.linalg.vector_norm(norms.to(widest_float(norms.device)))
        yield Single(STREAM, total, "total")


class AttentionGauges:
    """Spread, span and entropy of attention, of the first example: `attention_results` reads them."""

    sees = ("attention",)
    quantities = (LOGIT_STD, LOGIT_SPAN, ENTROPY)

    def attention(self, at: At, patterns: Any) -> Iterator[Result]:
        """Read what whole matrices have; a watch reads the first example alone instead."""
        yield from attention_results(patterns.attention)


def attention_results(
    attention: SeenAttention, *, queries: torch.Tensor | None = None
) -> Iterator[Result]:
    """Per head of the first example: spread and span of the logits, entropy of the weights.

    logit std    sqrt(mean_i var_j l_ij)       over the keys j that query i may see
    logit span   max_i (max_j l_ij - min_j l_ij)
    entropy      mean_i -sum_j A_ij log A_ij

    `queries` are the tokens i of the first example that are no padding.
    """
    rows = slice(None) if queries is None else queries
    logits = sees = None
    scores = _scores(attention)
    if scores is not None:
        logits, sees = scores[0][:, rows], scores[1].expand_as(scores[0])[:, rows]
        counts = sees.sum(-1).clamp_min(1)
        zero = torch.where(sees, logits, 0.0)
        mean = zero.sum(-1, keepdim=True) / counts.unsqueeze(-1)
        variance = torch.where(sees, (logits - mean).square(), 0.0).sum(-1) / counts
        yield PerHead(LOGIT_STD, variance.mean(-1).sqrt().unsqueeze(0))
        lowest = torch.where(sees, logits, float("inf")).amin(-1)
        highest = torch.where(sees, logits, float("-inf")).amax(-1)
        span = torch.where(sees.any(-1), highest - lowest, 0.0)
        yield PerHead(LOGIT_SPAN, span.amax(-1).unsqueeze(0))
    weights = None if attention.weights is None else attention.weights[0][:, rows].float()
    if weights is None and logits is not None and sees is not None:
        weights = torch.softmax(torch.where(sees, logits, float("-inf")), -1)
    if weights is not None:
        entropy = torch.special.entr(weights.nan_to_num()).sum(-1).mean(-1)
        yield PerHead(ENTROPY, entropy.unsqueeze(0))


def _scores(attention: SeenAttention) -> tuple[torch.Tensor, torch.Tensor] | None:
    """[head, query, key] of the first example: logits, and which of them a query may see.

    A kernel's mask says what is hidden. In logits that the model has masked itself, what lies
    `HIDDEN` below the largest of a row is.
    """
    if attention.logits is not None:
        logits = attention.logits[0].float()
        top = logits.amax(-1, keepdim=True)
        return logits, (logits > top - HIDDEN) & (top > EMPTY)
    query, key = attention.query, attention.key
    if query is None or key is None:
        return None
    q, k = query[0].float(), key[0].float()
    if k.shape[0] != q.shape[0]:  # groups of queries share a key
        k = k.repeat_interleave(q.shape[0] // k.shape[0], 0)
    scaling = q.shape[-1] ** -0.5 if attention.scaling is None else attention.scaling
    logits = (q @ k.mT) * scaling
    if attention.soft_cap is not None:
        logits = attention.soft_cap * torch.tanh(logits / attention.soft_cap)
    sees = torch.ones(logits.shape[-2:], dtype=torch.bool, device=logits.device)
    if attention.causal:
        sees = sees.tril()
    mask = attention.mask
    if mask is not None:
        mask = mask[0] if mask.ndim == 4 else mask
        if mask.dtype == torch.bool:
            sees = sees & mask
        else:
            added = mask.float()
            sees = sees & (added > added.amax(-1, keepdim=True) - HIDDEN) & (added > EMPTY)
            logits = logits + added
    return logits, sees


def watch_plan(probes: str | Sequence[Any] | None, *, attention: bool) -> Plan:
    """The gauges of every layer, with those of attention and with further probes by name."""
    own: list[Any] = [LayerGauges(), *([AttentionGauges()] if attention else [])]
    further = plan(probes) if probes else Plan((), ())
    if further.linear:
        name = further.choices[further.probes.index(further.linear[0])].name
        raise InputError(
            f"The probe {name!r} runs passes of its own, which a watch does not; use "
            "leadline.measure for it."
        )
    known = {quantity.name for probe in own for quantity in probe.quantities}
    others = [probe for probe in further.probes if not known & {q.name for q in probe.quantities}]
    return Plan((Choice("watch"), *further.choices), (*own, *others))
