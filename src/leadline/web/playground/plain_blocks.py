"""Products J' u of a block of ordinary parts, written out: what autograd would do, with less overhead.

    write   y = keep x + gain branch(norm(x))        J' u = keep u + gain N' B' u
    norm    LayerNorm                                 N' g = (w g - mean(w g) - z mean(z w g)) / s
    MLP     W_2 f(W_1 x)                              B' g = W_1' (f' . W_2' g)
    heads   A v W_o, A = softmax(q k' / sqrt d)       dV = A' G,  dS = A . (dA - sum dA . A),  dA = G v'

with z what the norm returned before its gain w, and s what it divided by. Many vectors go together:
[vector, token, width]. `plain_pull` returns None for a block with any other part.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional as F

from leadline.parts.branches.attention.multihead import MultiHead
from leadline.parts.branches.mlp.perceptron import Plain

if TYPE_CHECKING:
    from leadline.parts.branches import Run
    from leadline.parts.sublayer import Sublayer

__all__ = ["Pull", "plain_pull"]

Tensor = torch.Tensor
Pull = Callable[[Tensor], Tensor]


@torch.no_grad()
def plain_pull(block: Any, state: Any, run: Run) -> Pull | None:
    """The map u -> J' u of a block at the stream that enters it, for u [vector, token, width]."""
    if not isinstance(state, Tensor) or state.ndim != 3 or len(state) != 1:
        return None
    if run.mask is not None or run.rotate is not None:
        return None
    sublayers: list[Sublayer] = [block.get_submodule(name) for name in block.order]
    if not all(_is_plain(sublayer) for sublayer in sublayers):
        return None
    x = state.detach()
    pulls: list[Pull] = []
    for sublayer in sublayers:
        x, pull = _through(sublayer, x, run)
        pulls.append(pull)

    def pulled(u: Tensor) -> Tensor:
        with torch.no_grad():
            for pull in reversed(pulls):
                u = pull(u)
        return u

    return pulled


def _is_plain(sublayer: Sublayer) -> bool:
    connection, branch = sublayer.connection, sublayer.branch
    numbers = isinstance(connection.keep, float) and isinstance(connection.gain, float)
    norms = (sublayer.enter, sublayer.exit, sublayer.settle)
    if not numbers or not all(norm is None or isinstance(norm, nn.LayerNorm) for norm in norms):
        return False
    if not all(isinstance(child, nn.Linear) for child in branch.children()):
        return False
    if isinstance(branch, MultiHead):
        return branch.groups == branch.heads and branch.share is None
    return isinstance(branch, Plain)


def _through(sublayer: Sublayer, x: Tensor, run: Run) -> tuple[Tensor, Pull]:
    """The stream after one write, and its product backwards."""
    connection = sublayer.connection
    keep, gain = connection.keep, connection.gain
    assert isinstance(keep, float) and isinstance(gain, float)
    branch = sublayer.branch
    entered, enter = _norm(sublayer.enter, x)
    if isinstance(branch, MultiHead):
        returned, inner = _attention(branch, entered, run)
    else:
        assert isinstance(branch, Plain)
        returned, inner = _mlp(branch, entered)
    update, leave = _norm(sublayer.exit, returned)
    settled, settle = _norm(sublayer.settle, connection.write(x, update))

    def pull(u: Tensor) -> Tensor:
        u = settle(u)
        return torch.add(keep * u if keep != 1.0 else u, enter(inner(leave(u))), alpha=gain)

    return settled, pull


def _norm(norm: nn.Module | None, x: Tensor) -> tuple[Tensor, Pull]:
    if norm is None:
        return x, lambda g: g
    assert isinstance(norm, nn.LayerNorm)
    shape, weight = list(norm.normalized_shape), norm.weight
    y, mean, scale = torch.native_layer_norm(x, shape, weight, norm.bias, norm.eps)
    normed = (x - mean).mul_(scale)

    def pull(g: Tensor) -> Tensor:
        g = g * weight
        along = (g * normed).mean(-1, keepdim=True)
        g -= g.mean(-1, keepdim=True)
        return g.addcmul_(normed, along, value=-1.0).mul_(scale)

    return y, pull


def _mlp(branch: Plain, x: Tensor) -> tuple[Tensor, Pull]:
    inside = branch.up(x)
    with torch.enable_grad():
        leaf = inside.detach().requires_grad_(True)
        hidden = branch.activation(leaf)
        (slope,) = torch.autograd.grad(hidden, leaf, torch.ones_like(hidden))
    up, down = branch.up.weight, branch.down.weight

    def pull(g: Tensor) -> Tensor:
        return (g @ down).mul_(slope) @ up

    return branch.down(hidden.detach()), pull


def _attention(branch: MultiHead, x: Tensor, run: Run) -> tuple[Tensor, Pull]:
    tokens, heads, size = x.shape[1], branch.heads, branch.size
    scale = size**-0.5 if branch.scale is None else branch.scale
    query, key, value = (
        branch.qkv(x[0]).view(tokens, 3, heads, size).permute(1, 2, 0, 3).contiguous()
    )
    scores = (query @ key.mT).mul_(scale)
    if run.causal:
        scores += torch.full((tokens, tokens), -math.inf).triu(1)
    weights = torch.softmax(scores, -1)
    mixed = (weights @ value).transpose(0, 1).reshape(1, tokens, heads * size)

    def pull(g: Tensor) -> Tensor:
        count = len(g)
        # [vector, token, head, feature] of what the heads returned.
        outer = (g @ branch.output.weight).view(count, tokens, heads, size)
        rows = outer.permute(2, 0, 1, 3).reshape(heads, count * tokens, size)
        moved = (rows @ value.mT).view(heads, count, tokens, tokens)
        moved *= weights[:, None]
        moved.addcmul_(weights[:, None], moved.sum(-1, keepdim=True), value=-1.0)
        inner = torch.empty(3, heads, count, tokens, size)
        torch.bmm(
            moved.view(heads, count * tokens, tokens), key,
            out=inner[0].view(heads, count * tokens, size),
        )  # fmt: skip
        torch.matmul(moved.mT, query[:, None], out=inner[1])
        inner[:2] *= scale
        torch.matmul(weights.mT[:, None], rows.view(heads, count, tokens, size), out=inner[2])
        joined = inner.permute(2, 3, 0, 1, 4).reshape(count, tokens, 3 * heads * size)
        return joined @ branch.qkv.weight

    return F.linear(mixed, branch.output.weight, branch.output.bias), pull
