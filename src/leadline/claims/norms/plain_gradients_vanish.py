"""Without a skip gradients vanish, because a long product of Jacobians is left.

"claim": stacks of attention and MLP without skip and without norm, which is what the notes derive,
from Xavier's start, at 24 and at 96 layers. "reach": the same without skip but with the norms of a
Transformer, which is what "a Transformer without shortcuts" is: the norm brings the stream to size
before every branch, and its Jacobian brings the gradient to size too. A product of factors vanishes
or explodes with their size, so the correction names the start: the stack of 24 layers without norm
is drawn once more with all weight matrices of its branches half as large again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture
from leadline.claims.norms._start import AT_START, DEPTHS, EXAMPLES, LENGTH, drawn, found_in

DEPTH, LARGER = 24, 1.5


@claim(
    "plain-gradients-vanish",
    group="norms",
    notes=("shortcuts", "textbook"),
    title="Without skip connections the gradient of a deep stack vanishes",
    formula=r"\prod_{l=1}^{96} F'_l \approx 0",
    plain="∏ F'_l ≈ 0 over 96 layers",
    says="Without residual connections the gradient is a product of as many matrices as there are "
    "layers; with 96 of them it is almost certainly dead.",
    correction="That is so without skip and without norm from Xavier's start; with weights half as "
    "large again it explodes. With a norm before every branch the gradient of a stack without skip "
    "does not vanish before training.",
    why="Without skip and norm the gradient at the entry is {plain_24:.0e} of that at the end with "
    "24 layers and {plain_96:.0e} with 96. With weights half as large again it is {larger:.0e} "
    "times that at the end with 24 layers: a long product goes with the size of its factors. With "
    "norms before the branches, and still without "
    "skip, it is from {least:.2f} to {most:.0f} times as large, depending on depth: a norm divides "
    "by the size of what it reads, and so does its derivative. What is lost then is something "
    "else: the tokens become equal (cosine {cosine:.4f} at 24 layers).",
    checks=(
        Check(
            "plain_24", "claim", "at most", 1e-3,
            label="gradient at entry over end, 24 layers, no skip and no norm",
            because="Vanished is read as a thousandfold loss.",
            log=True,
        ),
        Check(
            "plain_96", "claim", "at most", 1e-3,
            label="the same with 96 layers",
            because="Vanished is read as a thousandfold loss.",
            log=True,
        ),
        Check(
            "least", "reach", "at most", 1e-3,
            label="gradient at entry over end, no skip with norms, least of four depths",
            because="Vanished is read as a thousandfold loss.",
            log=True,
        ),
        Check(
            "kept", "correction", "at least", 0.01,
            label="least gradient of any layer over the last one's, no skip with norms",
            because="Not vanished: a hundredth or more. Single draws lie between 0.1 and 1.",
            log=True,
        ),
        Check(
            "larger", "correction", "at least", 1e3,
            label="gradient at entry over end, 24 layers, no skip and no norm, weights × 1.5",
            because="Exploded is read as a thousandfold gain.",
            log=True,
        ),
    ),
    source="",
    seconds=0.3,
    needs=(AT_START,),
)  # fmt: skip
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """Gradients without skip, without and with norms."""
    plain, normed = found_in(trials, "plain"), found_in(trials, "no skip")
    depths = tuple(float(depth) for depth in DEPTHS)
    return Measured(
        {
            "plain_24": plain.ratio(24),
            "plain_96": plain.ratio(96),
            "least": min(normed.ratio(depth) for depth in DEPTHS),
            "most": max(normed.ratio(depth) for depth in DEPTHS),
            "kept": min(normed.least(depth) for depth in DEPTHS),
            "cosine": normed.number("cosine", 24),
            "larger": _larger(seed),
        },
        Picture(
            "depth",
            "gradient at entry / at the end",
            {
                label: (depths, tuple(found.ratio(depth) for depth in DEPTHS))
                for label, found in (
                    ("no skip, no norm", plain),
                    ("no skip, norms", normed),
                    ("skip and norms (Pre-LN)", found_in(trials, "pre")),
                )
            },
            x_log=True,
            y_log=True,
        ),
    )


def _larger(seed: int) -> float:
    """The gradient at entry over end of the plain stack with larger weights."""
    import torch

    from leadline.experiments.gradient_flow.starts import batch_of, measured

    model = drawn("plain", DEPTH, seed)
    with torch.no_grad():
        for sublayer in model.sublayers():
            for weight in sublayer.branch.parameters():
                if weight.ndim == 2:
                    weight.mul_(LARGER)
    batch = batch_of(LENGTH, examples=EXAMPLES, seed=seed)
    return measured(model, batch, design="plain", seed=seed).ratio
