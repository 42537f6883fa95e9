"""Concatenated heads times W_O are a sum over heads.

    [h_1 ... h_H] W_O + b_O = sum_h P_h X W_h + 1 b_O',   W_h = W_V,h W_O,h

with W_O,h the rows of W_O that meet head h. Exact without value biases, the form of the note's
first part. The note's later form gives values a bias b_V and keeps b_O as the sum of the output
biases alone: the reach. Since P_h 1 = 1 the value biases pass through unchanged, and
b_O must take them in: b_O + sum_h W_O,h' b_V,h. Leadline's own attention is set against the sum,
with the weights P_h from the slow reference.
"""

from __future__ import annotations

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

WIDTH, HEADS, TOKENS = 24, 3, 7


@claim(
    "heads-are-a-sum",
    group="attention",
    notes=("deep-dive",),
    title="Concatenated heads times W_O equal a sum over heads",
    formula=r"[h_1, \dots, h_H] W_O + b_O = \sum_h P_h X W_{V,h} W_{O,h} + \mathbf{1} b_O^\top",
    plain="[h_1, …, h_H] W_O + b_O = Σ_h P_h X W_V,h W_O,h + 1 b_O'",
    says="The outputs of the heads are concatenated and multiplied by W_O; the same is a sum over "
    "heads with the products W_V W_O as weights, and with the sum of the output biases as bias.",
    correction="Where the values have biases $b_{V,h}$, as in GPT-2, the bias of the sum is "
    "$b_O + \\sum_h W_{O,h}^\\top b_{V,h}$.",
    why="The attention of a model was computed both ways. Without value biases they differ by "
    "{sum_error}, which is rounding. With value biases and the note's bias they differ by "
    "{error_value_bias}: rows of weights sum to one, so a value bias goes through attention "
    "unchanged and meets W_O. With that term the difference is {corrected_error} again.",
    checks=(
        Check(
            "sum_error",
            "claim",
            "at most",
            1e-13,
            label="difference of the two forms without value biases",
            because="An identity; sums of some hundred float64 products of size one.",
            log=True,
        ),
        Check(
            "error_value_bias",
            "reach",
            "at most",
            1e-13,
            label="difference with value biases and the bias as the note has it",
            because="The same identity, claimed with the biases that the note itself writes.",
            log=True,
        ),
        Check(
            "corrected_error",
            "correction",
            "at most",
            1e-13,
            label="difference with the value biases carried through W_O",
            because="An identity; sums of some hundred float64 products of size one.",
            log=True,
        ),
    ),
    source="Dong, Cordonnier and Loukas 2021, arXiv 2103.03404",
    seconds=0.01,
)
def measure(seed: int) -> Measured:
    """Both forms, for a random attention with output biases, without and with value biases."""
    import torch

    from leadline.claims.attention._models import branch_of
    from leadline.numerics.reference import attention_weights
    from leadline.parts import Transformer
    from leadline.parts.branches import Run

    model = Transformer(
        depth=1, width=WIDTH, heads=HEADS, vocabulary=10, context=TOKENS, init="xavier", seed=seed
    )
    branch = branch_of(model, "attention")
    generator = torch.Generator().manual_seed(4300 + seed)
    x = torch.randn(1, TOKENS, WIDTH, generator=generator, dtype=torch.float64)
    size = WIDTH // HEADS
    errors: dict[str, float] = {}
    with torch.no_grad():
        biases = torch.randn(4 * WIDTH, generator=generator, dtype=torch.float64)
        branch.output.bias.copy_(biases[:WIDTH])
        for values in (False, True):
            branch.qkv.bias.copy_(biases[WIDTH:])
            if not values:
                branch.qkv.bias[2 * WIDTH :] = 0
            together = branch(x, Run(causal=True))[0]
            q, k, _ = (x[0] @ branch.qkv.weight.T + branch.qkv.bias).split(WIDTH, -1)
            total = torch.zeros(TOKENS, WIDTH, dtype=torch.float64) + branch.output.bias
            carried = torch.zeros(WIDTH, dtype=torch.float64)
            for head in range(HEADS):
                mine = slice(head * size, (head + 1) * size)
                pattern = attention_weights(q[:, mine], k[:, mine], scaling=size**-0.5, causal=True)
                value = branch.qkv.weight[2 * WIDTH :][mine].T
                out = branch.output.weight[:, mine].T
                total += pattern @ x[0] @ (value @ out)
                carried += branch.qkv.bias[2 * WIDTH :][mine] @ out
            if values:
                errors["error_value_bias"] = float((total - together).abs().max())
                errors["corrected_error"] = float((total + carried - together).abs().max())
            else:
                errors["sum_error"] = float((total - together).abs().max())
    return Measured(errors)
