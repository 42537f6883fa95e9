"""The gradient of a deep network is the product of its weight matrices.

The note writes that the gradient really is prod W_i, and then argues with the matrices alone. For a
network of linear layers, x <- W x, that is exact (the claim, where it is true). Its reach is a network
with an activation between the matrices, x <- relu(W x): there

    J = D_L W_L ... D_1 W_1,        D_i = diag(relu'(W_i x_i))

with about half of the gates D shut, and every one of them depends on the input.
"""

from __future__ import annotations

import numpy as np

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture

LAYERS, WIDTH = 20, 16
EXACT = 1e-11


@claim(
    "gradient-is-product-of-weights",
    group="algebra",
    notes=("shortcuts",),
    title="The gradient of a deep network is the product of its weight matrices",
    formula=r"\frac{\partial x_L}{\partial x_0} = \prod_i W_i",
    plain="∂x_L/∂x_0 = ∏ W_i",
    says="In a deep network the gradient is in fact a chain of weight matrices multiplied with each "
    "other.",
    correction="The factors are the Jacobians of the layers: $D_i W_i$, with the derivative of the "
    "activation on the diagonal of $D_i$. It is the weights alone only in a network without "
    "activations.",
    why="In 20 linear layers the Jacobian is the product of the matrices to {linear}. With a ReLU after "
    "every matrix the product misses the Jacobian by {relu} times the Jacobian's size: each ReLU shuts "
    "about half of the directions, so that the real gradient is smaller by {smaller:.0f} times. With the "
    "gates put in, the product is right to {gated}.",
    checks=(
        Check(
            "linear", "claim", "at most", EXACT,
            label="miss of the product, linear layers",
            because="The chain rule; 20 products of matrices of 16 rows round by less than 1e-12.",
            log=True,
        ),
        Check(
            "relu", "reach", "at most", 0.1,
            label="miss of the product, ReLU layers",
            because="An equation that is used as an approximation should be right to a tenth.",
            log=True,
        ),
        Check(
            "gated", "correction", "at most", EXACT,
            label="miss of the product with gates, ReLU layers",
            because="The chain rule; 20 products of matrices of 16 rows round by less than 1e-12.",
            log=True,
        ),
    ),
    seconds=0.1,
)  # fmt: skip
def measure(seed: int) -> Measured:
    """Autograd through linear and ReLU layers beside the products."""
    import torch
    from torch import Tensor

    from leadline.claims.algebra._matrices import multiplied, norm, products
    from leadline.numerics.linear.linear_maps import dense
    from leadline.numerics.linear.linearised import Linearised

    rng = np.random.default_rng([seed, 114])
    weights = [rng.normal(size=(WIDTH, WIDTH)) * np.sqrt(2.0 / WIDTH) for _ in range(LAYERS)]
    start = rng.normal(size=WIDTH)

    def jacobian(relu: bool, layers: int) -> np.ndarray:
        def network(x: Tensor) -> Tensor:
            for weight in weights[:layers]:
                x = x @ torch.from_numpy(weight).T
                x = torch.relu(x) if relu else x
            return x

        return dense(Linearised(network, torch.from_numpy(start)[None, None]))[0].numpy()

    def miss(found: np.ndarray, real: np.ndarray) -> float:
        return float(np.linalg.norm(found - real) / np.linalg.norm(real))

    x, gated = start, list[np.ndarray]()
    for weight in weights:
        gates = (weight @ x > 0.0).astype(np.float64)
        gated.append(gates[:, None] * weight)
        x = gates * (weight @ x)
    plain, real = multiplied(weights), jacobian(True, LAYERS)
    counted = tuple(float(at) for at in range(LAYERS + 1))
    return Measured(
        {
            "linear": miss(plain, jacobian(False, LAYERS)),
            "relu": miss(plain, real),
            "gated": miss(multiplied(gated), real),
            "smaller": norm(plain) / norm(real),
        },
        Picture(
            "layers",
            "norm",
            {
                "product of the weights": (counted, tuple(norm(one) for one in products(weights))),
                "Jacobian with ReLU": (counted, tuple(norm(one) for one in products(gated))),
            },
            y_log=True,
        ),
    )
