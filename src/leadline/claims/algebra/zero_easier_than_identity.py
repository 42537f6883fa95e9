"""It is easier to learn F = 0 than F = x: blocks trained to be the identity, with and without skip.

The note says it of a layer that does not matter: without shortcut it has to learn F(x) = x, with it
F(x) = 0, and that is far simpler. Trained are one block and a row of 12 (`reproduce` learning-identity:
ReLU blocks, mean squared error, 400 steps of Adam). The claim is one block from either start, and the
row from the start of torch's own layers, the usual one. Its reach is the row from a start that keeps
the mean square of a network WITHOUT skip, which with skip doubles it in every block. Compared is log10
of the error without skip over that with it: above 0, F = 0 was learned better.
"""

from __future__ import annotations

import math

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture

ROW = 12
MUCH = 0.3
BECAUSE = "Far simpler is read as an error that is at most half as large: log10 2 = 0.3."


@claim(
    "zero-easier-than-identity",
    group="algebra",
    notes=("shortcuts", "card"),
    title="Learning F = 0 is easier than learning F = x",
    formula=r"x + F(x) = x \;\Leftrightarrow\; F(x) = 0",
    plain="x + F(x) = x needs F = 0;  without skip F(x) = x",
    says="If a layer should leave its input alone, a layer without shortcut has to learn the "
    "identity, which is hard. With shortcut it only has to learn zero, which is far easier.",
    correction="For one block, and for a row of blocks whose branches start small. From a start that "
    "keeps the signal of a network without skip, every block with skip doubles the mean square, the "
    "row starts exploded, and in the same number of steps the row without skip gets further.",
    why="Blocks were trained to copy their input. One block with skip ends with an error of {one_skip}, "
    "one without with {one_plain}. Twelve blocks from torch's usual start reach {row_skip} with skip "
    "and stay at {row_plain} without, as bad as always answering 0. But from a start with larger "
    "weights the twelve with skip end at {kept_skip}, those without at {kept_plain}: the start decides.",
    checks=(
        Check(
            "one_small", "claim", "at least", MUCH,
            label="one block, small start: log10 of the gain by the skip",
            because=BECAUSE, over="mean",
        ),
        Check(
            "one_kept", "claim", "at least", MUCH,
            label="one block, large start: log10 of the gain",
            because=BECAUSE, over="mean",
        ),
        Check(
            "row_small", "claim", "at least", MUCH,
            label="12 blocks, small start: log10 of the gain",
            because=BECAUSE, over="mean",
        ),
        Check(
            "row_kept", "reach", "at least", MUCH,
            label="12 blocks, large start: log10 of the gain",
            because=BECAUSE, over="mean",
        ),
        Check(
            "behind", "correction", "at most", 0.0,
            label="12 blocks, large start: the same, as a loss",
            because="Further is read as a smaller error: the logarithm of the ratio is below 0.",
            over="mean",
        ),
        Check(
            "exploded", "correction", "at least", 100.0,
            label="first error of 12 blocks with skip, large start",
            because="Exploded is read as a hundred times the error of always answering 0, which is 1.",
            log=True,
        ),
    ),
    seconds=6.0,
)  # fmt: skip
def measure(seed: int) -> Measured:
    """Train the eight cases of one seed."""
    from leadline.experiments.learning_identity import STARTS, Case, Setting, trained

    setting = Setting(blocks=ROW, seeds=1, seed=seed)
    found: dict[tuple[int, str, bool], Case] = {
        (blocks, start, skip): trained(setting, blocks=blocks, skip=skip, start=start)
        for blocks in (1, ROW)
        for start in STARTS
        for skip in (False, True)
    }

    def gain(blocks: int, start: str) -> float:
        plain, skip = (
            float(found[blocks, start, with_skip].error[0]) for with_skip in (False, True)
        )
        return math.log10(plain / skip)

    steps = tuple(float(step) for step in setting.readings)
    names = {"small": "small start", "kept": "large start"}
    return Measured(
        {
            "one_small": gain(1, "small"),
            "one_kept": gain(1, "kept"),
            "row_small": gain(ROW, "small"),
            "row_kept": gain(ROW, "kept"),
            "behind": gain(ROW, "kept"),
            "one_skip": float(found[1, "small", True].error[0]),
            "one_plain": float(found[1, "small", False].error[0]),
            "row_skip": float(found[ROW, "small", True].error[0]),
            "row_plain": float(found[ROW, "small", False].error[0]),
            "kept_skip": float(found[ROW, "kept", True].error[0]),
            "kept_plain": float(found[ROW, "kept", False].error[0]),
            "exploded": float(found[ROW, "kept", True].curve[0, 0]),
        },
        Picture(
            "step",
            "mean squared error",
            {
                f"{'1 block' if blocks == 1 else f'{blocks} blocks'}, "
                f"{'skip' if skip else 'no skip'}, {names[start]}": (
                    steps,
                    tuple(float(value) for value in case.curve[:, 0]),
                )
                for (blocks, start, skip), case in found.items()
            },
            y_log=True,
            faint=tuple(
                f"{'1 block' if blocks == 1 else f'{blocks} blocks'}, "
                f"{'skip' if skip else 'no skip'}, {names[start]}"
                for blocks, start, skip in found
                if start == "kept"
            ),
        ),
    )
