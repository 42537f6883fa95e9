"""|res X^L| >= |res X| where the outputs of the layers are orthogonal to their inputs.

Orthogonal is read as <X, U> = 0 in the Frobenius product, and as token by token; both are refuted. <X, U> =
<res X, res U> + n <x, u> with the mean tokens, so an update may take the residual away and make up for
it in the mean. Attention can do it: tokens 2 and 0 of width one that look at each other alone have
U = (0, 2)', orthogonal token by token, and X + U = (2, 2)'. The true condition is <res X, res U> >= 0 at
every write; it holds if every token of U is orthogonal to every token of X.
"""

from __future__ import annotations

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

SHARPNESS = 100.0


@claim(
    "orthogonal-updates-keep-the-residual",
    group="collapse",
    notes=("deep-dive",),
    title="With a skip, outputs orthogonal to their inputs cannot lower the residual",
    formula=r"\langle X^l, \mathrm{SA}(X^l) \rangle = 0 \Rightarrow \| \mathrm{res}(X^L) \| \ge \| \mathrm{res}(X) \|",
    plain="⟨X, SA(X)⟩ = 0 ⇒ ‖res(X^L)‖ ≥ ‖res(X)‖",
    says="Since the path of length 0 keeps the first residual, any weights that make the output of every "
    "attention layer orthogonal to its input give a residual that is not smaller than the first.",
    correction="What may not be negative is the product of the residuals, $\\langle \\mathrm{res}(X), "
    "\\mathrm{res}(U) \\rangle \\ge 0$ at every write. It is zero where every token of the output is orthogonal "
    "to every token of the input.",
    why="Two tokens, 2 and 0, that look only at each other write 0 and 2: each orthogonal to its own token. "
    "After the write both are 2, and {swapped} of the residual is left. Among drawn networks whose updates "
    "are orthogonal to the stream, one lost a factor of {drawn:.2f}. Where the product of the residuals is "
    "not negative none lost anything: the worst kept {aligned:.6f}.",
    checks=(
        Check(
            "swapped",
            "claim",
            "at least",
            1.0 - 1e-9,
            label="residual of two swapped tokens after over before",
            because="A lower bound: the ratio is at least 1, up to rounding.",
        ),
        Check(
            "drawn",
            "claim",
            "at most",
            1.0 + 1e-9,
            label="first residual over a later one, worst drawn network",
            because="A lower bound: no later residual is below the first but by rounding.",
        ),
        Check(
            "overlap",
            "correction",
            "at most",
            1e-6,
            label="cosine of update and stream where that was found",
            because="The counterexample must be orthogonal, to rounding.",
        ),
        Check(
            "aligned",
            "correction",
            "at least",
            1.0 - 1e-9,
            label="later over first residual where residuals do not oppose, worst",
            because="A theorem: squares add up; 1e-9 is rounding.",
        ),
    ),
    seconds=0.9,
)
def measure(seed: int) -> Measured:
    """Two swapping tokens, and searches with orthogonal and with aligned updates."""
    import numpy as np

    from leadline.claims.collapse._searched import searched
    from leadline.claims.collapse._stacks import residual

    x = np.array([[2.0], [0.0]])
    query = SHARPNESS * (1.0 - x)  # W_Q = -100, b_Q = 100
    logits = query @ x.T
    weights = np.exp(logits - logits.max(1, keepdims=True))
    update = weights / weights.sum(1, keepdims=True) @ x
    swapped = np.linalg.norm(residual(x + update)) / np.linalg.norm(residual(x))
    written, true = "skip-as-written", "skip-keeps-residual"
    drawn = searched("skip-orthogonal", (written,), seed=seed, climbed=0)[written].outside
    # Aligned by construction, and among all networks with a skip those that the theorem picks.
    aligned = searched("skip-aligned", (true,), seed=seed)[true]
    aligned = aligned.with_(searched("skip", (true,), seed=seed, climbed=0)[true])
    return Measured(
        {
            "swapped": float(swapped),
            "drawn": drawn.ratio,
            "overlap": max(layer.overlap or 0.0 for layer in drawn.facts.layers),
            "aligned": 1.0 / aligned.within.ratio,
        }
    )
