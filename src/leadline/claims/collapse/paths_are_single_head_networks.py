"""Paths are called single-head networks whose outputs add up.

Read as: with the patterns of this forward pass, each path is the action of one head per layer, and the
sum is the output (the part "claim"). A reader takes the words as they are, independent networks: then
each path would compute its patterns from its own stream. The sum of those is another output.
"""

from __future__ import annotations

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

DEPTH, WIDTH, HEADS, TOKENS = 3, 8, 2, 5


@claim(
    "paths-are-single-head-networks",
    group="collapse",
    notes=("deep-dive",),
    title="A multi-head network is a sum of single-head networks",
    formula=r"\mathrm{SAN}(X) = \sum_{h_1, \dots, h_L} P^L_{h_L} \cdots P^1_{h_1} X W^1_{h_1} \cdots W^L_{h_L}",
    plain="SAN(X) = Σ P_{h_L}⋯P_{h_1} X W_{h_1}⋯W_{h_L}",
    says="The decomposition describes a network of many heads as a combination of simple networks with "
    "one head per layer, one for each path.",
    correction="The patterns of every path are those of the whole network. A path by itself is no "
    "network: run alone, with patterns from its own stream, the single-head networks add up to something "
    "else; only in the first layer it is the same.",
    why="With the patterns of the whole network the {paths:.0f} paths add up to the output, off by "
    "{frozen}. The same single-head networks, each run alone, add up to something that is off by "
    "{alone:.2f} of the output's size. From the second layer on a pattern depends on what all heads before "
    "it wrote.",
    checks=(
        Check(
            "frozen",
            "claim",
            "at most",
            1e-12,
            label="sum of paths against the output, patterns as they were",
            because="An identity: some thousand eps are left for rounding.",
            log=True,
        ),
        Check(
            "alone",
            "reach",
            "at most",
            1e-6,
            label="sum of single-head networks run alone against the output",
            because="A sum of networks would be an identity; 1e-6 is far above rounding.",
            log=True,
        ),
        Check(
            "one_layer",
            "correction",
            "at most",
            1e-12,
            label="the same for a single layer",
            because="In the first layer all patterns come from the input: an identity.",
            log=True,
        ),
    ),
    seconds=0.03,
)
def measure(seed: int) -> Measured:
    """Sum paths with frozen patterns, and single-head networks that run by themselves."""
    import itertools

    import numpy as np

    from leadline.claims.collapse._components import (
        components,
        enumerated,
        forward,
        heads_of,
        path_network,
    )
    from leadline.claims.collapse._stacks import stream

    model = path_network(seed, depth=DEPTH, width=WIDTH, heads=HEADS, connection="none")
    inputs = stream(seed, tokens=TOKENS, width=WIDTH)
    x, layers = inputs[0].numpy(), heads_of(model, WIDTH, HEADS)
    _, _, end = components(model, inputs)
    _, patterns = forward(x, layers, skip=False)
    walked, counts, _ = enumerated(x, layers, patterns, skip=False)
    alone = sum(
        forward(x, [[layers[at][head]] for at, head in enumerate(path)], skip=False)[0]
        for path in itertools.product(range(HEADS), repeat=DEPTH)
    )
    first = forward(x, layers[:1], skip=False)[0]
    apart = sum(forward(x, [[head]], skip=False)[0] for head in layers[0]) - first
    size = float(np.linalg.norm(end))
    return Measured(
        {
            "paths": float(sum(counts)),
            "frozen": float(np.linalg.norm(sum(walked) - end)) / size,
            "alone": float(np.linalg.norm(alone - end)) / size,
            "one_layer": float(np.linalg.norm(apart) / np.linalg.norm(first)),
        }
    )
