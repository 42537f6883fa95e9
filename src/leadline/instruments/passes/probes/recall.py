"""How much of what entered a linear map can still read: held-out R^2 of x_0 from x_l.

A ridge regression on half of the tokens, judged on the other half (`numerics.ridge`). The cosine
can be small although nothing is lost; this number is not fooled by a rotation. Costs the cube of
half the number of tokens per layer, so it is asked for by name.
"""

from __future__ import annotations

from collections.abc import Iterator

from leadline.errors import ProbeError
from leadline.instruments.cost.work import Size, Workload, moving, product
from leadline.instruments.passes.probe import PROBES, At, Result, Single
from leadline.numerics.ridge import held_out_r2
from leadline.numerics.tokens import Tokens
from leadline.record import Quantity

R2 = Quantity(
    name="memory.r2",
    title="Memory of the input (linear readout)",
    symbol="R²(x_0 | x_l)",
    formula="held-out R² of a ridge regression of x_0 from x_l over tokens",
    headline="value",
    high="1: a linear map recovers the input stream.",
    low="0 or below: no linear map recovers it from so many tokens.",
    meaning="How much of the embedding a linear map reads back from the stream.",
)


@PROBES.register("recall")
class RecallProbe:
    """Held-out R² of a ridge regression of the input stream from the stream at each layer."""

    sees = ("stream",)
    quantities = (R2,)

    def __init__(self, ridge: float = 1e-3, seed: int = 0) -> None:
        if not isinstance(ridge, (int, float)) or isinstance(ridge, bool) or not ridge > 0:
            raise ProbeError(f"The ridge of the probe 'recall' is {ridge!r}; it must be above 0.")
        if not isinstance(seed, int):
            raise ProbeError(f"The seed of the probe 'recall' is {seed!r}; it must be an integer.")
        self.ridge = float(ridge)
        self.seed = seed

    def cost(self, size: Size) -> Workload:
        """Half of the tokens fit the other half: two kernels and a solution in float64, every site."""
        half = size.examples * size.tokens / 2
        kernels = product(half, size.width, half, times=2 * size.sites, double=True)
        # Least squares of half x half by a QR of 4/3 of its cube, then one right side per feature.
        factors = product(half, 2 / 3 * half, half, times=size.sites, double=True)
        solved = product(half, half, size.width, times=3 * size.sites, double=True)
        return kernels + factors + solved + moving(size.numbers, times=12 * size.sites, double=True)

    def stream(self, at: At, x: Tokens, start: Tokens) -> Iterator[Result]:
        if at.site.sublayer is not None or x.x.shape != start.x.shape:
            return
        yield Single(R2, held_out_r2(x.real, start.real, ridge=self.ridge, seed=self.seed))
