"""sqrt(d_qk) as the scaling that curbs attention errors: the larger, the better.

Read at a fixed W_QK, as the formula 4 gamma beta / sqrt(d) has it: a head with the same W_QK and four
times the width has half of the residual, in the cubic regime. A reader takes it for wider heads:
with entries of W_Q and W_K of a given size, W_QK = W_Q W_K' is a sum of d terms and grows like
sqrt(d), so that the scaling only makes up for it.
"""

from __future__ import annotations

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

NARROW, WIDE, WIDTH = 4, 64, 32
SMALL = 1e-2
DRAWS = 40


@claim(
    "wider-heads-curb-attention-errors",
    group="collapse",
    notes=("deep-dive",),
    title="A larger head width curbs the errors of attention",
    formula=r"\| \mathrm{res}(X') \| \propto \frac{1}{\sqrt{d_{qk}}}",
    plain="‖res(X′)‖ ∝ 1/√d_qk",
    says="In the condition $4 \\gamma \\beta < \\sqrt{d_{qk}}$ the root of the head width is the scaling of the "
    "softmax: the larger the denominator, the better it holds attention errors down.",
    correction="It holds for one and the same $W_{QK}$. If the entries of the query and key matrices keep "
    "their size, $W_{QK}$ grows like $\\sqrt{d_{qk}}$ and the scaling only makes up for that.",
    why="One head was widened from {narrow:.0f} to {wide:.0f} by columns of zeros, which leaves $W_{QK}$ as "
    "it is: the residual after a layer fell to {padded:.4f}, the ratio of the roots. With all columns drawn "
    "alike $W_{QK}$ is {product:.2f} times as large, and the residual stayed at {drawn:.2f} of what it was, on the mean over {draws:.0f} networks. The scaling is "
    "there to keep logits level, not to make them small.",
    checks=(
        Check(
            "padded",
            "claim",
            "near",
            0.25,
            within=1e-3,
            label="residual of the wide over the narrow head, same W_QK",
            because="The residual is linear in the logits to leading order, and 4/64 has the root "
            "1/4; tokens of size 0.01 leave errors of 1e-4.",
        ),
        Check(
            "drawn",
            "reach",
            "at most",
            0.5,
            label="the same, all columns drawn alike",
            because="A sixteenfold head width would give 1/4; half of that effect would still be 1/2.",
            over="mean",
        ),
        Check(
            "product",
            "correction",
            "near",
            4.0,
            within=0.4,
            label="size of W_QK, wide over narrow, columns drawn alike",
            because="A sum of sixteen times as many independent terms is four times as large; the "
            "mean over the draws scatters by a few per cent.",
            over="mean",
        ),
    ),
    seconds=0.4,
)
def measure(seed: int) -> Measured:
    """Layers of one head on small tokens, widened by zeros or by more draws."""
    import numpy as np

    from leadline.instruments.collapse.measure import collapse_weights

    rng = np.random.default_rng([seed, 19])

    def after(x: np.ndarray, query: np.ndarray, key: np.ndarray) -> float:
        one = np.eye(WIDTH)
        layer = {"W_Q": query, "W_K": key, "W_V": one, "W_O": one}
        return float(collapse_weights(x, [layer]).log10_residual[-1])

    padded: list[float] = []
    drawn: list[float] = []
    product: list[float] = []
    more = np.zeros((WIDTH, WIDE - NARROW))
    for _ in range(DRAWS):
        x = SMALL * rng.normal(size=(8, WIDTH))
        query, key = rng.normal(size=(2, WIDTH, NARROW)) / np.sqrt(WIDTH)
        narrow = after(x, query, key)
        padded.append(after(x, np.hstack([query, more]), np.hstack([key, more])) - narrow)
        queries, keys = rng.normal(size=(2, WIDTH, WIDE)) / np.sqrt(WIDTH)
        drawn.append(after(x, queries, keys) - narrow)
        product.append(float(np.linalg.norm(queries @ keys.T) / np.linalg.norm(query @ key.T)))
    return Measured(
        {
            "narrow": float(NARROW),
            "wide": float(WIDE),
            "draws": float(DRAWS),
            "padded": 10.0 ** float(np.mean(padded)),
            "drawn": 10.0 ** float(np.mean(drawn)),
            "product": float(np.mean(product)),
        }
    )
