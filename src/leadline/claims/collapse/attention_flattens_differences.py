"""Attention is said to wear differences between tokens away, layer after layer.

Read as: the pattern P of a layer brings tokens nearer to each other. Every row of P is a weighted
mean, so the range of every feature cannot grow: the part "claim", with the note's own kind of
network, where the residual falls. In the residual that the note measures, |res X|_F, a pattern can
also drive tokens apart, since |P|_2 may exceed 1: if half of the tokens copy an outlier, the outlier
becomes a group. The network: feature 1 marks the outlier, feature 2, tiny, decides who copies it.
"""

from __future__ import annotations

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

TOKENS = 10
DRAWS = 200
MARK, SHARPNESS = 1e-3, 1e5


@claim(
    "attention-flattens-differences",
    group="collapse",
    notes=("deep-dive",),
    title="Attention wears differences between tokens away",
    formula=r"\| \mathrm{res}(P X) \| \le \| \mathrm{res}(X) \|",
    plain="‖res(PX)‖ ≤ ‖res(X)‖",
    says="In the tug of war with the MLPs, attention is the side that keeps smoothing differences "
    "between tokens.",
    correction="No pattern can widen the range of a feature. The residual in the Frobenius norm can "
    "grow, by at most the largest singular value of the pattern, $\\|P\\|_2 \\le \\sqrt{n}$.",
    why="The range of a feature never grew (at most {range:.3f} times), and random attention brought "
    "the residual down to {drawn:.2f} of it. But where half of the tokens copy one outlier, the residual "
    "grows {copied:.2f} times in a single layer: one token apart from nine is nearer to equal than five "
    "apart from five. The singular value of that pattern allows {spectral:.2f} times.",
    checks=(
        Check(
            "range",
            "claim",
            "at most",
            1.0 + 1e-12,
            label="range of a feature after over before, the worst draw",
            because="Weighted means lie between the smallest and the largest value.",
        ),
        Check(
            "drawn",
            "claim",
            "at most",
            0.9,
            label="residual after over before, random attention",
            because="Worn away is read as at least a tenth in one layer.",
        ),
        Check(
            "copied",
            "reach",
            "at most",
            1.0,
            label="the same, half of the tokens copy an outlier",
            because="Smoothing cannot raise the residual.",
        ),
        Check(
            "spectral",
            "correction",
            "near",
            2.23607,
            within=1e-4,
            label="largest singular value of the copying pattern",
            because="Five of ten rows are the same unit vector: the root of 5.",
        ),
        Check(
            "allowed",
            "correction",
            "at most",
            1.0 + 1e-9,
            label="growth of the residual over the norm of the pattern",
            because="|res(PX)| = |res(P res X)| <= |P| |res X|; 1e-9 is rounding.",
        ),
    ),
    seconds=0.2,
)
def measure(seed: int) -> Measured:
    """Ranges under drawn patterns, a layer of random attention, and the copying layer."""
    import numpy as np
    import torch

    from leadline.claims.collapse._stacks import drawn_layers, drawn_tokens
    from leadline.instruments.collapse.measure import collapse_weights
    from leadline.numerics.spectra.spectrum import spectral_norm

    rng = np.random.default_rng([seed, 7])
    widest = 0.0
    for _ in range(DRAWS):
        p = rng.dirichlet(np.full(TOKENS, 0.2), size=TOKENS)
        x = rng.normal(size=TOKENS)
        widest = max(widest, float(np.ptp(p @ x) / np.ptp(x)))
    x = drawn_tokens(seed, tokens=TOKENS, width=64)
    plain = drawn_layers(seed, depth=1, width=64)[0] | {"W_V": np.eye(64), "W_O": np.eye(64)}
    drawn = collapse_weights(x, [plain])
    marks = np.where(np.arange(TOKENS) % 2, MARK, -MARK)
    tokens = np.stack([np.eye(TOKENS)[-1], marks], 1)
    layer = {
        "W_Q": np.array([[0.0], [SHARPNESS]]),
        "W_K": np.array([[1.0], [0.0]]),
        "W_V": np.eye(2),
        "W_O": np.eye(2),
    }
    copied = 10.0 ** float(collapse_weights(tokens, [layer]).rate[0])
    logits = (tokens @ layer["W_Q"]) @ (tokens @ layer["W_K"]).T
    weights = np.exp(logits - logits.max(1, keepdims=True))
    pattern = weights / weights.sum(1, keepdims=True)
    spectral = float(spectral_norm(torch.from_numpy(pattern)).value)
    return Measured(
        {
            "range": widest,
            "drawn": 10.0 ** float(drawn.rate[0]),
            "copied": copied,
            "spectral": spectral,
            "allowed": copied / spectral,
        }
    )
