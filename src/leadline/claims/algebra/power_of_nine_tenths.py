"""0.9^100 and 1.1^100: how fast a product of equal factors vanishes or explodes.

exp(100 log 0.9) = exp(-10.536) = 2.656e-5, exp(100 log 1.1) = exp(9.531) = 13780.6.
"""

from __future__ import annotations

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture

DEPTH = 100


@claim(
    "power-of-nine-tenths",
    group="algebra",
    notes=("shortcuts",),
    title="A hundred factors of 0.9 leave 0.000026",
    formula=r"0.9^{100} \approx 0.000026",
    plain="0.9^100 ≈ 0.000026",
    says="If every layer multiplies the gradient by 0.9, a hundred layers leave 0.000026 of it; "
    "with 1.1 it explodes.",
    correction="",
    why="A product of $L$ equal factors $c$ is $c^L = e^{L \\log c}$: exponential in the depth. "
    "The hundredth power of 0.9 is {vanishing} (the note cuts it off; rounded it is "
    "{vanishing:.6f}), that of 1.1 is {exploding}. The arithmetic is right; whether the layers of a network behave like equal numbers is another "
    "question.",
    checks=(
        Check(
            "vanishing", "claim", "near", 2.65e-5, within=5e-7,
            label="0.9 to the power 100",
            because="The note cuts off after two digits, so the number lies between 2.6e-5 and 2.7e-5.",
        ),
        Check(
            "exploding", "claim", "at least", 1e3,
            label="1.1 to the power 100",
            because="Exploding is read as growing at least a thousandfold.",
            log=True,
        ),
    ),
    seconds=0.001,
    seeded=False,
)  # fmt: skip
def measure(seed: int) -> Measured:
    """Multiply a hundred times, and keep every power for the picture."""
    depths = tuple(float(depth) for depth in range(DEPTH + 1))
    powers = {factor: tuple(factor**depth for depth in depths) for factor in (0.9, 1.0, 1.1)}
    return Measured(
        {"vanishing": powers[0.9][-1], "exploding": powers[1.1][-1]},
        Picture(
            "layers",
            "product",
            {f"factor {factor}": (depths, values) for factor, values in powers.items()},
            y_log=True,
        ),
    )
