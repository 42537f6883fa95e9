"""How the loss gradient travels: its norm at every stream site and in every sublayer's weights.

Between two sites g_l = J' g_(l+1), J the Jacobian of what lies between. Equal norms all the way
mean that every layer learns; a norm that falls towards the input vanishes, one that grows
explodes. The gradient norm alone does not show rank collapse: collapsed tokens can carry a
healthy norm (see `tokens`). Zero weight gradients are right where a branch is switched off at
initialisation (ReZero, zero output weights).
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from leadline.instruments.cost.work import Size, Workload, moving
from leadline.instruments.passes.probe import PROBES, At, PerToken, Result, Single
from leadline.numerics.devices import widest_float
from leadline.numerics.tokens import Tokens
from leadline.record import Quantity

STREAM = Quantity(
    name="gradient.stream",
    title="Gradient at the stream",
    symbol="‖∂L/∂x_l‖",
    formula="total: over all tokens of the batch; mean and median: per token",
    scale="log",
    headline="total",
    high="Layers below get a large gradient: above 1000 times the last layer's it explodes.",
    low="Layers below get no gradient: they cannot learn.",
    source="Xiong et al. 2020, arXiv 2002.04745",
    meaning="How much of the loss gradient reaches each site of the stream.",
    leads=True,
    better="even",
)
PARAMETERS = Quantity(
    name="gradient.parameters",
    title="Gradient of a sublayer's parameters",
    symbol="‖∂L/∂θ‖",
    formula="Euclidean norm over all parameters that serve one write, its norms included",
    lives_on="sublayer",
    scale="log",
    headline="value",
    high="These weights move fast under plain gradient descent.",
    low="These weights hardly learn; zero is by design where the branch is switched off.",
    source="Xiong et al. 2020, arXiv 2002.04745",
    meaning="How strongly the loss asks each sublayer to change.",
    better="even",
    requires=("trainable",),
)


TENSORS = 8
"""Weights and biases of a block: each is reduced by itself, while it is in the caches."""


@PROBES.register("gradient")
class GradientProbe:
    """Gradient norm at every stream site and over every sublayer's parameters."""

    sees = ("gradient", "parameters")
    quantities = (STREAM, PARAMETERS)

    def cost(self, size: Size) -> Workload:
        """Norms read the gradient of the stream twice at every site, and that of every weight once."""
        return moving(size.numbers, times=2 * size.all_sites) + moving(
            size.parameters / (TENSORS * size.depth), times=TENSORS * size.depth
        )

    def gradient(self, at: At, g: Tokens) -> Iterator[Result]:
        norms = g.norm if g.mask is None else g.norm * g.mask
        total = torch.linalg.vector_norm(norms.to(widest_float(norms.device)))
        yield Single(STREAM, total, "total", join="root of squares")
        yield PerToken(STREAM, g.norm)

    def parameters(self, at: At, norm: torch.Tensor) -> Iterator[Result]:
        yield Single(PARAMETERS, norm, join="same")
