"""The residual stream is where information accumulates.

What can be checked of it is the sum: x_L = x_0 + u_1 + ... + u_2L, nothing that was written is
taken back by the connection, and what is there grows. "claim": Pre-LN, as in the note's own
drawing. "reach": Post-LN, which also has residual connections; there every sum is divided again,
and of what was written early little is left. The share left of the first input is taken by
linearity: with the divisors of the real pass, prod 1/s over the norms.
"""

from __future__ import annotations

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check
from leadline.claims.norms._start import EXAMPLES, LENGTH, drawn

DEPTH = 48


@claim(
    "stream-accumulates",
    group="norms",
    notes=("card",),
    title="The residual stream accumulates what the layers write",
    formula=r"x_L = x_0 + \sum_{l=1}^{L} F_l",
    plain="x_L = x_0 + Σ F_l",
    says="The residual stream is the place where information accumulates through the layers.",
    correction="In Pre-LN the stream is the sum of its entry and of all updates. In Post-LN every "
    "norm divides what was there, so early contributions fade by a factor per layer.",
    why="In a Pre-LN model of 48 layers the last stream is the entry plus all 96 updates, to "
    "{sum_error:.0e}; it is {grown:.1f} times as large in mean square. In Post-LN the same sum "
    "misses the last stream by {post_error:.1f} times its size, because each of the 96 norms "
    "divides what it finds by about {divisor:.2f}: of the entry only {left:.0e} is left. Whether "
    "what accumulates is useful information, this does not say.",
    checks=(
        Check(
            "sum_error", "claim", "at most", 1e-12,
            label="entry plus all updates against the last stream, Pre-LN",
            because="An identity: 96 additions in float64.",
            log=True,
        ),
        Check(
            "grown", "claim", "at least", 2.0,
            label="mean square of the last stream over the first, Pre-LN",
            because="Accumulating: at least twice as much after 48 layers.",
        ),
        Check(
            "post_error", "reach", "at most", 0.1,
            label="entry plus all updates against the last stream, Post-LN",
            because="A sum that describes the stream misses it by less than a tenth.",
            log=True,
        ),
        Check(
            "left", "correction", "at most", 1e-3,
            label="factor that the norms leave of the entry, Post-LN",
            because="Fading: at least a thousandfold over 96 norms.",
            log=True,
        ),
    ),
    source="Elhage et al. 2021, A Mathematical Framework for Transformer Circuits",
    seconds=0.5,
)  # fmt: skip
def measure(seed: int) -> Measured:
    """Add up the updates of one pass of both designs."""
    import math

    import torch

    from leadline.experiments.gradient_flow.starts import batch_of, plain_attention, seen_writes

    batch = batch_of(LENGTH, examples=EXAMPLES, seed=seed)
    numbers: dict[str, float] = {}
    for design, name in (("pre", "sum_error"), ("post", "post_error")):
        model = drawn(design, DEPTH, seed).double()
        with plain_attention(), torch.no_grad(), seen_writes(model) as seen:
            model.stream(batch.ids)
        first, last = seen.states[0], seen.states[-1]
        total = first + torch.stack(seen.updates).sum(0)
        numbers[name] = float((total - last).norm() / last.norm())
        if design == "pre":
            numbers["grown"] = float(last.square().mean() / first.square().mean())
        else:
            divisors = [
                (x + u).var(-1, correction=0).add(1e-5).sqrt().log().mean()
                for x, u in zip(seen.states, seen.updates, strict=False)
            ]
            numbers["divisor"] = math.exp(float(torch.stack(divisors).mean()))
            numbers["left"] = numbers["divisor"] ** -len(divisors)
    return Measured(numbers)
