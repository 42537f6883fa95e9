"""Jacobians of the blocks of three untrained designs, and a Post-LN stack without its norms.

The measurement is that of the experiment `gradient-flow`: singular values and distances to the
identity of every block of 12 layers on one example of 16 tokens, and the product of a Post-LN stack
of 24 layers with and without the Jacobians of its norms.
"""

from __future__ import annotations

from typing import Any

from leadline.claims.catalog import Trial
from leadline.claims.norms._start import drawn

__all__ = ["BLOCKS", "DEPTH", "POST_DEPTH"]

DEPTH, POST_DEPTH, LENGTH = 12, 24, 16


def run(seed: int) -> dict[str, Any]:
    """Block Jacobians of Pre-LN, scaled Pre-LN and Post-LN."""
    from leadline.experiments.gradient_flow.jacobians import blocks_of, norms_apart
    from leadline.experiments.gradient_flow.starts import batch_of

    batch = batch_of(LENGTH, examples=1, seed=seed)
    found: dict[str, Any] = {}
    for design in ("pre", "scaled pre", "post"):
        model = drawn(design, DEPTH, seed, length=LENGTH)
        blocks = blocks_of(model, batch, design=design, told=_silent)
        found[design] = {
            "largest": list(blocks.largest),
            "distance": list(blocks.distance),
            "whole": blocks.whole,
        }
    apart = norms_apart(drawn("post", POST_DEPTH, seed, length=LENGTH), batch)
    found["norms apart"] = {
        "with": apart.with_size,
        "without": apart.without_size,
        "shrink": apart.shrink,
    }
    return found


def _silent() -> None:
    """No progress is told."""


BLOCKS = Trial("norms-block-jacobians", run, seconds=8.0)
