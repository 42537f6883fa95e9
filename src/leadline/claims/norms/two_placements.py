"""What Post-LN and Pre-LN are: LN(x + F(x)) in the first Transformer, x + F(LN(x)) in later models.

Checked on torch's own encoder layer, which implements the paper by default (norm_first=False) and
Pre-LN on request, on Leadline's placements of these names, and on BERT and GPT-2, whose placements
are read from the tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check
from leadline.claims.norms._placements import PLACEMENTS_OF, share

WIDTH, HEADS, LENGTH = 32, 4, 10


@claim(
    "two-placements",
    group="norms",
    notes=("shortcuts", "summary", "textbook"),
    title="Post-LN is LN(x + F(x)), Pre-LN is x + F(LN(x))",
    formula=r"x_{l+1} = LN(x_l + F(x_l)), \quad x_{l+1} = x_l + F(LN(x_l))",
    plain="Post-LN: LN(x + F(x)); Pre-LN: x + F(LN(x))",
    says="The first Transformer norms after the addition, Post-LN; modern models norm what the "
    "sublayer reads, Pre-LN.",
    correction="",
    why="Torch's own layer of the first Transformer was recomputed from its parts: the Post-LN "
    "formula gives its output (relative error {torch_post}), the Pre-LN formula that of its other "
    "mode ({torch_pre}). Leadline's two placements follow the same formulas ({own}). Read from "
    "their tensors, BERT is Post-LN and GPT-2 is Pre-LN.",
    checks=(
        Check(
            "torch_post", "claim", "at most", 1e-12,
            label="Post-LN formula against torch's Transformer layer, relative",
            because="The same sums in float64, to rounding.",
            log=True,
        ),
        Check(
            "torch_pre", "claim", "at most", 1e-12,
            label="Pre-LN formula against torch's layer with norm_first, relative",
            because="The same sums in float64, to rounding.",
            log=True,
        ),
        Check(
            "own", "claim", "at most", 1e-12,
            label="both formulas against Leadline's placements, relative",
            because="The same sums in float64, to rounding.",
            log=True,
        ),
        Check(
            "families", "claim", "at least", 1.0,
            label="BERT is Post-LN and GPT-2 is Pre-LN (1 is both)",
            because="Two models: yes or no.",
        ),
    ),
    source="Vaswani et al. 2017, arXiv 1706.03762",
    seconds=0.02,
    seeded=False,
    needs=(PLACEMENTS_OF,),
)  # fmt: skip
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """Recompute layers of torch and of Leadline from their parts."""
    import torch

    from leadline.experiments.gradient_flow.starts import seen_writes
    from leadline.parts import Transformer

    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(2, LENGTH, WIDTH, generator=rng, dtype=torch.float64)
    numbers: dict[str, float] = {}
    for name, first in (("torch_post", False), ("torch_pre", True)):
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            layer = torch.nn.TransformerEncoderLayer(
                WIDTH, HEADS, 64, dropout=0.0, batch_first=True, norm_first=first,
                dtype=torch.float64,
            )  # fmt: skip
        layer.train()  # the plain way of computing, not the fused one; there is no dropout
        with torch.no_grad():
            if first:
                y = x + _attention(layer, layer.norm1(x))
                y = y + _mlp(layer, layer.norm2(y))
            else:
                y = layer.norm1(x + _attention(layer, x))
                y = layer.norm2(y + _mlp(layer, y))
            numbers[name] = float((layer(x) - y).norm() / y.norm())
    errors: list[float] = []
    ids = torch.randint(0, 50, (2, LENGTH), generator=rng)
    for placement in ("post", "pre"):
        model = Transformer(
            depth=1, width=WIDTH, heads=HEADS, vocabulary=50, context=LENGTH, placement=placement,
            init="xavier", seed=seed,
        )  # fmt: skip
        model = model.double().eval()
        with torch.no_grad(), seen_writes(model) as seen:
            model.stream(ids)
            y = seen.states[0]
            for sublayer, run in zip(model.sublayers(), seen.runs, strict=True):
                norm = sublayer.enter if placement == "pre" else sublayer.settle
                assert norm is not None
                if placement == "pre":
                    y = y + sublayer.branch(norm(y), run)
                else:
                    y = norm(y + sublayer.branch(y, run))
        errors.append(float((seen.states[-1] - y).norm() / y.norm()))
    found = trials[PLACEMENTS_OF.name]["placements"]
    both = (
        share(found, ("bert",), placements=("post",)),
        share(found, ("gpt2",), placements=("pre",)),
    )
    return Measured({**numbers, "own": max(errors), "families": min(both)})


def _attention(layer: Any, x: Any) -> Any:
    return layer.self_attn(x, x, x, need_weights=False)[0]


def _mlp(layer: Any, x: Any) -> Any:
    return layer.linear2(layer.linear1(x).relu())
