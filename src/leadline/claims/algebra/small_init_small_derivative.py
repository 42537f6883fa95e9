"""F' is about 0 because weights are initialised small: how large is F' of untrained branches?

"About 0" stands beside the 1 that it is added to, so it is read as at most a tenth of it, in norm:
sigma_1(F'), as it enters I + F'. The note says it of x + F(x), before it speaks of norms, and names no
init. The claim is measured without norms and with GPT-2's init, the smallest that is in common use
(standard deviation 0.02, outputs divided by sqrt(2L) more), at a width of 64; matrices of the same
entries have larger norms where they are wider. Its reach are branches behind a norm, with
GPT-2's init, Xavier's and that of torch's own layers. The norm before the branch divides by the
standard deviation of the stream, which a small init makes small: what the weights save is given
back. Zero is what zero is made of: ReZero starts with F' = 0.
"""

from __future__ import annotations

import math

import numpy as np

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

WIDTH, DEPTH, LENGTH, TENTH = 64, 12, 8, 0.1
SIZES = {"depth": DEPTH, "width": WIDTH, "heads": 4}
PLACES = ((1, 1), (1, 2), (DEPTH, 1), (DEPTH, 2))
BECAUSE = "About 0 beside a 1 is read as at most a tenth of it."


@claim(
    "small-init-small-derivative",
    group="algebra",
    notes=("shortcuts",),
    title="At the start F' is about zero, because weights are initialised small",
    formula=r"F_i'(x_i) \approx 0",
    plain="F_i' ≈ 0 at initialisation",
    says="It often happens that the derivative of a branch is about zero, because the initial "
    "weights are small.",
    correction="So it is for bare branches whose weights are small for their width. With a norm before "
    "it a branch has a derivative of the order of the identity that it is added to: the norm divides by "
    "the size of the stream, which small weights make small too. A branch that is multiplied by zero at "
    "the start (ReZero) has $F' = 0$.",
    why="The norm of the derivative of untrained branches was measured in the first and the last of 12 "
    "layers. With GPT-2's small init and no norms it is {bare} on average. With a norm before every branch "
    "it is {gpt2}, with Xavier's init {xavier}, with that of torch's own layers {torch}: nothing that "
    "could be left out beside a 1. In the mean over directions it is {spread} with GPT-2's init and "
    "norms. With a gain that starts at zero it is {rezero}.",
    checks=(
        Check(
            "bare", "claim", "at most", TENTH,
            label="mean ‖F'‖, GPT-2's init, no norms", because=BECAUSE, over="mean",
        ),
        Check(
            "gpt2", "reach", "at most", TENTH,
            label="mean ‖F'‖, GPT-2's init", because=BECAUSE, over="mean",
        ),
        Check(
            "xavier", "reach", "at most", TENTH,
            label="mean ‖F'‖, Xavier's init", because=BECAUSE, over="mean",
        ),
        Check(
            "torch", "reach", "at most", TENTH,
            label="mean ‖F'‖, init of torch's layers", because=BECAUSE, over="mean",
        ),
        Check(
            "rezero", "correction", "at most", 1e-12,
            label="largest ‖F'‖, gain 0",
            because="0 times anything is 0; the rest is rounding of J - I.",
        ),
        Check(
            "order_one", "correction", "at least", TENTH,
            label="smallest of the three means",
            because="Of the order of the identity means more than a tenth of it.",
            over="mean",
        ),
        Check(
            "dense", "correction", "near", 1.0, within=0.3,
            label="root mean square of F', by random vectors over by the whole matrix",
            because="With 64 random vectors the square has a standard error of at most the root of "
            "2/64, the norm of half that, 0.09; three of them are allowed for.",
        ),
    ),
    seconds=1.8,
)  # fmt: skip
def measure(seed: int) -> Measured:
    """sigma_1(J - I) of writes of untrained networks."""
    import torch
    from torch import nn

    from leadline.claims.algebra._matrices import norm
    from leadline.claims.algebra._networks import built, matrix_of, stretches_of, tokens_of
    from leadline.instruments.jacobian.measure import jacobian

    def sizes(
        fields: dict[str, object], places: tuple[tuple[int, int | None], ...]
    ) -> tuple[list[float], list[float]]:
        """The norm, and the mean over directions, of F' at some places."""
        model = built({**SIZES, **fields}, seed=seed)
        batch = tokens_of(model, length=LENGTH, seed=seed)
        found = [
            jacobian(
                model, batch, layer=layer, sublayer=sublayer, k=1, probes=8, tolerance=1e-2
            )
            for layer, sublayer in places
        ]  # fmt: skip
        return [float(one.branch[0]) for one in found], [float(one.distance[0]) for one in found]

    def of_torch() -> float:
        """A pre-norm MLP of torch's own layers at a standard normal token."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            branch = nn.Sequential(
                nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(),
                nn.Linear(4 * WIDTH, WIDTH),
            ).double()  # fmt: skip
            x = torch.randn(WIDTH, dtype=torch.float64)
        found = torch.autograd.functional.jacobian(branch, x)
        assert isinstance(found, torch.Tensor)
        return norm(found.numpy())

    def twice() -> float:
        """|F'|_F of the first MLP: estimated, over that of the matrix itself."""
        model = built({**SIZES, "init": "gpt2"}, seed=seed)
        batch = tokens_of(model, length=LENGTH, seed=seed)
        found = jacobian(model, batch, layer=1, sublayer=2, k=1, probes=64, tolerance=1e-2)
        whole = matrix_of(*stretches_of(model, batch).sublayer(1, 2))
        away = float(np.linalg.norm(whole - np.eye(len(whole)))) / math.sqrt(len(whole))
        return float(found.distance[0]) / away

    bare, _ = sizes({"init": "gpt2", "placement": "none"}, PLACES)
    small, spread = sizes({"init": "gpt2"}, PLACES)
    large, _ = sizes({"init": "xavier"}, PLACES)
    zero, _ = sizes({"connection": "rezero"}, ((1, None), (DEPTH, None)))
    means = {
        "gpt2": float(np.mean(small)),
        "xavier": float(np.mean(large)),
        "torch": of_torch(),
    }
    return Measured(
        {
            **means,
            "bare": float(np.mean(bare)),
            "dense": twice(),
            "rezero": max(zero),
            "order_one": min(means.values()),
            "spread": math.sqrt(float(np.mean(np.square(spread)))),
        }
    )
