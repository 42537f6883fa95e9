"""Without normalisation the mean shifts, the more so if unbalanced vectors are added.

The mean is that over the features of a token, which LayerNorm would subtract; in the root mean
square over tokens and draws. "claim": it grows in a stack without norms, and more if every update
carries an offset of its own (half of its size in all features). "reach": a shift in the sense that matters to
the next layer, the mean beside the size of the stream, without such offsets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture
from leadline.claims.norms._start import EXAMPLES, LENGTH, drawn, own_seed

if TYPE_CHECKING:
    from numpy.typing import NDArray

DEPTH, OFFSET, DRAWS = 24, 0.5, 8


@claim(
    "unnormed-mean-shifts",
    group="norms",
    notes=("summary",),
    title="Added up without normalisation, the mean shifts",
    formula=r"\mu(x_L) \neq \mu(x_0)",
    plain="mean of x_L ≠ mean of x_0 without norm",
    says="If updates are added without normalisation the mean of the activations shifts, above all "
    "when unbalanced vectors are added.",
    correction="The mean grows, but no faster than the stream itself: beside the size of the "
    "stream it stays at about $1/\\sqrt{d}$, as for random features. It takes over only where "
    "the updates themselves have a mean.",
    why="In {draws:.0f} untrained models of 24 layers without norms the mean over the features "
    "of a token grows {grown:.1e}-fold. The stream grows as much: beside its size the mean goes "
    "from {first:.2f} to {last:.2f}. If every update carries an offset of half its size, the "
    "mean ends at {unbalanced:.2f} of the size of the stream, so it is most of it. The note is "
    "right that unbalanced updates are the danger.",
    checks=(
        Check(
            "grown", "claim", "at least", 10.0,
            label="mean over features after 24 layers over the one before",
            because="A shift that is to be seen: at least tenfold.",
            log=True,
        ),
        Check(
            "more", "claim", "at least", 2.0,
            label="share of the mean with unbalanced updates over that without",
            because="Above all: at least twice as much.",
        ),
        Check(
            "share_grown", "reach", "at least", 2.0,
            label="mean beside the size of the stream, last over first layer",
            because="A shift that the next layer notices: at least twice the share.",
            over="mean",
        ),
        Check(
            "last", "correction", "at most", 0.5,
            label="mean beside the size of the stream after 24 layers",
            because="Random features give 1/√64 = 0.125; four times that is still no shift.",
        ),
        Check(
            "unbalanced", "correction", "at least", 0.5,
            label="the same with an offset in every update",
            because="Most of the stream: more than half of its size.",
        ),
    ),
    source="",
    seconds=1.9,
)  # fmt: skip
def measure(seed: int) -> Measured:
    """Follow the mean over the features, without and with an offset in every update."""
    means, shares = np.sqrt(_followed(seed, unbalanced=False))
    _, moved = np.sqrt(_followed(seed, unbalanced=True))
    layers = tuple(float(layer) for layer in range(DEPTH + 1))
    return Measured(
        {
            "draws": float(DRAWS),
            "grown": float(means[-1] / means[0]),
            "more": float(moved[-1] / shares[-1]),
            "share_grown": float(shares[-1] / shares[0]),
            "first": float(shares[0]),
            "last": float(shares[-1]),
            "unbalanced": float(moved[-1]),
        },
        Picture(
            "layer",
            "mean over features / size of the stream",
            {
                "no norm": (layers, tuple(map(float, shares))),
                "no norm, unbalanced updates": (layers, tuple(map(float, moved))),
            },
        ),
    )


def _followed(seed: int, *, unbalanced: bool) -> NDArray[np.float64]:
    """At every site the squared mean over features, and its share; the mean over the draws."""
    import torch

    from leadline.experiments.gradient_flow.starts import batch_of, plain_attention, seen_writes

    def offset(_: Any, _given: Any, update: torch.Tensor) -> torch.Tensor:
        return update + OFFSET * update.square().mean(-1, keepdim=True).sqrt()

    found: list[list[tuple[float, float]]] = []
    for draw in range(DRAWS):
        own = own_seed(seed, draw)
        model = drawn("no norm", DEPTH, own).double()
        if unbalanced:
            for sublayer in model.sublayers():
                sublayer.branch.register_forward_hook(offset)
        with plain_attention(), torch.no_grad(), seen_writes(model) as seen:
            model.stream(batch_of(LENGTH, examples=EXAMPLES, seed=own).ids)
        squares = [
            (float(x.mean(-1).square().mean()), float(x.square().mean()))
            for x in seen.sites(writes=len(model.recipe.branches))
        ]
        found.append([(mean, mean / size) for mean, size in squares])
    return np.asarray(found).mean(axis=0).T
