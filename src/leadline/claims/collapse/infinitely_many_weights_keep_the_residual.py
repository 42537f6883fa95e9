"""For every depth and width infinitely many weights with skips keep |res X^L| >= |res X|.

Shown by a continuum: W_V = 0 with any queries and keys. And by one that does something: even patterns
(W_QK = 0) with any values. There the update is the same for all tokens and its residual zero. Read for
"however deep": 100 layers. The bound of `skip-keeps-residual` says so from the measured angles.
"""

from __future__ import annotations

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

DEPTH, WIDTH, TOKENS, DRAWS = 100, 8, 6, 2


@claim(
    "infinitely-many-weights-keep-the-residual",
    group="collapse",
    notes=("deep-dive",),
    title="However deep, infinitely many weights with skips keep the residual",
    formula=r"\forall L, H: \; \| \mathrm{res}(X^L) \| \ge \| \mathrm{res}(X) \|",
    plain="for all L, H: ‖res(X^L)‖ ≥ ‖res(X)‖ for infinitely many weights",
    says="For any depth and any number of heads there are infinitely many settings of the weights with "
    "skips for which the residual of the output is not below that of the input, even as depth goes to "
    "infinity.",
    correction="",
    why="Two families with free parameters were followed through {depth:.0f} layers: zero values with any "
    "queries and keys, and even patterns with any values, whose updates are not zero. Over all draws the "
    "residual was never below {least:.12f} of the first.",
    checks=(
        Check(
            "least",
            "claim",
            "at least",
            1.0 - 1e-9,
            label="last over first residual, the worst draw",
            because="Equality in exact arithmetic; 1e-9 is rounding of a hundred layers.",
        ),
        Check(
            "moved",
            "claim",
            "at least",
            0.01,
            label="first update of even patterns over the mean token, the least draw",
            because="The second family does something: values of a quarter of the usual size write "
            "about a fifth of the mean, and a hundredth is far above rounding.",
        ),
    ),
    seconds=1.1,
)
def measure(seed: int) -> Measured:
    """Follow draws of both families."""
    import torch

    from leadline.claims.collapse._stacks import attention_network, stream
    from leadline.instruments.collapse.measure import collapse

    x = 1.0 + stream(seed, tokens=TOKENS, width=WIDTH)[0]
    least, moved = float("inf"), float("inf")
    for draw in range(DRAWS):
        for silent in ((2,), (0, 1)):
            model = attention_network(
                10 * seed + draw, depth=DEPTH, width=WIDTH, heads=2, connection="identity"
            )
            with torch.no_grad():
                for block in model.blocks:
                    branch = block.attention.branch
                    parts = branch.qkv.weight.split(branch.widths)
                    for part in silent:
                        parts[part].zero_()
                    # Values of size 1/4, so that a hundred layers stay within the mean's digits.
                    parts[2].mul_(0.25)
                first = model.blocks[0].attention.branch
                if 0 in silent:
                    values = x @ first.qkv.weight.split(first.widths)[2].mT
                    written = values.mean(0) @ first.output.weight.mT
                    moved = min(moved, float(written.norm() / x.mean(0).norm()))
            found = collapse(model, x)
            least = min(least, 10.0 ** float(found.log10_residual[-1] - found.log10_residual[0]))
    return Measured({"depth": float(DEPTH), "least": least, "moved": moved})
