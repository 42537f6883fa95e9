"""LayerNorm reads one token and nothing else.

Statements of the note: only statistics of the row; no running averages; the same with any batch
size; the same in training and in inference, one token at a time included; unlike BatchNorm. Each
is a difference that must be rounding (or, for BatchNorm, must not be). Decoding token by token
with kept keys and values is tried on a whole pre-norm model.
"""

from __future__ import annotations

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

WIDTH, EXAMPLES, LENGTH = 64, 16, 12


@claim(
    "layernorm-batch-free",
    group="norms",
    notes=("deep-dive",),
    title="LayerNorm does not depend on the batch and is the same in training and in use",
    formula=r"LN(X)_i = LN(x_i)",
    plain="LN(X)_i = LN(x_i)",
    says="LayerNorm uses the statistics of one row alone: no running averages are kept, the batch "
    "size does not matter, and training and inference, even of one token at a time, are alike; "
    "BatchNorm differs in all of this.",
    correction="",
    why="A token was normed alone and in a batch of {examples:.0f}: the outputs differ by "
    "{alone}. Training mode and use differ by {modes}, and a whole model gives the same numbers "
    "token by token as all at once (relative difference {steps}). LayerNorm keeps {kept:.0f} "
    "running averages. BatchNorm on the same numbers differs by {batch_norm:.2f} between the two "
    "modes.",
    checks=(
        Check(
            "alone", "claim", "at most", 1e-12,
            label="token alone against the same token in a batch",
            because="The same sums in float64; their order may differ.",
            log=True,
        ),
        Check(
            "modes", "claim", "at most", 1e-12,
            label="training mode against use",
            because="The same formula in both modes.",
            log=True,
        ),
        Check(
            "kept", "claim", "at most", 0.0,
            label="running averages kept by LayerNorm",
            because="A count: the note says none.",
        ),
        Check(
            "steps", "claim", "at most", 1e-10,
            label="model token by token against all at once, relative",
            because="Float64 through four layers: rounding of products of other shapes.",
            log=True,
        ),
        Check(
            "batch_norm", "claim", "at least", 0.01,
            label="BatchNorm: training mode against use",
            because="A difference that is to be seen is far above rounding.",
        ),
    ),
    source="Ba, Kiros, Hinton 2016, arXiv 1607.06450",
    seconds=0.03,
)  # fmt: skip
def measure(seed: int) -> Measured:
    """Norm the same tokens alone, together, in both modes; decode with a cache."""
    import torch

    from leadline.claims.norms._layernorm import layernorm
    from leadline.parts import Transformer
    from leadline.parts.generation import Cache

    rng = torch.Generator().manual_seed(seed)
    x = 2.0 * torch.randn(EXAMPLES, LENGTH, WIDTH, generator=rng, dtype=torch.float64) + 0.5
    norm = layernorm(WIDTH)
    batch_norm = torch.nn.BatchNorm1d(WIDTH).double()
    model = Transformer(
        depth=4, width=WIDTH, heads=4, vocabulary=50, context=LENGTH, init="xavier", seed=seed
    )  # fmt: skip
    model = model.double().eval()
    ids = torch.randint(0, 50, (2, LENGTH), generator=rng)
    with torch.no_grad():
        together = norm(x)
        alone = torch.stack([torch.stack([norm(token) for token in one]) for one in x])
        trained, used = norm.train()(x), norm.eval()(x)
        flat = x.flatten(0, 1)
        theirs = batch_norm.train()(flat) - batch_norm.eval()(flat)
        whole = model(ids)
        cache = Cache(LENGTH)
        steps = torch.cat([model(ids[:, i : i + 1], cache=cache) for i in range(LENGTH)], 1)
    return Measured(
        {
            "examples": float(EXAMPLES),
            "alone": float((together - alone).abs().max()),
            "modes": float((trained - used).abs().max()),
            "kept": float(len(list(norm.buffers()))),
            "steps": float((whole - steps).abs().max() / whole.abs().max()),
            "batch_norm": float(theirs.abs().max()),
        }
    )
