"""MLPs, being nonlinear, can raise the rank of their input.

"Can" is read as: there are inputs whose rank they raise, and random MLPs do it to generic ones. The
reader carries it to where it would help: tokens that have become equal. There every token goes to the
same image, and the rank stays one.
"""

from __future__ import annotations

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

TOKENS, WIDTH = 8, 16


@claim(
    "mlp-raises-rank",
    group="collapse",
    notes=("deep-dive",),
    title="MLPs can raise the rank that attention lowers",
    formula=r"\mathrm{rank} f(X) > \mathrm{rank} X",
    plain="rank f(X) > rank X",
    says="As a nonlinear map, an MLP can raise the rank of its input, and so works against the loss of "
    "rank in attention.",
    correction="It raises the rank of tokens that differ. Equal tokens have equal images: where attention "
    "has made all tokens the same, no MLP can tell them apart again.",
    why="Tokens on one line through zero, of rank {before:.0f}, came out of a random MLP with rank "
    "{after:.0f}. Equal tokens, of rank 1 as well, came out with rank {equal:.0f} and a residual of "
    "{left}. Rank one on a line and rank one at a point are not the same, and collapse leads to a point.",
    checks=(
        Check(
            "after",
            "claim",
            "at least",
            2.0,
            label="rank of tokens on a line after the MLP",
            because="Raised means above 1, and ranks are whole numbers.",
        ),
        Check(
            "equal",
            "reach",
            "at least",
            2.0,
            label="rank of equal tokens after the MLP",
            because="Raised means above 1, and ranks are whole numbers.",
        ),
        Check(
            "left",
            "correction",
            "at most",
            1e-12,
            label="residual of equal tokens after the MLP, relative",
            because="Equal inputs have equal outputs, up to rounding in a sum.",
        ),
    ),
    seconds=0.01,
)
def measure(seed: int) -> Measured:
    """One random MLP of ours on two matrices of rank one."""
    import numpy as np
    import torch

    from leadline.claims.collapse._stacks import attention_network, drawn_tokens, residual

    model = attention_network(
        seed, depth=1, width=WIDTH, heads=1, attention="none", mlp="relu", connection="none"
    )
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    direction = drawn_tokens(seed, tokens=1, width=WIDTH)
    line = np.linspace(-1.0, 1.0, TOKENS)[:, None] * direction

    def image(x: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return model(torch.from_numpy(x).unsqueeze(0))[0].numpy()

    curved, equal = image(line), image(np.repeat(direction, TOKENS, 0))
    return Measured(
        {
            "before": float(np.linalg.matrix_rank(line, rtol=1e-9)),
            "after": float(np.linalg.matrix_rank(curved, rtol=1e-9)),
            "equal": float(np.linalg.matrix_rank(equal, rtol=1e-9)),
            "left": float(np.linalg.norm(residual(equal)) / np.linalg.norm(equal)),
        }
    )
