"""The Lipschitz constant of the model is bounded by the product of the spectral norms of its layers.

The note speaks of the spectral norms of the attention matrices, as if a layer were the fixed matrix
A. A depends on X: the Jacobian of X -> A(X) X W_V has a second term, from the change of the weights,
and its norm can exceed |A|_2 |W_V|_2. Read as: the Jacobian of an attention layer is at most that
product. The true statement is the chain rule: the Jacobian of the stack is at most the product of
the norms of the layers' own Jacobians. Dot-product attention has no Lipschitz constant at all on
unbounded inputs (Kim, Papamakarios and Mnih 2021, arXiv 2006.04710): a token at zero attends to all
others alike, and its Jacobian holds their covariance.
"""

from __future__ import annotations

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

DEPTH, WIDTH, TOKENS, SCALE = 3, 16, 6, 2.0


@claim(
    "lipschitz-product",
    group="attention",
    notes=("deep-dive",),
    title="The Lipschitz constant is bounded by the product of the layers' spectral norms",
    formula=r"\mathrm{Lip} \leq \prod_l \|A_l\|_2 \, \|W_{V,l} W_{O,l}\|_2",
    plain="Lip ≤ Π ‖A_l‖ ‖W_V,l W_O,l‖",
    says="The Lipschitz constant of the model has the product of the spectral norms of its layers as "
    "an upper bound; a layer above 1 raises it.",
    correction="The product of the norms of the layers' Jacobians is an upper bound along one pass. "
    "The norm of $A$ is not that of the Jacobian: $A$ itself changes with the input, and on unbounded "
    "inputs dot-product attention has no Lipschitz constant.",
    why="Three layers of attention without norm were measured on six tokens. The Jacobian of a layer "
    "was up to {jacobian_ratio:.1f} times as large as the product of the norms of its matrices. With "
    "tokens ten times as large it was {jacobian_ratio_large} times: a small change of a token "
    "moves the weights, and moved weights act on large values. The Jacobian of all three layers is "
    "{chain_ratio:.2f} of the product of the layers' Jacobians, as the chain rule wants it.",
    checks=(
        Check(
            "jacobian_ratio",
            "claim",
            "at most",
            1 + 1e-3,
            label="norm of a layer's Jacobian over ‖A‖ ‖W_V W_O‖",
            because="A bound: at most 1; singular values of the Jacobian are looked for to 1e-6.",
            log=True,
        ),
        Check(
            "chain_ratio",
            "correction",
            "at most",
            1 + 1e-5,
            label="Jacobian of the stack over the product of the layers' Jacobians",
            because="A theorem, with singular values to 1e-6 of their size.",
        ),
        Check(
            "growth",
            "correction",
            "at least",
            10.0,
            label="growth of the first ratio for tokens ten times as large",
            because="A Lipschitz constant would be the same at any size; the term of the weights "
            "grows as the square of the tokens, here a hundredfold.",
            log=True,
        ),
        Check(
            "frozen_ratio",
            "correction",
            "at most",
            1 + 1e-9,
            label="the same ratio with the weights of attention held fixed",
            because="With A fixed the layer is linear, and the product of norms is a bound.",
        ),
    ),
    source="Kim, Papamakarios and Mnih 2021, arXiv 2006.04710",
    seconds=0.2,
)
def measure(seed: int) -> Measured:
    """Jacobians of three layers, beside the norms of their matrices."""
    import torch

    from leadline.claims.attention._models import branch_of
    from leadline.instruments.jacobian.measure import jacobian
    from leadline.instruments.passes.measurement import measure as measured
    from leadline.parts import Transformer

    model = Transformer(
        depth=DEPTH,
        width=WIDTH,
        heads=1,
        attention="multihead(causal=false, bias=false)",
        positions="none",
        mlp="none",
        norm="none",
        connection="none",
        placement="none",
        embedding="none",
        head="none",
        init="xavier",
        seed=seed,
    ).double()
    generator = torch.Generator().manual_seed(4720 + seed)
    x = torch.randn(1, TOKENS, WIDTH, generator=generator, dtype=torch.float64)
    x[0, 0] = 0  # its query looks at all keys alike, however large the others are
    first = branch_of(model, "attention")
    value = first.qkv.weight.detach()[2 * WIDTH :]
    through = float(torch.linalg.matrix_norm(first.output.weight.detach() @ value, ord=2))

    def ratio(scale: float) -> tuple[float, float]:
        found = measured(model, scale * x, probes="attention", seed=seed)
        norm = float(found.by_layer("attention.spectral_norm", point="attention").values[0])
        layer = jacobian(model, scale * x, layer=1, k=1, probes=2, seed=seed)
        return float(layer.values[0, 0]) / (norm * through), norm

    near, norm = ratio(SCALE)
    # A fixed: the layer is X -> A X W, of norm |A| |W|, by a Kronecker product.
    q, k, _ = (SCALE * x[0] @ first.qkv.weight.detach().T).split(WIDTH, -1)
    pattern = torch.softmax(q @ k.T / WIDTH**0.5, -1)
    fixed = torch.kron(pattern, first.output.weight.detach() @ value)
    far = ratio(10 * SCALE)[0]
    whole = jacobian(model, SCALE * x, layer=(0, DEPTH), k=1, probes=2, seed=seed)
    assert whole.blocks is not None
    return Measured(
        {
            "jacobian_ratio": near,
            "jacobian_ratio_large": far,
            "growth": far / near,
            "chain_ratio": float(whole.values[0, 0] / whole.blocks.prod()),
            "frozen_ratio": float(torch.linalg.matrix_norm(fixed, ord=2)) / (norm * through),
        }
    )
