"""In multitask fine-tuning old tasks keep flowing through the residual and hinder adaptation.

Interference is how much higher the loss of the new task ends when the old one is trained too, by
turns, with as many batches of the new one. If the residual path were what carries it, a residual
four times as strong would carry more: the claim is that interference grows by half of itself at
least. That there is some interference is the corrected statement.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check
from leadline.claims.training._tuning import ADAPTERS, DESIGNS, STRONG


@claim(
    "old-tasks-leak-through-residual",
    group="training",
    notes=("summary",),
    title="In multitask tuning old tasks leak through the residual",
    formula=r"x_{l+1} = r\, x_l + F(x_l): \quad \text{interference grows with } r",
    plain="x' = r x + F(x): interference grows with r",
    says="In multitask fine-tuning old tasks keep flowing through the residual path and hinder "
    "the adaptation.",
    correction="Training the old task too costs the new one something. A stronger residual does "
    "not make it cost half as much again.",
    why="All weights of a trained model were tuned on a new task, alone and by turns with the old "
    "one. Training both leaves the new task {plain:.3f} nats higher with residual weight 1 and "
    "{strong:.3f} with weight 4 (means of pre-norm and post-norm). Trained on the new task alone, "
    "the loss of the old one rises by {forgot_plain:.2f} nats with weight 1 and by "
    "{forgot_strong:.2f} with weight 4.",
    checks=(
        Check(
            "growth", "claim", "at least", 1.5, over="mean",
            label="interference with weight 4 over that with weight 1, mean of two designs",
            because="A path that is four times as strong and carries the trouble would make it "
            "half as large again at least.",
        ),
        Check(
            "plain", "correction", "at least", 0.01, over="mean",
            label="interference with weight 1, mean of two designs",
            because="A hundredth of a nat is seen on 4,096 held-out bytes that both runs share.",
        ),
    ),
    seconds=0.001,
    needs=(ADAPTERS,),
)  # fmt: skip
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """Interference of two tasks by residual weight."""
    found = trials[ADAPTERS.name]

    def mean(weight: str, above: str, below: str) -> float:
        pairs = [(found[design][weight][above], found[design][weight][below]) for design in DESIGNS]
        return sum(a - b for a, b in pairs) / len(pairs)

    heavy = f"{STRONG:g}"
    plain, strong = (mean(weight, "new_both", "new_alone") for weight in ("1", heavy))
    forgot_plain, forgot_strong = (mean(weight, "old_alone", "base") for weight in ("1", heavy))
    return Measured(
        {
            "plain": plain,
            "strong": strong,
            "growth": strong / plain,
            "forgot_plain": forgot_plain,
            "forgot_strong": forgot_strong,
        }
    )
