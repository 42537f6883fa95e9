"""Where epsilon stands in LayerNorm: beside the standard deviation, or beside the variance.

The note divides by sigma + eps, with one eps for every entry of the matrix. torch, GPT-2 and BERT
divide by sqrt(sigma² + eps) with one number. "claim" is read at tokens of standard deviation 1,
where the formula is meant as "a little against division by zero"; "reach" at small tokens, where
eps is what counts: standard deviations of 1e-3, and GPT-2's embedding of 0.02.
"""

from __future__ import annotations

import numpy as np

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture

WIDTH, TOKENS, EPS = 64, 8, 1e-5
STDS = tuple(float(10.0**power) for power in np.linspace(-4.0, 1.0, 26))


@claim(
    "layernorm-epsilon",
    group="norms",
    notes=("deep-dive",),
    title="LayerNorm divides by the standard deviation plus ε",
    formula=r"\hat{x} = \frac{x - \mu \mathbf{1}}{\sigma + \varepsilon}",
    plain="x̂ = (x − μ1)/(σ + ε)",
    says="LayerNorm divides the centred token by its standard deviation plus a small number, "
    "written as a matrix of the size of the input.",
    correction="$\\hat{x} = \\frac{x - \\mu \\mathbf{1}}{\\sqrt{\\sigma^2 + \\varepsilon}}$ with "
    "one number $\\varepsilon$. Both agree where $\\sigma$ is large against "
    "$\\sqrt{\\varepsilon}$, which is 0.003 for the usual $\\varepsilon = 10^{-5}$.",
    why="For tokens of standard deviation 1 the two formulas differ by {unit:.1e} of the result: "
    "nobody sees that. Below a standard deviation of about 0.003 they part: at 0.001 the note's "
    "formula still gives almost unit variance, the one that is used gives outputs smaller by a "
    "factor; they differ by {small:.2f} of the true result. At the size of GPT-2's embedding, "
    "0.02, it is {embedding:.3f}.",
    checks=(
        Check(
            "unit", "claim", "at most", 1e-4,
            label="relative difference at tokens of std 1",
            because="Both formulas are first order in ε = 1e-5; ten times that is nobody's "
            "concern.",
            log=True,
        ),
        Check(
            "small", "reach", "at most", 0.01,
            label="relative difference at tokens of std 0.001",
            because="One in a hundred is more than bfloat16 rounds.",
            log=True,
        ),
        Check(
            "formula_error", "correction", "at most", 1e-12,
            label="division by √(σ² + ε) against torch",
            because="The same formula computed twice in float64.",
            log=True,
        ),
    ),
    source="Ba, Kiros, Hinton 2016, arXiv 1607.06450",
    seconds=0.01,
)  # fmt: skip
def measure(seed: int) -> Measured:
    """Both formulas against the norm of the parts catalog, over the size of the token."""
    from leadline.claims.norms._layernorm import applied, tokens
    from leadline.theory.norm_jacobian import normed

    sizes: dict[str, list[float]] = {"used": [], "note": []}
    differences: dict[float, float] = {}
    errors = [0.0]
    for std in (*STDS, 1e-3, 0.02, 1.0):
        x = tokens(seed, 36, count=TOKENS, width=WIDTH, std=std)
        used = applied(x, eps=EPS)
        centred = x - x.mean(axis=1, keepdims=True)
        note = centred / (np.sqrt((centred**2).mean(axis=1, keepdims=True)) + EPS)
        differences[std] = float(np.abs(note - used).max() / np.abs(used).max())
        written = np.stack([normed(one, norm="layernorm", eps=EPS)[0] for one in x])
        errors.append(float(np.abs(written - used).max() / np.abs(used).max()))
        sizes["used"].append(float(np.sqrt((used**2).mean())))
        sizes["note"].append(float(np.sqrt((note**2).mean())))
    count = len(STDS)
    return Measured(
        {
            "unit": differences[1.0],
            "small": differences[1e-3],
            "embedding": differences[0.02],
            "formula_error": max(errors),
        },
        Picture(
            "standard deviation of the token",
            "standard deviation behind the norm",
            {
                "√(σ² + ε), used": (STDS, tuple(sizes["used"][:count])),
                "σ + ε, the note": (STDS, tuple(sizes["note"][:count])),
            },
            x_log=True,
        ),
    )
