"""Residual connections were introduced to solve vanishing gradients: what a paper was written for.

The note says it of ResNet. It is a sentence about the history of an idea, read as what the paper gives
as its reason; nothing that is measured can decide it. He et al. 2015, arXiv 1512.03385.
"""

from __future__ import annotations

from leadline.claims.catalog import uncheckable

uncheckable(
    "resnet-against-vanishing-gradients",
    group="algebra",
    notes=("textbook",),
    title="Residual connections were introduced to solve vanishing gradients",
    says="Deep networks are hard to train because gradients vanish or explode, and residual connections "
    "were introduced in 2015 (ResNet) to solve this.",
    why="What a method was introduced for is history, and no measurement decides it. The paper itself (He "
    "et al. 2015, arXiv 1512.03385) names another reason: deeper plain networks reach a larger training "
    "error, which it calls degradation. In section 4.1 it holds vanishing gradients to be an unlikely "
    "cause, because its plain networks are trained with batch normalisation. What the shortcut does to "
    "gradients can be measured, and other claims do.",
)
