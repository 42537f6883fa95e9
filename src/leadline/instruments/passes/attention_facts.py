"""Facts of one attention besides its numbers: mask, positions, shapes, and what is odd about it."""

from __future__ import annotations

import itertools
from typing import Any

import torch

from leadline.numerics.patterns.matrix_group import HIDDEN
from leadline.numerics.patterns.patterns import Patterns, PatternShape
from leadline.record import Finding, Site
from leadline.record.rows.finding import Severity

__all__ = ["attention_facts", "attention_findings", "positions_of"]

UNEVEN = 1e-3
"""Rows whose sum misses one by more than this, or two eps of their type, are no distribution."""


def attention_facts(site: Site, patterns: Patterns, *, first_head: int = 1) -> dict[str, Any]:
    """One entry of the provenance. `allowed` is written as [count, how often] where it is needed."""
    attention, measured = patterns.attention, patterns.measured
    mask = _mask(measured.shapes)
    source = attention.query_source
    head_width = None if attention.query is None else attention.query.shape[-1]
    return {
        "stack": site.stack,
        "layer": site.layer,
        "sublayer": site.sublayer,
        "point": site.point,
        "module": attention.module,
        "first_head": first_head,
        "heads": patterns.heads,
        "groups": patterns.heads if attention.key is None else attention.key.shape[1],
        "width": None if source is None or source.weight is None else source.weight.shape[-1],
        "head_width": head_width,
        "scaling": None if patterns.scores is None else patterns.scores.scaling,
        "mask": mask,
        "positions": positions_of(patterns),
        "stochastic": not attention.sink and _even(patterns),
        "substochastic": _substochastic(patterns),
        "altered": measured.altered,
        "qk_norm": source is not None and source.weight is None,
        "norm": None if source is None or source.norm is None else source.norm.module,
        "seen": attention.route,
        "proof_eps": None if measured.proof is None else round(measured.proof, 3),
        "iterations": int(measured.norm.iterations.max()),
        "loose": int(measured.norm.loose.sum()),
        "shapes": [
            {
                "queries": shape.queries,
                "keys": shape.keys,
                "examples": shape.examples,
                "allowed": _runs(shape.allowed) if mask == "other" else [],
            }
            for shape in measured.shapes
        ],
    }


def attention_findings(site: Site, patterns: Patterns) -> list[Finding]:
    """The findings about matrices that are no ordinary attention."""
    measured = patterns.measured
    findings: list[Finding] = []

    def say(verdict: str, severity: Severity = "serious") -> None:
        findings.append(
            Finding(
                verdict=verdict,
                quantity="attention.spectral_norm",
                site=site,
                severity=severity,
            )
        )

    if measured.broken:
        say(f"Attention logits are not finite at {site}.")
    if measured.altered:
        say(
            f"Attention weights are changed between softmax and values at {site}, so the logits tell "
            "nothing."
        )
    if measured.missing:
        say(f"{measured.missing} rows of the attention matrices may see no key at all at {site}.")
    if measured.lowest < 0:
        say(f"Attention weights are negative (down to {measured.lowest:.3g}) at {site}.")
    if not patterns.attention.sink and not measured.broken and not _even(patterns):
        say(
            "Rows of the attention weights do not sum to one (off by up to "
            f"{measured.uneven:.3g}) at {site}."
        )
    if measured.doubtful:
        say(
            f"The mask at {site} was not seen: keys more than {HIDDEN:,.0f} below the largest logit "
            "of their row count as hidden, so the logit span is at most that.",
            "note",
        )
    return findings


def _even(patterns: Patterns) -> bool:
    return patterns.measured.uneven <= _tolerance(patterns)


def _substochastic(patterns: Patterns) -> bool:
    """Whether no weight is negative and no row sums to more than one, to rounding."""
    measured = patterns.measured
    return measured.lowest >= 0 and measured.excess <= _tolerance(patterns)


def _tolerance(patterns: Patterns) -> float:
    attention = patterns.attention
    dtype = attention.weights.dtype if attention.weights is not None else torch.float32
    return max(UNEVEN, 2 * torch.finfo(dtype).eps)


def positions_of(patterns: Patterns) -> str:
    """How queries and keys learn of positions: none, rotary, bias (on the logits), unknown."""
    attention = patterns.attention
    sources = (attention.query_source, attention.key_source)
    if any(source is not None and source.turned for source in sources):
        return "rotary"
    if any(source is None for source in sources):
        return "unknown"
    scores = patterns.scores
    if scores is None:
        return "unknown"
    return "bias" if scores.bias_range > 0 else "none"


def _mask(shapes: list[PatternShape]) -> str:
    """The mask that all shapes share; a single token has both of the plain ones."""
    telling = {shape.mask for shape in shapes if shape.keys > 1 or shape.queries > 1}
    if not telling:
        return "none"
    return telling.pop() if len(telling) == 1 else "other"


def _runs(counts: tuple[int, ...]) -> list[list[int]]:
    return [[count, len(list(same))] for count, same in itertools.groupby(counts)]
