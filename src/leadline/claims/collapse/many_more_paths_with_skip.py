"""(1 + H)^L is said to be much larger than H^L.

The ratio is (1 + 1/H)^L, about e^{L/H}. Read for the note's own experiment, one head and 12 layers, it is
4096. Carried to the note's own subject, GPT-2 with 12 layers of 12 heads, it is (13/12)^12 = 2.6.
"""

from __future__ import annotations

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture

DEPTH, HEADS = 12, 1
MUCH = 10.0


@claim(
    "many-more-paths-with-skip",
    group="collapse",
    notes=("deep-dive",),
    title="With skips a network has far more paths than without",
    formula=r"(1 + H)^L \gg H^L",
    plain="(1 + H)^L ≫ H^L",
    says="Together there are $(1 + H)^L$ paths, far more than the $H^L$ of a network without skips; the "
    "many short ones enrich its channels of information.",
    correction="The ratio is $(1 + 1/H)^L$, at most $e^{L/H}$: large where there are many more layers than "
    "heads, and small in wide models. What skips add is the short paths, not the number.",
    why="With one head and {depth:.0f} layers, as in the note's experiment, there are {one:.0f} times as many "
    "paths. GPT-2 has {gpt2_depth:.0f} layers of {gpt2_heads:.0f} heads: {gpt2:.2f} times as many. Only "
    "{short:.1e} of its paths have at most three hops, so it is not by their number that short paths "
    "matter.",
    checks=(
        Check(
            "one",
            "claim",
            "at least",
            MUCH,
            label="paths with over without skips, one head, 12 layers",
            because="Far more is read as at least ten times as many.",
            log=True,
        ),
        Check(
            "gpt2",
            "reach",
            "at least",
            MUCH,
            label="the same for GPT-2",
            because="Far more is read as at least ten times as many.",
            log=True,
        ),
        Check(
            "formula",
            "correction",
            "at most",
            1e-12,
            label="counted ratio against (1 + 1/H) to the power L",
            because="Whole numbers divided once: a few eps for every shape.",
        ),
        Check(
            "exponential",
            "correction",
            "at most",
            1.0 + 1e-12,
            label="the ratio over e to the power L/H, the worst shape",
            because="log(1 + 1/H) <= 1/H; 1e-12 is rounding.",
        ),
    ),
    seconds=0.03,
    seeded=False,
)
def measure(seed: int) -> Measured:
    """Count paths of several shapes."""
    import math

    from leadline.instruments.paths.result import path_counts
    from leadline.parts import Recipe

    def counts(depth: int, heads: int, skip: bool) -> tuple[int, ...]:
        return path_counts([heads] * depth, [skip] * depth)

    def ratio(depth: int, heads: int) -> float:
        return sum(counts(depth, heads, True)) / sum(counts(depth, heads, False))

    gpt2 = Recipe.named("gpt2")
    assert gpt2.heads is not None
    lengths = counts(gpt2.depth, gpt2.heads, True)
    shapes = [(depth, heads) for depth in (6, 12, 48) for heads in (1, 4, 12, 25)]
    widths = tuple(float(heads) for heads in range(1, 26))
    return Measured(
        {
            "depth": float(DEPTH),
            "one": ratio(DEPTH, HEADS),
            "gpt2": ratio(gpt2.depth, gpt2.heads),
            "gpt2_depth": float(gpt2.depth),
            "gpt2_heads": float(gpt2.heads),
            "short": sum(lengths[:4]) / sum(lengths),
            "formula": max(abs(ratio(d, h) / (1 + 1 / h) ** d - 1) for d, h in shapes),
            "exponential": max(ratio(d, h) / math.exp(d / h) for d, h in shapes),
        },
        Picture(
            "heads",
            "paths with over without skips",
            {"12 layers": (widths, tuple(ratio(12, int(heads)) for heads in widths))},
            y_log=True,
        ),
    )
