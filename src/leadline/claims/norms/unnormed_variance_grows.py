"""Without normalisation the variance grows with the layers, and activations may explode.

"claim": the plain sum x + F(x) without norms, Xavier's init. "reach": the other sums that the same
note lists as variants, here x + alpha F(x) with alpha = 1/sqrt(2L), also without norms: the note
concludes that normalisation is mandatory, so it means these too. Growth is exponential: each
branch reads the stream itself. The law's band needs ReLU, so four more models are drawn with it.

With updates u / sqrt(2 L) attention multiplies the mean square by 1 + a/(2L) at most and the MLP by
1 + c/(2L), in the mean over weights, so L layers by exp((a + c)/2) at most, at any depth. Xavier
has a = 1, and c <= 4 r / (1 + r)² = 0.64 for r = 4 and any activation with |f(x)| <= |x|.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture
from leadline.claims.norms._start import (
    AT_START,
    EXAMPLES,
    HEADS,
    LENGTH,
    WIDTH,
    drawn,
    found_in,
    own_seed,
)

DEPTH, LAW_DEPTH = 48, 24
WEIGHTED_DEPTHS = (12, DEPTH, 96)
DRAWS = 4


@claim(
    "unnormed-variance-grows",
    group="norms",
    notes=("summary",),
    title="Added up without normalisation, the variance grows with the layers and may explode",
    formula=r"x_{l+1} = x_l + F(x_l) \Rightarrow \mathrm{Var}(x_L) \gg \mathrm{Var}(x_0)",
    plain="x ← x + F(x) without norm: Var grows with l, may explode",
    says="If updates are added without any normalisation, the variance grows with the layers, "
    "which may make the activations explode.",
    correction="For the plain sum that is right, and the growth is exponential: every branch "
    "reads the stream that it makes larger. With updates scaled by $1/\\sqrt{2L}$ it grows by a "
    "constant factor at any depth, without any norm.",
    why="Without norms the mean square of the stream grows {factor:.2f}-fold with every layer, to "
    "{explosion:.1e} times its start after 48 layers. That is because a larger stream "
    "makes larger updates. With norms before the branches it grows only by a constant per layer. "
    "And with updates divided by $\\sqrt{2L}$ it grows {weighted:.2f}-fold in all.",
    checks=(
        Check(
            "factor", "claim", "at least", 1.1,
            label="growth of the mean square per layer, no norm",
            because="Growing with the layers: by at least a tenth per layer.",
        ),
        Check(
            "explosion", "claim", "at least", 1e3,
            label="growth of the mean square over 48 layers, no norm",
            because="Exploding is read as growing at least a thousandfold.",
            log=True,
        ),
        Check(
            "weighted", "reach", "at least", 10.0,
            label="growth over 48 layers, no norm, updates / √(2L)",
            because="Growing with the layers: at least tenfold over 48 of them.",
            log=True,
        ),
        Check(
            "in_band", "correction", "near", 1.0, within=0.2,
            label="place of the growth in the law's band, logarithmic, ReLU",
            because="Without norms the tokens become equal, and of equal tokens attention writes "
            "all that the law allows: its upper end, 1, is the mean over weights. The mean of four "
            "draws scatters by 0.03.",
        ),
        Check(
            "weighted_any", "correction", "at most", math.exp(0.82),
            label="growth at 12, 48 or 96 layers, no norm, updates / √(2L), the largest",
            because="In the mean over weights at most exp((a + c)/2) at any depth, with a = 1 and "
            "c ≤ 0.64 for Xavier's init: 2.27.",
        ),
        Check(
            "step", "correction", "near", 1.0, within=1e-9,
            label="length of what a layer adds times √(2L), over that of its update",
            because="That the updates are scaled by 1/√(2L): an identity up to rounding.",
        ),
    ),
    source="Noci et al. 2022, arXiv 2206.03126",
    seconds=1.8,
    needs=(AT_START,),
)  # fmt: skip
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """Mean squares without norms: plain sum, scaled sum, and models for the law."""
    from leadline.experiments.gradient_flow.starts import batch_of, measured

    batch = batch_of(LENGTH, examples=EXAMPLES, seed=seed)
    bare = found_in(trials, "no norm")
    growth = bare.growth(DEPTH)
    several = {
        depth: measured(drawn("weighted", depth, seed), batch, design="weighted", seed=seed)
        for depth in WEIGHTED_DEPTHS
    }
    weighted = several[DEPTH]
    layers = tuple(float(layer) for layer in range(DEPTH + 1))
    return Measured(
        {
            "factor": growth ** (1.0 / DEPTH),
            "explosion": growth,
            "weighted": weighted.squares[-1] / weighted.squares[0],
            "weighted_any": max(one.squares[-1] / one.squares[0] for one in several.values()),
            "step": _step(seed),
            "in_band": sum(_place(own_seed(seed, draw)) for draw in range(DRAWS)) / DRAWS,
        },
        Picture(
            "layer",
            "mean square of the stream",
            {
                "no norm": (layers, tuple(bare.squares(DEPTH))),
                "Pre-LN": (layers, tuple(found_in(trials, "pre").squares(DEPTH))),
                "no norm, updates / √(2L)": (layers, tuple(weighted.squares)),
            },
            y_log=True,
        ),
    )


def _step(seed: int) -> float:
    """How much longer x' - x is than u / sqrt(2 L), in the mean over the writes of one pass."""
    import torch

    from leadline.experiments.gradient_flow.starts import batch_of, plain_attention, seen_writes

    depth = WEIGHTED_DEPTHS[0]
    model = drawn("weighted", depth, seed).double()
    with plain_attention(), torch.no_grad(), seen_writes(model) as seen:
        model.stream(batch_of(LENGTH, examples=1, seed=seed).ids)
    pairs = zip(seen.states, seen.states[1:], seen.updates, strict=False)
    ratios = [float((after - x).norm() / u.norm()) for x, after, u in pairs]
    return math.sqrt(2 * depth) * sum(ratios) / len(ratios)


def _place(seed: int) -> float:
    """Where the growth of one model with ReLU lies in the law's band, logarithmically."""
    from leadline.experiments.gradient_flow.growth import facts_of
    from leadline.experiments.gradient_flow.starts import batch_of, measured
    from leadline.lab.presets.depth_limits import FIXED
    from leadline.lab.tasks import build_task
    from leadline.lab.trainer import model_for
    from leadline.parts import Recipe
    from leadline.theory.depth import LAWS

    recipe = Recipe(
        depth=LAW_DEPTH, width=WIDTH, heads=HEADS, mlp="relu", init="xavier",
        head=FIXED["head"], connection="identity", placement="none",
    )  # fmt: skip
    model = model_for(recipe, build_task(f"stdlib(length={LENGTH})"), seed=seed).eval()
    batch = batch_of(LENGTH, examples=EXAMPLES, seed=seed)
    relu = measured(model, batch, design="no norm", seed=seed)
    facts = facts_of("no norm", LAW_DEPTH, width=WIDTH, mean_square=relu.squares)
    bands = LAWS.get("unnormed-stream")().predicted(_with_relu(facts))
    assert bands is not None
    low, high = (math.log(end) for end in bands[-1])
    return (math.log(relu.squares[-1]) - low) / (high - low)


def _with_relu(facts: Any) -> Any:
    from dataclasses import replace

    return replace(facts, mlp="relu", norm="none")
