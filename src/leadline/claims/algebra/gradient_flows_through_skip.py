"""Gradients flow directly through the skip connection, a highway.

The gradient at the start is a sum: that at the end, come down the skip, plus what every branch adds,

    g_0 = g_L + sum over writes of F_i'^T g_{i+1}

so the gradient of the end does arrive at the start as it is: the claim, measured as this sum. A
highway carries most of the traffic: that the skip brings at least half of g_0 is the reach, measured
by the probe `identity_share`, <g_L, g_0> / |g_0|^2, in untrained stacks of 24 blocks. With Xavier's
init the branches bring the most; with writes divided by sqrt(2L) the skip does.
"""

from __future__ import annotations

import numpy as np

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture

DEPTH, LENGTH = 24, 16
SIZES = {"depth": DEPTH, "width": 64, "heads": 4}
HALF = "What is a highway carries at least half of the traffic."


@claim(
    "gradient-flows-through-skip",
    group="algebra",
    notes=("card", "summary"),
    title="Gradients flow directly through the skip connection",
    formula=r"g_0 = g_L + \sum_i F_i'^{\top} g_{i+1}",
    plain="g_0 = g_L + Σ F_i'ᵀ g_{i+1}",
    says="The skip connections are highways for the gradient: it flows straight through them, on a "
    "stable identity path.",
    correction="The gradient of the last layer arrives at the first as one term of a sum, unchanged. "
    "Whether it is the larger part depends on the branches: it is where their writes are scaled down "
    "with depth, not with an ordinary start.",
    why="In untrained pre-norm stacks of 24 blocks the gradient at the first layer is the gradient at the "
    "last one plus what the branches add, to {missed}. With Xavier's init the skip's part is {share:.0%} "
    "of it: nearly everything came through the branches. With writes divided by the root of twice the "
    "depth it is {scaled:.0%}.",
    checks=(
        Check(
            "missed", "claim", "at most", 1e-11,
            label="miss of the sum over skip and branches",
            because="The chain rule; 48 terms round by less than a thousand eps.",
            log=True,
        ),
        Check(
            "share", "reach", "at least", 0.5, label="share of the skip, Xavier's init",
            because=HALF, over="mean",
        ),
        Check(
            "scaled", "correction", "at least", 0.5, label="share of the skip, writes / √(2L)",
            because=HALF, over="mean",
        ),
        Check(
            "by_hand", "correction", "near", 1.0, within=1e-6,
            label="share of the skip, by the probe over by hand",
            because="Two routes to one number in float64; the rest is rounding.",
        ),
    ),
    seconds=0.7,
)  # fmt: skip
def measure(seed: int) -> Measured:
    """The terms of the gradient, and how much of it came down the skip."""
    import torch
    from torch.nn.functional import cross_entropy

    from leadline.claims.algebra._networks import built, tokens_of
    from leadline.experiments.gradient_flow.starts import plain_attention, seen_writes
    from leadline.instruments.passes.measurement import measure as measured

    designs = {"share": {}, "scaled": {"connection": "weighted(alpha=depth)"}}
    models = {name: built({**SIZES, **fields}, seed=seed) for name, fields in designs.items()}
    batch = tokens_of(models["share"], length=LENGTH, seed=seed)
    shares = {
        name: np.asarray(
            measured(model, batch, probes="identity_share")["gradient.identity_share"]
        ).tolist()
        for name, model in models.items()
    }
    twice: list[float] = []
    for name, model in models.items():
        with plain_attention(), seen_writes(model) as seen:
            loss = cross_entropy(model(batch.main)[:, :-1].flatten(0, 1), batch.main[0, 1:])
            first, last = torch.autograd.grad(loss, (seen.states[0], seen.states[-1]))
        twice.append(shares[name][0] / float((first * last).sum() / first.square().sum()))
    model = models["share"]
    rng = np.random.default_rng([seed, 113])
    with plain_attention():
        with seen_writes(model) as seen:
            model.stream(batch.main)
        states = seen.states
        weights = torch.from_numpy(rng.normal(size=tuple(states[-1].shape)))
        gradients = torch.autograd.grad((weights * states[-1]).sum(), states)
        total = gradients[-1].clone()
        for number, sublayer in enumerate(model.sublayers()):
            x = states[number].detach().requires_grad_()
            assert sublayer.enter is not None
            update = sublayer.branch(sublayer.enter(x), seen.runs[number])
            total += torch.autograd.grad(update, x, gradients[number + 1])[0]
    missed = float((total - gradients[0]).norm() / gradients[0].norm())
    sites = tuple(float(site) for site in range(DEPTH + 1))
    return Measured(
        {
            "missed": missed,
            "share": shares["share"][0],
            "scaled": shares["scaled"][0],
            "by_hand": max(twice, key=lambda one: abs(one - 1.0)),
        },
        Picture(
            "layer",
            "share of the gradient that came down the skip",
            {
                "Xavier's init": (sites, tuple(shares["share"])),
                "writes / √(2L)": (sites, tuple(shares["scaled"])),
            },
        ),
    )
