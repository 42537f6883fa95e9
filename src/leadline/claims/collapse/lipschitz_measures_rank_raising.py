"""The ability of an MLP to raise rank is said to be measured by its Lipschitz constant.

Read as: the larger lambda, the more it raises the rank of its input. Rank comes from the kinks, not
from the size. An MLP all of whose units are on is affine, x A + c, whatever its lambda, and adds at most
one, that of 1c'; one with small weights and the same kinks raises as much as one with large weights:
s (x W_1 + b_1) through ReLU and s W_2 is s^2 times what it was. An output bias would hide that, so the
image of the zero token is taken away.
"""

from __future__ import annotations

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

TOKENS, WIDTH, HIDDEN = 8, 8, 32
SMALL, LARGE, SHIFT = 0.1, 10.0, 1e4


@claim(
    "lipschitz-measures-rank-raising",
    group="collapse",
    notes=("deep-dive",),
    title="An MLP with a larger Lipschitz constant raises rank more",
    formula=r"\lambda_1 < \lambda_2 \Rightarrow \mathrm{rank} f_1(X) \le \mathrm{rank} f_2(X)",
    plain="λ₁ < λ₂ ⇒ rank f₁(X) ≤ rank f₂(X)",
    says="What an MLP can do against the loss of rank is measured by its Lipschitz constant: the larger "
    "it is, the stronger its ability to raise rank.",
    correction="The Lipschitz constant says how far differences can be stretched. Rank is raised by the "
    "kinks of the activation: counted from the image of the zero token, it does not change when weights "
    "and hidden biases grow by the same factor. An MLP whose units are all on is affine: it adds at most "
    "one, the bias, at any size.",
    why="Eight tokens on a line, a matrix of rank 1, went through two ReLU networks, and the image of the "
    "zero token was taken away. The one with λ = {small_lipschitz:.0f} has kinks among the tokens and gives "
    "rank {small_rank:.0f}. The other has λ = {large_lipschitz:.0f} and biases so large that all units are "
    "on: it gives rank {large_rank:.0f}. "
    "The first network with everything a hundred times as large has λ = {grown_lipschitz:.0f} and rank "
    "{grown_rank:.0f} again.",
    checks=(
        Check(
            "gained",
            "claim",
            "at least",
            0.0,
            label="rank with the larger λ minus rank with the smaller",
            because="A larger ability cannot give a smaller rank.",
        ),
        Check(
            "larger",
            "correction",
            "at least",
            10.0,
            label="λ of the second network over that of the first",
            because="The counterexample must have the larger constant, by far.",
            log=True,
        ),
        Check(
            "unchanged",
            "correction",
            "near",
            0.0,
            within=0.5,
            label="change of rank when all weights grow a hundredfold",
            because="ReLU is homogeneous: the output is multiplied, and ranks are whole numbers.",
        ),
        Check(
            "added",
            "correction",
            "at most",
            1.0,
            label="rank added with all units on and an output bias",
            because="X A + 1c' has at most the rank of X plus one.",
        ),
    ),
    seconds=0.01,
)
def measure(seed: int) -> Measured:
    """Two MLPs on tokens of rank one, and the first one made larger."""
    import numpy as np

    from leadline.theory.rank_collapse.lipschitz import composite_lipschitz

    rng = np.random.default_rng([seed, 25])
    x = np.outer(np.linspace(-1.0, 1.0, TOKENS), rng.normal(size=WIDTH))
    up, down = rng.normal(size=(WIDTH, HIDDEN)), rng.normal(size=(HIDDEN, WIDTH))
    shift = rng.normal(size=HIDDEN)

    def lipschitz(size: float) -> float:
        sums = [float(np.abs(size * w).sum(at).max()) for w in (up, down) for at in (0, 1)]
        return composite_lipschitz("relu", *sums)

    def output(size: float, bias: np.ndarray) -> np.ndarray:
        hidden = np.maximum(size * (x @ up) + bias, 0.0)
        # The image of the zero token is taken away, so that a linear network has rank one.
        return (hidden - np.maximum(bias, 0.0)) @ (size * down)

    ranks = [
        int(np.linalg.matrix_rank(output(size, bias), rtol=1e-9))
        for size, bias in (
            (SMALL, SMALL * shift),
            (LARGE, np.full(HIDDEN, SHIFT)),
            (LARGE, LARGE * shift),
        )
    ]
    affine = np.maximum(LARGE * (x @ up) + SHIFT, 0.0) @ (LARGE * down) + rng.normal(size=WIDTH)
    added = np.linalg.matrix_rank(affine, rtol=1e-9) - np.linalg.matrix_rank(x, rtol=1e-9)
    return Measured(
        {
            "small_lipschitz": lipschitz(SMALL),
            "large_lipschitz": lipschitz(LARGE),
            "grown_lipschitz": lipschitz(LARGE),
            "small_rank": float(ranks[0]),
            "large_rank": float(ranks[1]),
            "grown_rank": float(ranks[2]),
            "larger": lipschitz(LARGE) / lipschitz(SMALL),
            "gained": float(ranks[1] - ranks[0]),
            "unchanged": float(ranks[2] - ranks[0]),
            "added": float(added),
        }
    )
