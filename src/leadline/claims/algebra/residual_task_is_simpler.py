"""Learning the difference is a simpler task than learning the whole map: for which maps?

The note says that residual connections turn the learning of a map into the learning of a residual,
a much simpler problem. What is simpler depends on the map: x + F(x) = A x needs F = A - I, and a block
without skip F = A. The claim is a map near the identity, which is the case that the note argues
with (an input that is good already and needs small fixes): A = I + 0.1 G. A reader carries it to any
map: A = 0 and A = -I are its reach. Trained is one ReLU block of `reproduce` learning-identity, with
the target A x in the place of x. With A = 0 the roles are exchanged: F = 0 without skip, F = -x with.
"""

from __future__ import annotations

import math

import numpy as np

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture

STEPS, NEAR = 300, 0.1
MUCH = "Much simpler is read as an error that is at most half as large: log10 2 = 0.3."


@claim(
    "residual-task-is-simpler",
    group="algebra",
    notes=("textbook",),
    title="Learning the residual is a simpler task than learning the whole map",
    formula=r"x + F(x) = A x \;\Leftrightarrow\; F = A - I",
    plain="x + F(x) = A x: F = A - I is easier than F = A",
    says="Residual connections change the task itself: a layer learns the difference between input "
    "and wanted output, which is a much simpler problem than the whole map.",
    correction="It is simpler where the wanted map is near the identity. Where it is near zero the "
    "residual is the harder task: then the branch has to learn to undo the skip.",
    why="One block was trained to give a matrix times its input. For a matrix near the identity the "
    "error with skip is {near_times:.0f} times smaller. For the zero map it is the other way round: "
    "without skip the block has nothing to learn, with skip it must learn $-x$, and its error is "
    "{zero_times:.0f} times larger. A skip is a bet on maps near the identity.",
    checks=(
        Check(
            "near", "claim", "at least", 0.3,
            label="map near the identity: log10 of the gain by the skip",
            because=MUCH, over="mean",
        ),
        Check(
            "zero", "reach", "at least", 0.3,
            label="zero map: log10 of the gain",
            because=MUCH, over="mean",
        ),
        Check(
            "mirror", "reach", "at least", 0.3,
            label="map -x: log10 of the gain",
            because=MUCH, over="mean",
        ),
        Check(
            "exchanged", "correction", "at most", -0.3,
            label="zero map: log10 of the gain, as a loss",
            because="The harder task is read as an error that is at least twice as large.",
            over="mean",
        ),
    ),
    seconds=1.0,
)  # fmt: skip
def measure(seed: int) -> Measured:
    """Train one block with and without skip on three maps."""
    import torch

    from leadline.experiments.learning_identity import JUDGED, Setting, drawn, mapped

    setting = Setting(steps=STEPS, seeds=1, seed=seed)
    width = setting.width
    rng = np.random.default_rng([seed, 110])
    change = torch.from_numpy(rng.normal(size=(width, width)) / math.sqrt(width)).float()
    eye = torch.eye(width)
    maps = {"near": eye + NEAR * change, "zero": 0.0 * eye, "mirror": -eye}
    errors: dict[tuple[str, bool], float] = {}
    lines: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {}
    names = {"near": "near the identity", "zero": "zero map", "mirror": "map -x"}
    for name, target in maps.items():
        for skip in (False, True):
            weights = drawn(setting, blocks=1, start="small")
            flat = [one.requires_grad_() for block in weights for one in block]
            adam = torch.optim.Adam(flat, lr=setting.rate)
            generator = torch.Generator().manual_seed(1000 * seed + 2)
            curve: list[float] = []
            for step in range(STEPS + 1):
                last = step == STEPS
                count = JUDGED if last else setting.batch
                x = torch.randn(1, count, width, generator=generator)
                y, _ = mapped(x, weights, skip=skip)
                error = (y - x @ target).square().mean()
                if step in setting.readings:
                    curve.append(error.item())
                if last:
                    errors[name, skip] = error.item()
                    break
                adam.zero_grad()
                error.backward()
                adam.step()
            label = f"{names[name]}, {'skip' if skip else 'no skip'}"
            lines[label] = (tuple(float(at) for at in setting.readings), tuple(curve))
    gains = {name: math.log10(errors[name, False] / errors[name, True]) for name in maps}
    return Measured(
        {
            **gains,
            "exchanged": gains["zero"],
            "near_times": 10.0 ** gains["near"],
            "zero_times": 10.0 ** -gains["zero"],
        },
        Picture("step", "mean squared error", lines, y_log=True),
    )
