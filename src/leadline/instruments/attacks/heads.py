"""Attention heads that stay within hypotheses by construction, for the search for violations.

Every matrix, vector and gain of a head is a free tensor scaled to a drawn size, so the facts
(Gamma, |beta|, sigma_Q, ...) stay what they are while inputs and weights are moved:

    z = gamma * norm(x) + beta,  q = z W_Q + b_Q,  k = z W_K + b_K,
    A = softmax(mask(cap(scaling <q, k>) + bias)).

Without a norm the logits themselves are free within a span. Everything is small and float64.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from leadline.theory import AttentionFacts

__all__ = ["KINDS", "DrawnHeads", "Kind"]


@dataclass(frozen=True, slots=True)
class Kind:
    """The hypotheses that an attack keeps to."""

    mask: Literal["none", "causal", "window", "blocks", "random"] = "none"
    norm: Literal["layer", "rms"] | None = "layer"
    """None: the logits are free within a span."""
    shifted: bool = False
    """The norm has a bias beta."""
    biased: bool = False
    """Queries and keys have biases b_Q and b_K."""
    rotary: bool = False
    capped: bool = False
    added: bool = False
    """A position bias is added to the logits."""
    qk_norm: bool = False
    sink: bool = False
    scaled_by_width: bool = False
    """Logits are scaled by 1/sqrt(d), not by 1/sqrt(d_h)."""
    cross: bool = False
    """There are fewer or more queries than keys."""


KINDS: dict[str, Kind] = {
    "as-the-note": Kind(scaled_by_width=True),
    "as-the-note-rotary": Kind(norm="rms", rotary=True, capped=True, scaled_by_width=True),
    "as-the-note-causal": Kind(mask="causal", scaled_by_width=True),
    "as-the-note-shifted": Kind(shifted=True, scaled_by_width=True),
    "as-the-note-scaled-by-head": Kind(),
    "open": Kind(shifted=True, biased=True),
    "open-rotary": Kind(norm="rms", shifted=True, biased=True, rotary=True),
    "open-qk-norm": Kind(norm="rms", rotary=True, qk_norm=True, added=True),
    "open-sink": Kind(shifted=True, biased=True, capped=True, added=True, sink=True),
    "causal": Kind(mask="causal", shifted=True, biased=True),
    "causal-rotary": Kind(mask="causal", norm="rms", biased=True, rotary=True, capped=True),
    "causal-sink": Kind(mask="causal", norm="rms", biased=True, sink=True, added=True),
    "window": Kind(mask="window", shifted=True, biased=True),
    "blocks": Kind(mask="blocks", norm="rms", biased=True, rotary=True),
    "random": Kind(mask="random", norm="rms", qk_norm=True, capped=True, added=True),
    "logits": Kind(norm=None),
    "logits-causal": Kind(mask="causal", norm=None),
    "logits-random": Kind(mask="random", norm=None, sink=True),
    "logits-cross": Kind(norm=None, cross=True),
}

SIZES = (
    ("gain", 0.2, 2.0),
    ("shift", 0.1, 8.0),
    ("query_weight", 0.02, 2.0),
    ("key_weight", 0.02, 2.0),
    ("query_bias", 0.05, 4.0),
    ("key_bias", 0.05, 4.0),
    ("query_radius", 0.1, 3.0),
    ("key_radius", 0.1, 3.0),
    ("cap", 0.2, 4.0),
    ("bias", 0.05, 3.0),
    ("span", 0.01, 12.0),
)
"""What is drawn for every head, evenly in the logarithm between two ends."""


class DrawnHeads:
    """A batch of heads of one shape: drawn sizes, which are facts, and free tensors."""

    def __init__(self, kind: Kind, batch: int, n: int, *, generator: torch.Generator) -> None:
        self.kind, self.batch, self.keys = kind, batch, n
        self.queries = max(1, 2 * n - 5) if kind.cross else n
        self.width = (2, 4, 8, 16)[int(torch.randint(4, (), generator=generator))]
        self.head_width = 2 if kind.rotary else 1 + int(torch.randint(2, (), generator=generator))
        self.allowed = _allowed(kind, batch, self.queries, n, generator=generator)
        self._generator = generator
        self.sizes = {name: self._size(low, high) for name, low, high in SIZES}
        d, h = self.width, self.head_width
        self.free = {
            "x": self._free(n, d),
            "gain": self._free(d),
            "shift": self._free(d),
            "query_weight": self._free(d, h),
            "key_weight": self._free(d, h),
            "query_bias": self._free(h),
            "key_bias": self._free(h),
            "bias": self._free(self.queries, n),
            "sink": self._free(1, 1),
            "logits": self._free(self.queries, n),
        }
        scale = d if kind.scaled_by_width else h
        self.scaling = 1.0 / math.sqrt(scale)

    def _size(self, low: float, high: float) -> Tensor:
        """Draw one number per head, even in the logarithm."""
        share = torch.rand(self.batch, generator=self._generator, dtype=torch.float64)
        return low * (high / low) ** share

    def _free(self, *shape: int) -> Tensor:
        drawn = torch.randn(self.batch, *shape, generator=self._generator, dtype=torch.float64)
        return drawn.requires_grad_()

    def _vector(self, name: str) -> Tensor:
        """Return the free vector scaled to its size, as [head, 1, feature]."""
        drawn = self.free[name]
        unit = drawn / drawn.square().sum(-1, keepdim=True).sqrt()
        return (unit * self.sizes[name][:, None])[:, None, :]

    def _matrix(self, name: str) -> Tensor:
        """Return the free matrix scaled to its largest singular value."""
        top = torch.linalg.matrix_norm(self.free[name], ord=2)
        return self.free[name] * (self.sizes[name] / top)[:, None, None]

    def attention(self) -> tuple[Tensor, Tensor]:
        """Return the weights and the logits, both [head, query, key]."""
        kind, each = self.kind, (slice(None), None, None)
        if kind.norm is None:
            logits = self.sizes["span"][each] * torch.sigmoid(4.0 * self.free["logits"])
        else:
            query, key = self._queries_and_keys()
            logits = self.scaling * query @ key.mT
            if kind.capped:
                cap = self.sizes["cap"][each]
                logits = cap * torch.tanh(logits / cap)
            if kind.added:
                logits = logits + self.sizes["bias"][each] * torch.sigmoid(4.0 * self.free["bias"])
        masked = logits.masked_fill(~self.allowed, -math.inf)
        if kind.sink:
            sink = self.free["sink"].expand(-1, self.queries, 1)
            return torch.softmax(torch.cat([masked, sink], -1), -1)[..., :-1], logits
        return torch.softmax(masked, -1), logits

    def _queries_and_keys(self) -> tuple[Tensor, Tensor]:
        kind, x = self.kind, self.free["x"]
        u = x - x.mean(-1, keepdim=True) if kind.norm == "layer" else x
        u = u / (u.square().mean(-1, keepdim=True) + 1e-5).sqrt()
        gain = self.free["gain"] / self.free["gain"].abs().amax(-1, keepdim=True)
        z = (self.sizes["gain"][:, None] * gain)[:, None, :] * u
        if kind.shifted:
            z = z + self._vector("shift")
        query, key = z @ self._matrix("query_weight"), z @ self._matrix("key_weight")
        if kind.biased:
            query, key = query + self._vector("query_bias"), key + self._vector("key_bias")
        if kind.qk_norm:
            query = self.sizes["query_radius"][:, None, None] * _on_the_sphere(query)
            key = self.sizes["key_radius"][:, None, None] * _on_the_sphere(key)
        return (_turned(query), _turned(key)) if kind.rotary else (query, key)

    def facts(self, weights: Tensor, logits: Tensor) -> list[AttentionFacts]:
        """Return the facts of every head."""
        kind, other = self.kind, self.kind.mask not in ("none", "causal")
        columns = weights.sum(-2).amax(-1).tolist()
        highest = logits.masked_fill(~self.allowed, -math.inf).amax(-1)
        lowest = logits.masked_fill(~self.allowed, math.inf).amin(-1)
        spans = (highest - lowest).amax(-1).tolist()
        counts = self.allowed.sum(-1).tolist()
        sizes = {name: values.tolist() for name, values in self.sizes.items()}
        normed = kind.norm is not None

        def size(name: str, index: int, there: bool, absent: float | None) -> float | None:
            return sizes[name][index] if there else absent

        return [
            AttentionFacts(
                queries=self.queries,
                keys=self.keys,
                allowed=tuple(counts[i]) if other else (),
                mask="causal" if kind.mask == "causal" else "other" if other else "none",
                stochastic=not kind.sink,
                positions="rotary" if kind.rotary else "bias" if kind.added else "none",
                bias_range=sizes["bias"][i] if kind.added else 0.0,
                scaling=self.scaling if normed else None,
                soft_cap=size("cap", i, kind.capped, None),
                head_width=self.head_width,
                width=self.width,
                gain=size("gain", i, normed, None),
                shift=size("shift", i, kind.shifted, 0.0) if normed else None,
                query_weight=size("query_weight", i, normed, None),
                key_weight=size("key_weight", i, normed, None),
                query_bias=size("query_bias", i, kind.biased, 0.0),
                key_bias=size("key_bias", i, kind.biased, 0.0),
                query_radius=size("query_radius", i, kind.qk_norm, None),
                key_radius=size("key_radius", i, kind.qk_norm, None),
                column_sum=columns[i],
                logit_span=spans[i],
            )
            for i in range(self.batch)
        ]


def _allowed(
    kind: Kind, batch: int, queries: int, keys: int, *, generator: torch.Generator
) -> Tensor:
    """Return which keys each query sees, [head, query, key]; every query sees one at least."""
    i, j = torch.arange(queries)[:, None], torch.arange(keys)[None, :]
    if kind.mask == "random":
        return (torch.rand(batch, queries, keys, generator=generator) < 0.5) | (i == j)
    visible = {
        "none": i >= 0 * j,
        "causal": j <= i,
        "window": (j == 0) | ((j <= i) & (j > i - 2)),
        "blocks": (j <= i) & ((i < keys // 2) == (j < keys // 2)),
    }[kind.mask]
    return visible.expand(batch, queries, keys)


def _on_the_sphere(x: Tensor) -> Tensor:
    return x / (x.square().sum(-1, keepdim=True) + 1e-6).sqrt()


def _turned(x: Tensor) -> Tensor:
    """Turn pairs of neighbours by one radian per position, slower from pair to pair."""
    pairs = x.unflatten(-1, (-1, 2))
    pace = 100.0 ** -torch.linspace(0.0, 1.0, pairs.shape[-2] + 1, dtype=x.dtype)[:-1]
    angle = torch.arange(x.shape[-2], dtype=x.dtype)[:, None] * pace
    a, b = pairs[..., 0], pairs[..., 1]
    turned = (a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos())
    return torch.stack(turned, -1).flatten(-2)
