"""The collapse, read for the model that the note takes apart: GPT-2, whose attention is causal.

The note begins with GPT-2's masked attention and says of its attention that it collapses double
exponentially without skip and MLP. Under the causal mask the first token sees itself alone. Measured
from it, x_i - x_1 becomes sum_{2<=j<=i} P_ij (x_j - x_1) W: a triangular matrix, whose powers fall
like its largest diagonal entry. Patterns settle: equal tokens make them even, and then that entry is
P_22 = 1/2. What is left in depth points where x_2 - x_1 does, which becomes P_22 (x_2 - x_1) W exactly,
so the rate is max_{i>=2} P_ii times the gain of W along it: 1 for norm-keeping values, at most |W|.
"""

from __future__ import annotations

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture

DEPTH = 30


@claim(
    "causal-attention-collapses-doubly",
    group="collapse",
    notes=("deep-dive",),
    title="GPT-2's attention, without skip and MLP, collapses double exponentially",
    formula=r"\log \| \mathrm{res}(X^{l+1}) \| \approx 3 \log \| \mathrm{res}(X^l) \|, \quad P_{ij} = 0 \; (j > i)",
    plain="log ‖res(X^{l+1})‖ ≈ 3 log ‖res(X^l)‖ with P_ij = 0 for j > i",
    says="The note takes GPT-2 as its example and says that its attention layers alone lose rank "
    "double exponentially with depth.",
    correction="Under a causal mask the collapse is only exponential: where values keep norms and patterns "
    "settle, the factor per layer tends to $\\max_{i \\ge 2} P_{ii}$, one half for even patterns. Other values "
    "multiply it by their gain along the differences, at most $\\|W\\|$.",
    why="With a causal mask the logarithm of the residual grew only {ratio:.3f} times in the last of "
    "{depth:.0f} layers; a double exponential needs 3. Each layer multiplies the residual itself by "
    "{factor:.5f}: the second token gives half of its weight to the first, which sees itself alone. "
    "After {depth:.0f} layers the residual is 10 to the power {last:.1f}; without the mask it is 10 to the "
    "power {unmasked:.2e}.",
    checks=(
        Check(
            "ratio",
            "claim",
            "near",
            3.0,
            within=0.5,
            label="ratio of log residuals in the last layer",
            because="Double exponential means that the logarithm is multiplied, by 3 if cubic.",
        ),
        Check(
            "factor",
            "correction",
            "near",
            0.5,
            within=1e-3,
            label="factor of the residual in the last layer",
            because="The largest diagonal entry after the first is 1/2 for even patterns; queries are "
            "a hundredth of usual ones, which moves it by less than 1e-3.",
        ),
        Check(
            "law",
            "correction",
            "at most",
            1e-3,
            label="log₁₀ of the causal law against the residual, last layer",
            because="The law is asymptotic; what is left of slower modes falls like (2/3)^30.",
        ),
        Check(
            "stretched",
            "correction",
            "near",
            1.0,
            within=1e-3,
            label="factor over half the gain along the differences, drawn values",
            because="Tends to 1: patterns become even, and slower modes fall like (2/3)^30.",
        ),
        Check(
            "ceiling",
            "correction",
            "at most",
            1.0 + 1e-3,
            label="factor over max P_ii ‖W‖, drawn values",
            because="No direction gains more than the norm; the factor is within 1e-3 of its limit.",
        ),
    ),
    seconds=1.8,
    source="the eigenvalues of a triangular matrix are its diagonal",
)
def measure(seed: int) -> Measured:
    """Follow norm-keeping layers with and without the mask, and drawn ones with it."""
    import numpy as np

    from leadline.claims.collapse._stacks import drawn_layers, drawn_tokens, norm_keeping
    from leadline.instruments.collapse.measure import collapse_weights
    from leadline.theory.rank_collapse import COLLAPSE_BOUNDS

    x = drawn_tokens(seed)
    drawn = drawn_layers(seed, depth=DEPTH)
    layers = norm_keeping(drawn, sharpness=0.01)
    masked = collapse_weights(x, layers, causal=True, facts=True)
    unmasked = collapse_weights(x, layers)
    free = collapse_weights(x, drawn, causal=True, facts=True)
    assert masked.facts is not None and free.facts is not None
    bound = COLLAPSE_BOUNDS.get("collapse-causal-rate")()
    law, ceiling = bound.log10_values(masked.facts), bound.log10_values(free.facts)
    assert law is not None and ceiling is not None
    apart, gain = x[1] - x[0], 1.0
    for layer in drawn:
        apart = apart @ layer["W_V"] @ layer["W_O"] / np.linalg.norm(apart)
        gain = float(np.linalg.norm(apart))
    sites = tuple(float(site) for site in range(DEPTH + 1))
    half = tuple(float(masked.log10_residual[0]) - 0.30103 * site for site in sites)
    return Measured(
        {
            "depth": float(DEPTH),
            "ratio": float(masked.log_ratio[-1]),
            "factor": 10.0 ** float(masked.rate[-1]),
            "law": abs(law[-1] - float(masked.log10_residual[-1])),
            "stretched": 10.0 ** float(free.rate[-1]) / (0.5 * gain),
            "ceiling": 10.0 ** (float(free.log10_residual[-1]) - ceiling[-1]),
            "last": float(masked.log10_residual[-1]),
            "unmasked": float(unmasked.log10_residual[-1]),
        },
        Picture(
            "layer",
            "log₁₀ of the residual",
            {
                "causal": (sites, tuple(map(float, masked.log10_residual))),
                "no mask": (sites[:4], tuple(map(float, unmasked.log10_residual[:4]))),
                "one half per layer": (sites, half),
            },
            faint=("one half per layer",),
        ),
    )
