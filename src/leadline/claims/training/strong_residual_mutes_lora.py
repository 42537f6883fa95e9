"""A too strong residual keeps LoRA's change from influencing the output.

Residual weights 1 and 4 (see `_tuning`), LoRA of rank 4 on every map of the branches. The claim:
what a change of the updates moves of the output, |change of the logits| over |change of the
updates|, is smaller with the strong residual. A reader takes from it that adaptation suffers: the
reach is that LoRA lowers the loss of the new task by a fifth less or worse. How much less it does
differs between seeds; the corrected statement is that it is less than half of what is heard less.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check
from leadline.claims.training._tuning import DESIGNS, LORA, STRONG


@claim(
    "strong-residual-mutes-lora",
    group="training",
    notes=("summary",),
    title="A strong residual keeps LoRA from influencing the output",
    formula=r"x_{l+1} = r\, x_l + F(x_l) + \Delta F(x_l), \quad r \text{ large}",
    plain="x' = r x + F(x) + ΔF(x), r large: ΔF is not heard",
    says="In low-rank adaptation a too strong residual hinders the change from influencing the "
    "output.",
    correction="Per unit of change the output moves less. The training makes up for most "
    "of it.",
    why="Models with residual weight 1 and 4 were adapted by LoRA to the same text read "
    "backwards. With weight 4 a change of the updates moves the output {pre_output:.2f} times as "
    "much as with weight 1 in pre-norm, {post_output:.2f} times in post-norm. Yet the loss of the "
    "new task falls {pre_learned:.2f} times as far in pre-norm and {post_learned:.2f} times in "
    "post-norm. To be heard so much less did not mean to learn so much less.",
    checks=(
        Check(
            "output", "claim", "at most", 0.8,
            label="output per change, weight 4 over weight 1, the larger of two designs",
            because="Hindered is read as a fifth less at least.",
        ),
        Check(
            "learned", "reach", "at most", 0.8,
            label="fall of the new task's loss, weight 4 over weight 1, the larger of two designs",
            because="Hindered is read as a fifth less at least.",
        ),
        Check(
            "made_up", "correction", "at least", 0.0,
            label="fall of the loss minus the middle between output per change and 1, the smaller "
            "of two designs",
            because="To make up for most is to get from the output per change more than half of "
            "the way back to 1.",
        ),
    ),
    source="Hu et al. 2021, arXiv 2106.09685, for LoRA",
    seconds=0.001,
    needs=(LORA,),
)  # fmt: skip
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """Output per change, and what is learned, with a strong residual over a plain one."""
    found = trials[LORA.name]
    outputs: list[float] = []
    learned: list[float] = []
    for design in DESIGNS:
        plain, strong = found[design]["1"], found[design][f"{STRONG:g}"]
        outputs.append(strong["output"] / plain["output"])
        learned.append((strong["before"] - strong["after"]) / (plain["before"] - plain["after"]))
    return Measured(
        {
            "pre_output": outputs[0],
            "post_output": outputs[1],
            "pre_learned": learned[0],
            "post_learned": learned[1],
            "output": max(outputs),
            "learned": max(learned),
            "made_up": min(
                fall - (1 + heard) / 2 for fall, heard in zip(learned, outputs, strict=True)
            ),
        }
    )
