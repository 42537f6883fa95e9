"""A norm before a branch steadies what the branch reads.

Two notes say it: LayerNorm stabilises the inputs of a sublayer; it reduces the drift of their
scale. "claim": the mean square of what the branches read, over all sublayers of 48 untrained
Pre-LN layers, against the same stack without norms. "reach": the whole distribution, which is what
the word covariate shift means: its centre, the mean token, still moves through the depth. How far
differs much from draw to draw, so the centre is the mean of four draws of the weights.
"""

from __future__ import annotations

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture
from leadline.claims.norms._start import EXAMPLES, LENGTH, drawn, own_seed

DEPTH, AGAIN = 48, 3
"""The layers, and how many times more Pre-LN is drawn."""


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
    "common mean still moves, from a small part of the input in the first layer to a large part of "
    "it in the last ones.",
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
            "centre_last", "correction", "at least", 0.2,
            label="share of the mean token in the inputs of the last branch",
            because="A large part is read as a fifth of the mean square or more, several times the "
            "share in the first layer. Single draws lie between 0.29 and 0.84, hence four of them.",
        ),
    ),
    source="Santurkar et al. 2018, arXiv 1805.11604 (on covariate shift and norms)",
    seconds=1.4,
)  # fmt: skip
def measure(seed: int) -> Measured:
    """What every branch of one pass reads: its mean square and its mean token."""
    squares, centres = _read("pre", seed)
    bare, _ = _read("no norm", seed)
    several = [centres, *(_read("pre", own_seed(seed, draw))[1] for draw in range(AGAIN))]
    first, last = (sum(one[at] for one in several) / len(several) for at in (0, -1))
    sublayers = tuple(float(at) for at in range(1, 2 * DEPTH + 1))
    return Measured(
        {
            "scale": max(squares) / min(squares),
            "bare": max(bare) / min(bare),
            "centre_first": first,
            "centre_last": last,
            "centre_grown": last / first,
        },
        Picture(
            "sublayer",
            "of what the branch reads",
            {
                "mean square, Pre-LN": (sublayers, tuple(squares)),
                "share of the mean token, Pre-LN": (sublayers, tuple(centres)),
            },
        ),
    )


def _read(design: str, seed: int) -> tuple[list[float], list[float]]:
    """The mean square of what every branch reads, and the share of the mean token in it."""
    import torch

    from leadline.experiments.gradient_flow.starts import batch_of, plain_attention, seen_writes

    batch = batch_of(LENGTH, examples=EXAMPLES, seed=seed)
    squares: list[float] = []
    centres: list[float] = []
    model = drawn(design, DEPTH, seed).double()
    with plain_attention(), torch.no_grad(), seen_writes(model) as seen:
        model.stream(batch.ids)
        for sublayer, x in zip(model.sublayers(), seen.states, strict=False):
            read = x if sublayer.enter is None else sublayer.enter(x)
            squares.append(float(read.square().mean()))
            centres.append(float(read.mean((0, 1)).square().mean()) / squares[-1])
    return squares, centres
