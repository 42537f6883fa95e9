"""Admin: a learned vector on the stream, set so that no branch dominates at the start.

    x' = N(w x + u),     w [width], all features equal at initialisation

Liu et al. 2020, arXiv 2004.08249. The start follows from how fast the model's output may change
with the number n of writes (the closed forms of the authors' package admin-torch):

    growth log        w = sqrt((n + 1) / log(n + 1) - 1)        change of order log n
    growth constant   w = sqrt(n)                               change of order 1

or from `profile(model, ids)`, the paper's own way, which measures the branches first. It costs
width numbers per write.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from leadline.errors import RecipeError
from leadline.parts.connections._connection import CONNECTIONS, Connection
from leadline.parts.options import one_of
from leadline.parts.place import Place

__all__ = ["Admin", "profile"]


@CONNECTIONS.register("admin")
class Admin(Connection):
    """w x + u with a learned vector w that starts large, for post-norm stacks."""

    formula = "w x + u, w learned and large at first"
    keeps_identity = False
    amplifies = True

    def __init__(self, place: Place, *, growth: str = "log") -> None:
        super().__init__(place)
        n = place.writes
        if one_of("admin", "growth", growth, ("log", "constant")) == "log":
            start = math.sqrt((n + 1) / math.log(n + 1) - 1)
        else:
            start = math.sqrt(n)
        self.omega = nn.Parameter(torch.full((place.width,), start))

    def write(self, state: Tensor, update: Tensor) -> Tensor:
        return torch.addcmul(update, self.omega, state)

    def split(self, state: Tensor, update: Tensor) -> tuple[Tensor, Tensor]:
        return self.omega * state, update


@torch.no_grad()
def profile(model: nn.Module, ids: Tensor) -> list[float]:
    """Set every w by one forward pass of `model(ids)`; return the numbers, one per write.

    w_1 = 1 and w_i^2 = Var(x_0) + sum over j < i of Var(u_j), where x_0 is what enters the first
    sublayer and u_j what the j-th branch (with its norm, where one stands on its output) returns.
    A variance is taken over all examples, tokens and features together and divides by their
    number. Each w_i is set as soon as it is known, so later branches are measured on the stream
    that the new numbers make. That is the authors' profiling code; the paper's sum leaves Var(x_0)
    out, which would make w_1 = 0. Padding is not left out: give ids without padding.
    """
    from leadline.parts.sublayer import Sublayer

    sublayers = [
        m for m in model.modules() if isinstance(m, Sublayer) and isinstance(m.connection, Admin)
    ]
    if not sublayers:
        raise RecipeError(
            "Only a model with the connection admin can be profiled, and this one has no admin "
            "in it; build it with connection='admin'."
        )
    starts: list[float] = []
    sums: list[float] = []

    def enter(connection: Admin) -> Callable[..., None]:
        def hook(_: nn.Module, args: tuple[Any, ...]) -> None:
            if not sums:
                sums.append(_variance(args[0]))
                starts.append(1.0)
            else:
                starts.append(math.sqrt(sum(sums)))
            connection.omega.fill_(starts[-1])

        return hook

    def leave(_: nn.Module, args: tuple[Any, ...], update: Tensor) -> None:
        sums.append(_variance(update))

    handles: list[Any] = []
    try:
        for sublayer in sublayers:
            connection = sublayer.connection
            assert isinstance(connection, Admin)
            last = sublayer.branch if sublayer.exit is None else sublayer.exit
            handles.append(sublayer.register_forward_pre_hook(enter(connection)))
            handles.append(last.register_forward_hook(leave))
        model(ids)
    finally:
        for handle in handles:
            handle.remove()
    return starts


def _variance(x: Tensor) -> float:
    return float(x.double().var(unbiased=False))
