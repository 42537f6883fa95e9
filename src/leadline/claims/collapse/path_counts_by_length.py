"""Paths by length: C(L, l) H^l with a skip, (1 + H)^L in all, H^L without.

Counted three ways: by walking all paths, by Leadline's decomposition of a network, by the formula.
"""

from __future__ import annotations

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture

DEPTH, HEADS, WIDTH, TOKENS = 5, 3, 12, 4


@claim(
    "path-counts-by-length",
    group="collapse",
    notes=("deep-dive",),
    title="With skips there are C(L, l) Hˡ paths of length l and (1 + H)ᴸ in all",
    formula=r"| \mathcal{P}_l | = \binom{L}{l} H^l, \quad \sum_{l=0}^{L} \binom{L}{l} H^l = (1 + H)^L",
    plain="|P_l| = C(L, l) H^l, Σ_l = (1 + H)^L; without skip H^L",
    says="Without skips a network of L layers and H heads has $H^L$ paths. With skips there are as many "
    "paths through exactly $l$ attention layers as the binomial formula says, $(1 + H)^L$ altogether.",
    correction="",
    why="For {depth:.0f} layers of {heads:.0f} heads all paths were walked: {total:.0f} with the skip and "
    "{without:.0f} without. Leadline's decomposition of a real forward pass carries the same counts along, "
    "and both agree with the formula for every length.",
    checks=(
        Check(
            "walked",
            "claim",
            "at most",
            0.0,
            label="walked paths of each length against the formula",
            because="Whole numbers: they are equal or they are not.",
        ),
        Check(
            "carried",
            "claim",
            "at most",
            0.0,
            label="Leadline's counts against the formula",
            because="Whole numbers: they are equal or they are not.",
        ),
        Check(
            "plain",
            "claim",
            "at most",
            0.0,
            label="paths without a skip against H to the power L",
            because="Whole numbers: they are equal or they are not.",
        ),
    ),
    seconds=0.1,
    seeded=False,
)
def measure(seed: int) -> Measured:
    """Walk, carry and compute the numbers of paths."""
    import math

    import leadline
    from leadline.claims.collapse._components import enumerated, forward, heads_of, path_network
    from leadline.claims.collapse._stacks import stream

    shape = {"depth": DEPTH, "width": WIDTH, "heads": HEADS}
    inputs = stream(seed, tokens=TOKENS, width=WIDTH)
    x = inputs[0].numpy()
    right = [math.comb(DEPTH, l) * HEADS**l for l in range(DEPTH + 1)]
    walked: dict[bool, list[int]] = {}
    carried: dict[bool, tuple[int, ...]] = {}
    for skip in (True, False):
        model = path_network(seed, **shape, connection="identity" if skip else "none")
        layers = heads_of(model, WIDTH, HEADS)
        _, patterns = forward(x, layers, skip=skip)
        walked[skip] = enumerated(x, layers, patterns, skip=skip)[1]
        carried[skip] = leadline.paths(model, inputs, logits=False).counts or ()

    def off(found: list[int] | tuple[int, ...], wanted: list[int]) -> float:
        return float(sum(abs(a - b) for a, b in zip(found, wanted, strict=True)))

    none = [0] * DEPTH + [HEADS**DEPTH]
    lengths = tuple(float(l) for l in range(DEPTH + 1))
    return Measured(
        {
            "depth": float(DEPTH),
            "heads": float(HEADS),
            "total": float(sum(walked[True])),
            "without": float(sum(walked[False])),
            "walked": off(walked[True], right) + abs(sum(right) - (1 + HEADS) ** DEPTH),
            "carried": off(carried[True], right),
            "plain": off(carried[False], none) + off(walked[False], none),
        },
        Picture(
            "attention layers on the path",
            "paths",
            {"with skip": (lengths, tuple(float(c) for c in carried[True]))},
        ),
    )
