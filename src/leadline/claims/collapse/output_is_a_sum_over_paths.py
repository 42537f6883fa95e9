"""The output of attention layers with skip and biases is a sum over paths.

SAN(X) = sum_path P_path X W_path + 1b', the P_path stochastic and dependent on X, the W_path and b not.
Read for attention alone, as the theorem has it; paths run over {0, ..., H}^L with a skip and over
[H]^L without (the note prints [H]). P 1 = 1 makes biases the same for all tokens and inputs. With norms
in the blocks, as in every model that is used, b depends on the input.

Source: Dong, Cordonnier, Loukas 2021, arXiv 2103.03404, theorem 2.1.
"""

from __future__ import annotations

from typing import Any

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

DEPTH, WIDTH, HEADS, TOKENS = 4, 8, 2, 5
ROUNDING = 1e-12


@claim(
    "output-is-a-sum-over-paths",
    group="collapse",
    notes=("deep-dive",),
    title="The output of attention layers is a sum over paths of heads, plus a constant",
    formula=r"\mathrm{SAN}(X) = \sum_{p \in \{0, \dots, H\}^L} P_p X W_p + \mathbf{1} b^T",
    plain="SAN(X) = Σ_path P_path X W_path + 1bᵀ",
    says="A network of attention layers, with biases and skip connections, is a sum over paths of one "
    "head per layer. The patterns of a path depend on the input; its weights and the bias $b$ do not.",
    correction="It is an identity for attention alone, with a path in $\\{0, \\dots, H\\}^L$. With norms in "
    "the blocks, their statistics frozen, the sum over paths is still exact, but the bias depends on the "
    "input.",
    why="All {paths:.0f} paths of a small network were walked one by one: their sums by length agree with "
    "Leadline's decomposition to {lengths}, and with the output to {whole}. Rows of every path's pattern "
    "sum to one. The bias part is the same for all tokens and for two inputs ({bias}). With LayerNorm in "
    "the blocks it changes by {normed:.2f} of its size from one input to the other.",
    checks=(
        Check(
            "whole",
            "claim",
            "at most",
            ROUNDING,
            label="sum over paths against the output",
            because="An identity: some thousand eps are left for rounding.",
            log=True,
        ),
        Check(
            "lengths",
            "claim",
            "at most",
            ROUNDING,
            label="paths walked one by one against the decomposition",
            because="An identity: some thousand eps are left for rounding.",
            log=True,
        ),
        Check(
            "rows",
            "claim",
            "at most",
            ROUNDING,
            label="row sums of path patterns against 1",
            because="Products of stochastic matrices are stochastic.",
            log=True,
        ),
        Check(
            "bias",
            "claim",
            "at most",
            ROUNDING,
            label="change of the bias part over tokens and inputs",
            because="An identity: some thousand eps are left for rounding.",
            log=True,
        ),
        Check(
            "normed",
            "reach",
            "at most",
            ROUNDING,
            label="the same with LayerNorm in the blocks",
            because="Independent of the input means equal for two of them.",
            log=True,
        ),
        Check(
            "normed_whole",
            "correction",
            "at most",
            ROUNDING,
            label="sum over path lengths against the output, LayerNorm",
            because="With frozen statistics every layer is affine: an identity.",
            log=True,
        ),
    ),
    seconds=0.4,
    source="Dong, Cordonnier, Loukas 2021, arXiv 2103.03404",
)
def measure(seed: int) -> Measured:
    """Walk all paths by hand beside the carried components, without and with norms."""
    import numpy as np

    from leadline.claims.collapse._components import (
        components,
        enumerated,
        forward,
        heads_of,
        path_network,
    )
    from leadline.claims.collapse._stacks import stream

    shape: dict[str, Any] = {
        "depth": DEPTH,
        "width": WIDTH,
        "heads": HEADS,
        "connection": "identity",
    }
    inputs = [stream(seed + at, tokens=TOKENS, width=WIDTH) for at in (0, 100)]

    plain = path_network(seed, **shape)
    layers = heads_of(plain, WIDTH, HEADS)
    x = inputs[0][0].numpy()
    lengths, _, _ = components(plain, inputs[0])
    end, patterns = forward(x, layers, skip=True)
    walked, counts, rows = enumerated(x, layers, patterns, skip=True)
    off = max(
        float(np.linalg.norm(one - other) / np.linalg.norm(other))
        for one, other in zip(lengths, walked, strict=True)
    )

    def biases(**fields: Any) -> tuple[float, float]:
        """Change of the bias part over tokens and inputs, and what the components leave over."""
        model = path_network(
            seed, **shape, attention="multihead(causal=false, bias=true)", **fields
        )
        found = [components(model, one) for one in inputs]
        parts = [np.asarray(sources).sum(0) for _, sources, _ in found]
        change = max(float(np.abs(part - parts[0][0]).max()) for part in parts)
        z, _, out = found[0]
        left = np.linalg.norm(z.sum(0) + parts[0] - out) / np.linalg.norm(out)
        return change / float(np.abs(parts[0]).max()), float(left)

    bias, whole = biases()
    normed, normed_whole = biases(norm="layernorm", placement="pre")
    by_hand = float(np.linalg.norm(sum(walked) - end) / np.linalg.norm(end))
    return Measured(
        {
            "paths": float(sum(counts)),
            "whole": max(by_hand, whole),
            "lengths": off,
            "rows": rows,
            "bias": bias,
            "normed": normed,
            "normed_whole": normed_whole,
        }
    )
