"""MLPs are said to be Lipschitz in |.|_{1,inf} because their maps and activations are bounded.

The conclusion, for the MLPs that the note names (ReLU, as in its script, and GELU of GPT-2), is the part
"claim": lambda = Lip(act) |W1|_{1,inf} |W2|_{1,inf}. The reason is carried to other activations: ReLU is
not bounded at all, a step is bounded and not Lipschitz, and a gated MLP (SwiGLU) is a product whose
slope grows with its input. What is needed is a bounded slope.
"""

from __future__ import annotations

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

TOKENS, WIDTH, HIDDEN, DRAWS = 6, 5, 12, 200
TINY = 1e-7


@claim(
    "mlp-is-lipschitz",
    group="collapse",
    notes=("deep-dive",),
    title="MLPs are Lipschitz because their maps and activations are bounded",
    formula=r"\| f(Z_1) - f(Z_2) \|_{1,\infty} \le \lambda \| Z_1 - Z_2 \|_{1,\infty}",
    plain="‖f(Z₁) − f(Z₂)‖₁,∞ ≤ λ ‖Z₁ − Z₂‖₁,∞",
    says="Since an MLP is made of bounded linear maps and bounded activations, it is Lipschitz "
    "continuous in the measure of the theorems.",
    correction="What must be bounded is the slope of the activation: $\\lambda = \\mathrm{Lip}(\\sigma) "
    "\\|W_1\\|_{1,\\infty} \\|W_2\\|_{1,\\infty}$, with 1 for ReLU and 1.129 for GELU. ReLU is unbounded and "
    "Lipschitz, a step is bounded and not, a gated MLP is not on the whole space.",
    why="Pairs of inputs were put through random MLPs. The change of the output reached at most {relu:.3f} "
    "of λ times the change of the input with ReLU and {gelu:.3f} with GELU. A step function, which is "
    "bounded, gave {step:.2g} times what slope 1 would allow. A gated MLP on inputs ten times as large "
    "changed {gated:.1f} times as much for the same change.",
    checks=(
        Check(
            "relu",
            "claim",
            "at most",
            1.0 + 1e-9,
            label="change of a ReLU MLP over λ times that of its input",
            because="A theorem: entries, then rows and columns; 1e-9 is rounding.",
        ),
        Check(
            "gelu",
            "claim",
            "at most",
            1.0 + 1e-9,
            label="the same with GELU",
            because="A theorem: entries, then rows and columns; 1e-9 is rounding.",
        ),
        Check(
            "step",
            "reach",
            "at most",
            1.0 + 1e-9,
            label="the same with a step, against slope 1",
            because="Bounded by 1, it would need a constant; slope 1 is that of ReLU.",
            log=True,
        ),
        Check(
            "gated",
            "reach",
            "at most",
            2.0,
            label="change of a gated MLP, inputs ten times as large",
            because="One constant for the whole space does not grow with the input.",
        ),
        Check(
            "attained",
            "correction",
            "near",
            1.0,
            within=1e-4,
            label="the quotient of one GELU unit at its steepest, over λ",
            because="One unit attains its largest slope; a step of 1e-7 leaves 1e-7.",
        ),
        Check(
            "slope",
            "correction",
            "at most",
            1e-6,
            label="largest slope of GELU, found on a grid, against Lip",
            because="The slope is flat at its maximum: a grid of 1e-4 finds it to 1e-8.",
            log=True,
        ),
    ),
    seconds=0.01,
)
def measure(seed: int) -> Measured:
    """Quotients over drawn pairs, near and far, and the slope of GELU."""
    import torch
    from torch.nn import functional as F

    from leadline.instruments.collapse.composite import composite
    from leadline.theory.rank_collapse.lipschitz import composite_lipschitz, lip

    generator = torch.Generator().manual_seed(1000 * seed + 28)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    up, down, gate = normal(WIDTH, HIDDEN), normal(HIDDEN, WIDTH), normal(WIDTH, HIDDEN)
    norms = [float(w.abs().sum(at).max()) for w in (up, down) for at in (0, 1)]
    near = normal(DRAWS, TOKENS, WIDTH)
    sizes = 10.0 ** (4.0 * torch.rand(DRAWS, 1, 1, generator=generator, dtype=torch.float64) - 3.0)
    moves = sizes * normal(DRAWS, TOKENS, WIDTH)

    def quotient(act: str) -> float:
        run = {"relu": F.relu, "gelu": F.gelu}[act]
        change = run((near + moves) @ up) @ down - run(near @ up) @ down
        return float((composite(change) / composite(moves)).max()) / composite_lipschitz(
            act, *norms
        )

    edge = near - near @ up[:, :1] @ torch.linalg.pinv(up[:, :1])  # unit 1 stands at zero
    push = TINY * up[:, 0].expand(edge.shape)
    jump = (((edge + push) @ up > 0).double() - ((edge - push) @ up > 0).double()) @ down
    stepped = float((composite(jump) / composite(2.0 * push)).max())

    def gated(size: float) -> float:
        def run(z: torch.Tensor) -> torch.Tensor:
            return (F.silu(z @ gate) * (z @ up)) @ down

        move = TINY * normal(DRAWS, TOKENS, WIDTH)
        change = run(size * near + move) - run(size * near)
        return float((composite(change) / composite(move)).mean())

    steepest = torch.tensor(2.0, dtype=torch.float64).sqrt()
    single = float(F.gelu(steepest + TINY) - F.gelu(steepest)) / TINY
    grid = torch.arange(-6.0, 6.0, 1e-4, dtype=torch.float64, requires_grad=True)
    (slopes,) = torch.autograd.grad(F.gelu(grid).sum(), grid)
    return Measured(
        {
            "relu": quotient("relu"),
            "gelu": quotient("gelu"),
            "step": stepped / composite_lipschitz("relu", *norms),
            "gated": gated(10.0) / gated(1.0),
            "attained": single / composite_lipschitz("gelu", 1.0, 1.0, 1.0, 1.0),
            "slope": abs(float(slopes.max()) - lip("gelu")),
        }
    )
