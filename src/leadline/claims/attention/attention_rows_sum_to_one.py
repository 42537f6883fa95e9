"""Every row of A is a probability distribution, with the causal mask too.

A = softmax(S + M) row by row: positive weights that sum to one, zeros where M is minus infinity.
Checked on heads drawn within the hypotheses (`numerics.attacked_heads`, float64), on the weights
that a small random GPT-2 of Hugging Face returns itself, and by what the probe `attention` says of
that model: with no sink, the weights of each row sum to one.
"""

from __future__ import annotations

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

KINDS = ("open", "open-rotary", "causal", "causal-rotary", "random")


@claim(
    "attention-rows-sum-to-one",
    group="attention",
    notes=("deep-dive",),
    title="Every row of an attention matrix is a probability distribution",
    formula=r"A_{ij} \geq 0, \quad \sum_j A_{ij} = 1",
    plain="A_ij ≥ 0, Σ_j A_ij = 1",
    says="Softmax acts row by row, so each row of the attention matrix is a set of probabilities: "
    "the matrix is row-stochastic, with a mask or without.",
    correction="",
    why="Rows were summed for heads with and without masks, rotary positions and biases, and for "
    "the weights that a small GPT-2 returns. The sums miss 1 by {row_error} at most and the least "
    "weight is {least_weight}. Softmax divides by the sum of the row, so nothing else can come out; "
    "a mask only takes terms out of that sum.",
    checks=(
        Check(
            "row_error",
            "claim",
            "at most",
            1e-14,
            label="worst row sum, distance from 1, float64",
            because="A sum of up to 12 numbers and one division, each right to 1.1e-16.",
            log=True,
        ),
        Check(
            "least_weight",
            "claim",
            "at least",
            0.0,
            label="smallest weight",
            because="An exponential is never negative, and neither is a quotient of such.",
        ),
        Check(
            "gpt2_row_error",
            "claim",
            "at most",
            1e-6,
            label="worst row sum of GPT-2's own weights, distance from 1",
            because="Sums of 16 float32 numbers, each right to 6e-8.",
            log=True,
        ),
        Check(
            "layers_not_stochastic",
            "claim",
            "at most",
            0,
            label="layers whose rows the measurement finds not to sum to one",
            because="A count: one such layer would refute it.",
        ),
    ),
    seconds=0.07,
)
def measure(seed: int) -> Measured:
    """Sum the rows."""
    import torch

    from leadline.claims.attention._models import hf_model
    from leadline.instruments.attacks.heads import KINDS as ALL
    from leadline.instruments.attacks.heads import Heads
    from leadline.instruments.passes.measurement import measure as measured

    generator = torch.Generator().manual_seed(4100 + seed)
    errors, least = [], []
    for kind in KINDS:
        for n in (2, 5, 12):
            weights = Heads(ALL[kind], 20, n, generator=generator).attention()[0].detach()
            errors.append(float((weights.sum(-1) - 1).abs().max()))
            least.append(float(weights.min()))
    model = hf_model("gpt2", seed=seed, attn_implementation="eager")
    ids = torch.randint(100, (2, 16), generator=generator)
    with torch.no_grad():
        own = torch.stack(model(ids, output_attentions=True).attentions)
    record = measured(model, ids, probes="attention", seed=seed)
    return Measured(
        {
            "row_error": max(errors),
            "least_weight": min(*least, float(own.min())),
            "gpt2_row_error": float((own.double().sum(-1) - 1).abs().max()),
            "layers_not_stochastic": float(
                sum(not one["stochastic"] for one in record.provenance["attention"])
            ),
        }
    )
