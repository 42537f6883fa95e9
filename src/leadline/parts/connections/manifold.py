"""Manifold-constrained hyper-connections: lanes mixed by a doubly stochastic matrix.

    x~     = flattened lanes / their root mean square             x = [lane, width]
    H_pre  = sigmoid(s_pre (x~ phi_pre) + b_pre)                   read   H_pre x
    H_post = 2 sigmoid(s_post (x~ phi_post) + b_post)
    H_res  = Sinkhorn(exp(s_res mat(x~ phi_res) + b_res))          write  x' = H_res x + H_post' u

Xie et al. 2025 (mHC), arXiv 2512.24880: lane i of H_res x is sum_j H_res[i, j] x_j, the paper's
orientation. transformers' DeepSeek-V4 computes the transpose and multiplies by its transpose,
which is the same map. 4 lanes; all s start at 0.01, phi is drawn by the recipe's init, b_pre =
b_post = 0, b_res = `diagonal` times the identity. With diagonal = 0, as in public code, H_res
starts as the averaging matrix, so that all lanes act as one; a large diagonal (8, say) starts near
the identity. The lanes start as copies and end as their mean. eps in the root mean square is 1e-6.

Sinkhorn norms the columns, then the rows, 20 times, in float32 at least. Rows then sum to 1 to
rounding. So do columns at the start; where the logits have a standard deviation of 1, 98 in 100
tokens have them to 1e-6, and the worst of some thousand is off by 1e-3. What is lacking is then
put right (Altschuler, Weed and Rigollet 2017, arXiv 1705.09634: too full columns are scaled down
and the rest is spread over what lacks), so that both sum to 1 to 1e-6 whatever the weights are;
`exact=false` leaves Sinkhorn's matrix as the paper has it.

A zero update moves the lanes, but not what they close to: columns that sum to 1 keep the mean of
the lanes, to rounding. That is what keeps_identity means here. It costs (2 n + n^2)(n width + 1) +
3 parameters per write for n lanes, and n times the memory of the stream.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from leadline.parts.connections._connection import CONNECTIONS, Connection
from leadline.parts.options import flag, number, whole_number
from leadline.parts.place import Place

SCALE = 0.01
"""Where s_pre, s_post and s_res start."""
EPS = 1e-6


@CONNECTIONS.register("manifold_hyper")
class Manifold(Connection):
    """Lanes mixed by a doubly stochastic matrix per token (mHC)."""

    formula = "H_res x + H_post' u on lanes x, read as H_pre x"
    mixes = "doubly stochastic"

    def __init__(
        self,
        place: Place,
        *,
        lanes: int = 4,
        iterations: int = 20,
        diagonal: float = 0.0,
        exact: bool = True,
    ) -> None:
        super().__init__(place)
        self.lanes = whole_number("manifold_hyper", "lanes", lanes)
        self.iterations = whole_number("manifold_hyper", "iterations", iterations)
        start = number("manifold_hyper", "diagonal", diagonal)
        self.exact = flag("manifold_hyper", "exact", exact)
        self.keeps_identity = self.exact
        self.phi = nn.Linear(lanes * place.width, 2 * lanes + lanes**2, bias=False)
        self.scale = nn.Parameter(torch.full((3,), SCALE))
        self.bias_pre = nn.Parameter(torch.zeros(lanes))
        self.bias_post = nn.Parameter(torch.zeros(lanes))
        self.bias_res = nn.Parameter(start * torch.eye(lanes))

    def open(self, stream: Tensor) -> Tensor:
        return stream.unsqueeze(-2).expand(*stream.shape[:-1], self.lanes, -1).contiguous()

    def close(self, state: Tensor) -> Tensor:
        return state.mean(-2)

    def read(self, state: Tensor) -> Tensor:
        with torch.autocast(state.device.type, enabled=False):
            share = torch.sigmoid(self._logits(state, 0, self.bias_pre))
            return torch.matmul(share.to(state.dtype).unsqueeze(-2), state).squeeze(-2)

    def write(self, state: Tensor, update: Tensor) -> Tensor:
        kept, written = self.split(state, update)
        return kept + written

    def split(self, state: Tensor, update: Tensor) -> tuple[Tensor, Tensor]:
        # Products with the lanes are the stream itself: autocast must not round them.
        with torch.autocast(state.device.type, enabled=False):
            share = 2.0 * torch.sigmoid(self._logits(state, 1, self.bias_post))
            kept = torch.matmul(self.mixing(state).to(state.dtype), state)
            written = share.to(state.dtype).unsqueeze(-1) * update.to(state.dtype).unsqueeze(-2)
            return kept, written

    def mixing(self, state: Tensor) -> Tensor:
        """H_res [example, token, lane out, lane in] of these lanes."""
        with torch.autocast(state.device.type, enabled=False):
            matrix = sinkhorn(self._logits(state, 2, self.bias_res), self.iterations)
            return doubly_stochastic(matrix) if self.exact else matrix

    def _logits(self, state: Tensor, part: int, bias: Tensor) -> Tensor:
        """s (x~ phi) + b for pre (0), post (1) or res (2)."""
        wide = torch.promote_types(state.dtype, torch.float32)
        flat = state.flatten(-2).to(wide)
        n = self.lanes
        rows = self.phi.weight.split((n, n, n * n))[part].to(wide)
        projection = F.linear(F.rms_norm(flat, flat.shape[-1:], eps=EPS), rows)
        return self.scale[part].to(wide) * projection.unflatten(-1, bias.shape) + bias.to(wide)

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        yield "coefficients", self.phi.weight


def sinkhorn(logits: Tensor, iterations: int) -> Tensor:
    """exp(logits) with its columns, then its rows normed, many times; in logarithms."""
    for _ in range(iterations):
        logits = F.log_softmax(F.log_softmax(logits, -2), -1)
    # Rows are normed already: the softmax is exp, whose rows sum to 1 to rounding.
    return torch.softmax(logits, -1)


def doubly_stochastic(matrix: Tensor) -> Tensor:
    """The nearby matrix whose columns sum to 1 too, given one whose rows do."""
    matrix = matrix / matrix.sum(-2, keepdim=True).clamp_min(1.0)
    rows = (1.0 - matrix.sum(-1, keepdim=True)).clamp_min(0.0)
    columns = (1.0 - matrix.sum(-2, keepdim=True)).clamp_min(0.0)
    lacking = columns.sum(-1, keepdim=True)
    # Below this only rounding is lacking; its shares would be noise, and their gradients more so.
    some = lacking > 4.0 * torch.finfo(matrix.dtype).eps
    return matrix + torch.where(some, rows * (columns / torch.where(some, lacking, 1.0)), 0.0)
