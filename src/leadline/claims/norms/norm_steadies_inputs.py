"""A norm before a branch steadies what the branch reads.

Two notes say it: LayerNorm stabilises the inputs of a sublayer; it reduces the drift of their
scale. "claim": the mean square of what the branches read, over all sublayers of 48 untrained
Pre-LN layers, against the same stack without norms. "reach": the whole distribution, which is what
the word covariate shift means: its centre, the mean token, still moves through the depth.
"""

from __future__ import annotations

from leadline.analysis.claim import Check, Picture
from leadline.claims._entry import Measured, claim
from leadline.claims.norms._start import EXAMPLES, LENGTH, drawn

DEPTH = 48


@claim(
    "norm-steadies-inputs",
    group="norms",
    notes=("textbook", "deep-dive"),
    title="LayerNorm steadies the inputs of the sublayers",
    formula=r"\mathrm{mean} \, LN(x_l)^2 = 1 \; \mathrm{for \; all} \; l",
    plain="mean LN(x_l)² = 1 at every layer l",
    says="LayerNorm stabilises the inputs of every sublayer: it reduces the drift of their scale "
    "(internal covariate shift).",
    correction="It fixes the scale of every token. It does not fix where the tokens lie: their "
    "common mean still moves, from a small part of the input in the first layer to most of it in "
    "the last ones.",
    why="In 48 untrained Pre-LN layers the mean square that the branches read changes by a factor "
    "of {scale:.5f}; without norms it changes by {bare:.0e}. The scale is steady. But the share of "
    "the mean token in what is read grows from {centre_first:.2f} to {centre_last:.2f}: the inputs "
    "of late layers come from another distribution than those of early ones.",
    checks=(
        Check(
            "scale", "claim", "at most", 1.01,
            label="largest over smallest mean square of branch inputs, Pre-LN",
            because="Unit variance up to ε/σ², which is at most 1e-5 here; one in a hundred is "
            "steady.",
        ),
        Check(
            "bare", "claim", "at least", 1e3,
            label="the same without norms",
            because="Reduces: the drift that is prevented is at least a thousandfold.",
            log=True,
        ),
        Check(
            "centre_grown", "reach", "at most", 1.5,
            label="share of the mean token in branch inputs, last over first layer",
            because="A steady distribution keeps its centre: within a half.",
        ),
        Check(
            "centre_last", "correction", "at least", 0.5,
            label="share of the mean token in the inputs of the last branch",
            because="Most of what is read means more than a half of its mean square.",
        ),
    ),
    source="Santurkar et al. 2018, arXiv 1805.11604 (on covariate shift and norms)",
    seconds=0.5,
)  # fmt: skip
def measure(seed: int) -> Measured:
    """What every branch of one pass reads: its mean square and its mean token."""
    import torch

    from leadline.reproduce._flow_start import batch_of, plain_attention, seen_writes

    batch = batch_of(LENGTH, examples=EXAMPLES, seed=seed)
    squares: dict[str, list[float]] = {}
    centres: list[float] = []
    for design in ("pre", "no norm"):
        model = drawn(design, DEPTH, seed).double()
        with plain_attention(), torch.no_grad(), seen_writes(model) as seen:
            model.stream(batch.ids)
            for sublayer, x in zip(model.sublayers(), seen.states, strict=False):
                read = x if sublayer.enter is None else sublayer.enter(x)
                squares.setdefault(design, []).append(float(read.square().mean()))
                if design == "pre":
                    mean = float(read.mean((0, 1)).square().mean())
                    centres.append(mean / squares["pre"][-1])
    sublayers = tuple(float(at) for at in range(1, 2 * DEPTH + 1))
    return Measured(
        {
            "scale": max(squares["pre"]) / min(squares["pre"]),
            "bare": max(squares["no norm"]) / min(squares["no norm"]),
            "centre_first": centres[0],
            "centre_last": centres[-1],
            "centre_grown": centres[-1] / centres[0],
        },
        Picture(
            "sublayer",
            "of what the branch reads",
            {
                "mean square, Pre-LN": (sublayers, tuple(squares["pre"])),
                "share of the mean token, Pre-LN": (sublayers, tuple(centres)),
            },
        ),
    )
