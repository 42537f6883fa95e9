"""A step of the published proof, which is not in the note: that quotes the theorem and leaves its proof out.

From P <= (I + 2D) 1p' entry by entry, D the ranges of the rows of E, the proof concludes
P R <= (I + 2D) 1p'R. R has entries of both signs, so the product may turn the inequality round: where
p'R = 0 the right side is zero and the left is not. The step is repaired by |P R - 1p'R| <= 2D 1p'|R|.
Its lemma asks for ranges of at most 1.256; |softmax(a + e) - softmax(a)|_1 <= 2 tanh(osc(e)/4) asks
for nothing.

Source: Dong, Cordonnier, Loukas 2021, arXiv 2103.03404, appendix A.
"""

from __future__ import annotations

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

TOKENS, DRAWS = 4, 300
RANGE = 1.256


@claim(
    "published-proof-step",
    group="collapse",
    notes=(),
    title="An inequality between patterns may be multiplied by the residual",
    formula=r"P \le (I + 2D) \mathbf{1} p^T \Rightarrow | P R - \mathbf{1} p^T R | \le 2 D \, \mathbf{1} | p^T R |",
    plain="P ≤ (I + 2D) 1pᵀ ⇒ |PR − 1pᵀR| ≤ 2D 1|pᵀR|",
    says="This one is not from a note: the theorem is quoted there with its proof left out. The published "
    "proof multiplies an inequality between the entries of two patterns by the residual of the tokens.",
    correction="The residual has both signs, so its sizes must stand on the right: $|P R - \\mathbf{1} p^T "
    "R| \\le 2 D \\mathbf{1} p^T |R|$. Without any condition, a row of $P$ and $p$ differ by at most $2 "
    "\\tanh(o_i/4)$ in the 1-norm, $o_i$ the range of that row of the logits.",
    why="Four tokens with residuals of both signs were averaged by two nearby patterns. The difference "
    "exceeded the right side of the step by {excess:.3f} of its own size, since the right side can be zero "
    "while the left is not. With absolute values inside, the worst draw reached {repaired:.3f} of the "
    "right side, and the bound by the hyperbolic tangent {tanh:.4f} of its own. So the theorem stands, on "
    "another proof.",
    checks=(
        Check(
            "excess",
            "claim",
            "at most",
            1e-9,
            label="how far the step is broken, relative",
            because="An inequality is broken by nothing but rounding.",
        ),
        Check(
            "repaired",
            "correction",
            "at most",
            1.0 + 1e-9,
            label="left over right side with |R|, the worst draw",
            because="The lemma holds for ranges of at most 1.256, and none is larger here.",
        ),
        Check(
            "tanh",
            "correction",
            "at most",
            1.0 + 1e-9,
            label="difference of patterns over 2 tanh(range/4)",
            because="A theorem for all ranges; those drawn go up to about 30.",
        ),
    ),
    seconds=0.01,
    source="Dong, Cordonnier, Loukas 2021, arXiv 2103.03404",
)
def measure(seed: int) -> Measured:
    """Draw residuals and logits, small ones for the step and large ones for the bound."""
    import torch

    from leadline.instruments.attacks.steps import pattern_shift

    generator = torch.Generator().manual_seed(1000 * seed + 63)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    even, scores = normal(DRAWS, 1, TOKENS), normal(DRAWS, TOKENS, TOKENS)
    reach = scores.amax(-1, keepdim=True) - scores.amin(-1, keepdim=True)
    scores = (
        scores
        / reach
        * RANGE
        * torch.rand(DRAWS, TOKENS, 1, generator=generator, dtype=torch.float64)
    )
    reach = scores.amax(-1, keepdim=True) - scores.amin(-1, keepdim=True)
    rest = normal(DRAWS, TOKENS, 1)
    p = even.softmax(-1)
    moved = (pattern_shift(p, even, scores) @ rest).abs()
    broken = (moved - 2.0 * reach * (p @ rest).abs()) / moved
    repaired = moved / (2.0 * reach * (p @ rest.abs()))
    large = (
        10.0
        * normal(DRAWS, TOKENS, TOKENS)
        * torch.rand(DRAWS, 1, 1, generator=generator, dtype=torch.float64)
    )
    wide = large.amax(-1) - large.amin(-1)
    apart = pattern_shift(p, even, large).abs().sum(-1)
    return Measured(
        {
            "excess": float(broken.max()),
            "repaired": float(repaired.max()),
            "tanh": float((apart / (2.0 * (wide / 4.0).tanh())).max()),
        }
    )
