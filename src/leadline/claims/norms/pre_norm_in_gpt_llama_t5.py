"""Pre-LN in GPT, LLaMA and T5.

"claim": GPT-2 (the first GPT that anybody means by "modern"), Llama, T5. "reach": the name GPT
without a number covers GPT-1, which is Post-LN. The norm of Llama and T5 is RMSNorm, which does not
subtract the mean: a constant added to all features changes its output, that of LayerNorm not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check
from leadline.claims.norms._placements import PLACEMENTS_OF, share


@claim(
    "pre-norm-in-gpt-llama-t5",
    group="norms",
    notes=("summary",),
    title="GPT, LLaMA and T5 use Pre-LN",
    formula=r"x_{l+1} = x_l + F(LN(x_l))",
    plain="GPT, LLaMA, T5: x + F(LN(x))",
    says="Pre-LN is used in GPT, LLaMA and T5.",
    correction="GPT-2 and later, Llama and T5 put the norm before the branch; GPT-1 is Post-LN. "
    "The norm of Llama and T5 is RMSNorm, which does not subtract the mean.",
    why="Read from tiny models with random weights, every write of GPT-2, Llama and T5 has its "
    "norm before the branch. GPT-1 has it after the addition. Adding a constant to all features "
    "leaves the norm of GPT-2 as it was ({gpt2_shift:.0e}) and changes those of Llama and T5 by "
    "{rms_shift:.2f} of their output: these are RMSNorms.",
    checks=(
        Check(
            "modern", "claim", "at least", 1.0,
            label="share of GPT-2, Llama, T5 with the norm before every branch",
            because="The note names them, so all of them.",
        ),
        Check(
            "gpt1", "reach", "at least", 1.0,
            label="GPT-1 has the norm before every branch (1 is yes)",
            because="GPT without a number: one model, yes or no.",
        ),
        Check(
            "gpt2_shift", "correction", "at most", 1e-4,
            label="change of GPT-2's norm when a constant is added to all features",
            because="LayerNorm removes the mean; the rest is rounding in float32.",
            log=True,
        ),
        Check(
            "rms_shift", "correction", "at least", 0.01,
            label="the same of Llama's and T5's norm, the smaller",
            because="RMSNorm keeps the mean: a change far above rounding.",
        ),
    ),
    source="Touvron et al. 2023, arXiv 2302.13971; Raffel et al. 2019, arXiv 1910.10683",
    seconds=0.05,
    seeded=False,
    needs=(PLACEMENTS_OF,),
)  # fmt: skip
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """Placements, and what the norms do to a constant."""
    found = trials[PLACEMENTS_OF.name]["placements"]
    changes = {name: _shift_change(name, seed) for name in ("gpt2", "llama", "t5")}
    return Measured(
        {
            "modern": share(found, ("gpt2", "llama", "t5"), placements=("pre",)),
            "gpt1": share(found, ("openai-gpt",), placements=("pre",)),
            "gpt2_shift": changes["gpt2"],
            "rms_shift": min(changes["llama"], changes["t5"]),
        }
    )


def _shift_change(name: str, seed: int) -> float:
    """By how much a constant changes the output of the first norm of a model type."""
    import torch

    from leadline.testing.zoo import ZOO

    with torch.random.fork_rng(devices=[]):
        model = ZOO[name].build(seed).eval()
    norm = next(
        module
        for path, module in model.named_modules()
        if path.rsplit(".", 1)[-1] in ("ln_1", "input_layernorm", "layer_norm")
    )
    weight: Any = norm.weight
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(4, weight.shape[0], generator=rng)
    with torch.no_grad():
        before, after = norm(x), norm(x + 1.0)
    return float((after - before).norm() / before.norm())
