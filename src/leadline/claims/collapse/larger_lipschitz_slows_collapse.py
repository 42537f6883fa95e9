"""The Lipschitz constant of the MLPs controls the rate: the larger, the slower the collapse.

Read in the theorem's setting (attention, MLP, no skip, no norm, no mask) with one and the same MLP
made larger: the residual after the last layer is then larger: the part "claim". lambda enters an upper
bound only, so the sentence does not carry over to any larger lambda: (a) with LayerNorm, as in the
note's own experiment, the size of the MLP's weights cancels; (b) an MLP may stretch a direction in which
the tokens do not differ. Whatever lambda is, the collapse stays cubic.
"""

from __future__ import annotations

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

DEPTH, WIDTH, TOKENS, FACTOR = 6, 16, 8, 4.0
STRETCH = 100.0


@claim(
    "larger-lipschitz-slows-collapse",
    group="collapse",
    notes=("deep-dive",),
    title="The larger the Lipschitz constant of the MLPs, the slower the collapse",
    formula=r"\lambda_1 < \lambda_2 \Rightarrow \| \mathrm{res}(X^L_1) \| < \| \mathrm{res}(X^L_2) \|",
    plain="λ₁ < λ₂ ⇒ ‖res(X₁^L)‖ < ‖res(X₂^L)‖",
    says="The Lipschitz constant of the MLPs directly controls the rate of convergence: the stronger "
    "the MLP, the more slowly the residual falls.",
    correction="The constant λ enters an upper bound, not the rate. Larger weights of one MLP without a "
    "norm leave a larger residual, but the logarithm still triples per layer; with a norm the size of the "
    "weights cancels, and a larger λ in directions that tokens share changes nothing.",
    why="With MLP weights {factor:.0f} times as large and no norm, the logarithm of the residual after "
    "{depth:.0f} layers is higher by {higher:.0f}: slower. But it still grows {ratio:.4f} times in the last "
    "layer. With LayerNorm in the blocks the same change leaves the logarithm of the relative residual at "
    "{normed:.4f} of what it was, and an MLP whose λ is {stretched:.0f} times as large in a direction that "
    "all tokens share changes it by {shared}.",
    checks=(
        Check(
            "higher",
            "claim",
            "at least",
            1.0,
            label="gain in log₁₀ residual with larger MLP weights, no norm",
            because="Slower is read as at least a tenfold larger residual.",
        ),
        Check(
            "normed",
            "reach",
            "at most",
            0.9,
            label="log₁₀ relative residual, larger over usual, LayerNorm",
            because="Slower is read as a logarithm that is at least a tenth smaller in size.",
        ),
        Check(
            "shared",
            "reach",
            "at least",
            1.0,
            label="gain in log₁₀ residual, λ larger in a shared direction",
            because="Slower is read as at least a tenfold larger residual.",
        ),
        Check(
            "ratio",
            "correction",
            "near",
            3.0,
            within=0.05,
            label="ratio of log residuals in the last layer, larger weights",
            because="A cubic collapse gives 3 plus log c over log r, which is below 0.05 here.",
        ),
        Check(
            "bounded",
            "correction",
            "at most",
            1.0 + 1e-9,
            label="residual over the bound with λ, the worst network",
            because="A theorem for one head: no ratio exceeds 1 but by rounding.",
        ),
    ),
    seconds=0.5,
)
def measure(seed: int) -> Measured:
    """Follow blocks with MLPs of two sizes, without and with norms, and a stretched direction."""
    from leadline.claims.collapse._mlps import note_stack, stretched_stack
    from leadline.claims.collapse._searched import searched

    usual, larger = (
        note_stack(seed, depth=DEPTH, width=WIDTH, tokens=TOKENS, norm="none", factor=factor)
        for factor in (1.0, FACTOR)
    )
    usual_normed, larger_normed = (
        note_stack(seed, depth=DEPTH, width=WIDTH, tokens=TOKENS, norm="layernorm", factor=factor)
        for factor in (1.0, FACTOR)
    )
    plain, stretched = (stretched_stack(seed, depth=4, gain=gain) for gain in (1.0, STRETCH))
    name = "collapse-published"
    return Measured(
        {
            "depth": float(DEPTH),
            "factor": FACTOR,
            "stretched": STRETCH,
            "higher": float(larger.log10_residual[-1] - usual.log10_residual[-1]),
            "ratio": float(larger.log_ratio[-1]),
            "normed": float(larger_normed.log10_relative[-1] / usual_normed.log10_relative[-1]),
            "shared": float(stretched.log10_residual[-1] - plain.log10_residual[-1]),
            "bounded": searched("one-head-mlp", (name,), seed=seed, climbed=0)[name].within.ratio,
        }
    )
