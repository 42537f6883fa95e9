"""The largest query, key and logit of attacked heads, beside what formulas allow."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

__all__ = ["Reached", "reached"]

BATCH, TOKENS, STEPS, RATE = 60, 6, 60, 0.1


@dataclass(frozen=True)
class Reached:
    """Largest ratios over the heads of a kind; each is measured over allowed."""

    query: float
    """|q| over Gamma sigma_Q sqrt(d)."""
    key: float
    logit: float
    """|l| over M = Gamma^2 sigma_Q sigma_K sqrt(d)."""
    span: float
    """The range of a row's logits over 2 M."""
    query_corrected: float
    """|q| over sigma_Q (Gamma sqrt(d) + |beta|) + |b_Q|."""
    span_corrected: float
    """The range of a row's logits over Delta of the theory."""


def reached(kind: str, *, seed: int) -> Reached:
    """Push the logits of a kind of heads uphill by Adam, and take the worst of start and end."""
    import torch

    from leadline.instruments.attacks.heads import KINDS, Heads

    found: list[Reached] = []
    for part in range(3):
        generator = torch.Generator().manual_seed(10 * seed + part)
        heads = Heads(KINDS[kind], BATCH, TOKENS, generator=generator)
        found.append(_ratios(heads))
        ascent = torch.optim.Adam(list(heads.free.values()), lr=RATE, maximize=True)
        for _ in range(STEPS):
            ascent.zero_grad()
            logits = heads.attention()[1]
            (logits.amax((-1, -2)) - logits.amin((-1, -2)) + 1e-9).log().sum().backward()
            ascent.step()
        found.append(_ratios(heads))
    names = Reached.__dataclass_fields__
    return Reached(**{name: max(getattr(one, name) for one in found) for name in names})


def _ratios(heads: Any) -> Reached:
    import torch

    from leadline.theory.attention.logit_span import weight_span

    with torch.no_grad():
        weights, logits = heads.attention()
        query, key = heads._queries_and_keys()
        facts = heads.facts(weights, logits)
        lengths = query.norm(dim=-1).amax(-1).tolist(), key.norm(dim=-1).amax(-1).tolist()
        largest = logits.abs().amax((-1, -2)).tolist()
    rows: list[tuple[float, ...]] = []
    for q, k, logit, one in zip(*lengths, largest, facts, strict=True):
        assert None not in (one.gain, one.query_weight, one.key_weight, one.shift, one.query_bias)
        long = one.gain * math.sqrt(one.width)
        written = long * long * one.query_weight * one.key_weight / math.sqrt(one.width)
        span = weight_span(one)
        assert span is not None
        rows.append(
            (
                q / (one.query_weight * long),
                k / (one.key_weight * long),
                logit / written,
                one.logit_span / (2 * written),
                q / (one.query_weight * (long + one.shift) + one.query_bias),
                one.logit_span / span,
            )
        )
    return Reached(*(max(column) for column in zip(*rows, strict=True)))
