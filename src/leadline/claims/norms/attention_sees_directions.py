"""Behind LayerNorm attention sees directions only.

Read as: the length of a token makes no difference to the attention branch behind a norm. "claim":
tokens of order one, each lengthened or shortened by its own factor between 1/2 and 100. "reach":
tokens so small that eps counts. The direction that is seen is that of the centred token: adding
c 1 changes the direction of x and nothing of the output. The branch is that of a pre-norm model.
"""

from __future__ import annotations

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

WIDTH, LENGTH = 64, 24


@claim(
    "attention-sees-directions",
    group="norms",
    notes=("deep-dive",),
    title="Behind LayerNorm attention sees only the direction of a token",
    formula=r"A(LN(c \, x)) = A(LN(x)), \quad c > 0",
    plain="A(LN(c x)) = A(LN(x)) for c > 0",
    says="LayerNorm presses all tokens onto one shell, so the attention that follows cares only "
    "about their directions.",
    correction="Attention behind LayerNorm sees the direction of the centred token "
    "$x - \\mu \\mathbf{1}$, as long as the token is large against $\\sqrt{\\varepsilon}$. Below "
    "that its length comes through.",
    why="The tokens of a sequence were lengthened, each by a factor of its own between 0.5 and "
    "100. What attention returned changed by {scaled:.1e}; without the norm it changes by "
    "{bare:.1f}. For tokens of standard deviation 0.001 doubling them changes the result by "
    "{small:.2f}, because $\\varepsilon$ is then larger than the variance. Adding the same number "
    "to all features turns the token, and attention notices nothing ({shifted:.1e}).",
    checks=(
        Check(
            "scaled", "claim", "at most", 1e-3,
            label="change of attention's output when tokens change their length",
            because="ε/σ² is at most 4e-5 here; scores multiply that by their size, about 10.",
            log=True,
        ),
        Check(
            "small", "reach", "at most", 0.01,
            label="change when tokens of std 0.001 are doubled",
            because="One in a hundred is more than bfloat16 rounds.",
        ),
        Check(
            "shifted", "correction", "at most", 1e-10,
            label="change when a number is added to all features of a token",
            because="The mean is removed exactly; the rest is rounding in float64.",
            log=True,
        ),
        Check(
            "exact", "correction", "at most", 1e-10,
            label="change without ε, tokens of std 0.001 doubled",
            because="Without ε the length cancels; the rest is rounding in float64.",
            log=True,
        ),
    ),
    source="",
    seconds=0.02,
)  # fmt: skip
def measure(seed: int) -> Measured:
    """One attention branch behind its norm, on tokens of changed length."""
    import torch

    from leadline.parts import Transformer
    from leadline.parts.branches import Run

    rng = torch.Generator().manual_seed(seed)

    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=rng, dtype=torch.float64)

    def branch(norm: str) -> torch.nn.Module:
        model = Transformer(
            depth=1, width=WIDTH, heads=4, norm=norm, init="xavier", context=LENGTH, seed=seed
        )
        return next(iter(model.double().eval().sublayers()))

    normed, exact, bare = (branch(one) for one in ("layernorm", "layernorm(eps=0.0)", "none"))

    def returned(sublayer: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
        read = x if sublayer.enter is None else sublayer.enter(x)  # type: ignore[operator]
        return sublayer.branch(read, Run(causal=True))  # type: ignore[operator]

    def change(sublayer: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
        before, after = returned(sublayer, x), returned(sublayer, y)
        return float((after - before).norm() / before.norm())

    x = drawn(1, LENGTH, WIDTH)
    factors = torch.exp(
        torch.empty(1, LENGTH, 1, dtype=torch.float64).uniform_(-0.69, 4.6, generator=rng)
    )
    with torch.no_grad():
        return Measured(
            {
                "scaled": change(normed, x, factors * x),
                "bare": change(bare, x, factors * x),
                "small": change(normed, 1e-3 * x, 2e-3 * x),
                "shifted": change(normed, x, x + drawn(1, LENGTH, 1)),
                "exact": change(exact, 1e-3 * x, 2e-3 * x),
            }
        )
