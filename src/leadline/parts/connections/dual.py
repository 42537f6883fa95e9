"""ResiDual: the post-norm stream beside one that is never normed.

    x' = N(x + u)        r' = r + u        in the end  y = x + N(r)

Xie et al. 2023, arXiv 2304.14802: x and r start as the embedding; the released code can scale u
on its way into r, here it is not scaled. The branches read x alone. x keeps the layers different
as in post-norm, r carries the gradient past all norms as in pre-norm. The placement must be post:
one norm after every addition and none elsewhere; it stands on x only. The last N belongs to this
connection. It costs one norm and the memory of a second stream.
"""

from __future__ import annotations

from torch import Tensor

from leadline.errors import RecipeError
from leadline.parts.connections._connection import CONNECTIONS, Connection
from leadline.parts.connections._norm_points import norm_points
from leadline.parts.place import Place
from leadline.parts.placements import Placement

State = tuple[Tensor, Tensor]


@CONNECTIONS.register("dual")
class Dual(Connection):
    """x + u, normed at every write, beside a sum that is normed once (ResiDual)."""

    formula = "x + u, and r + u beside it; x + N(r) in the end"
    starts_as = None
    keep = 1.0
    gain = 1.0

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.norm = place.norm(place.width) if place.ends_stack else None
        if place.ends_stack and self.norm is None:
            raise RecipeError(
                "The connection 'dual' norms its second stream in the end, and the recipe's norm "
                "is none; choose layernorm or rmsnorm."
            )

    @classmethod
    def refuses(cls, placement: Placement, sublayers: int) -> str | None:
        if not placement.settles or norm_points(placement) != {"settle"} or placement.joined:
            return (
                "its first stream is normed after every addition and nowhere else (choose the "
                "placement post)"
            )
        return super().refuses(placement, sublayers)

    def open(self, stream: Tensor) -> State:
        return stream, stream

    def write(self, state: State, update: Tensor) -> State:
        x, r = state
        return x + update, r + update

    def split(self, state: State, update: Tensor) -> tuple[Tensor, Tensor]:
        return state[0], update

    def close(self, state: State) -> Tensor:
        x, r = state
        assert self.norm is not None
        return x + self.norm(r)
