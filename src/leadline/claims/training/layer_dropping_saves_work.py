"""Residual connections let layers be dropped during training, for efficiency.

LayerDrop (Fan et al. 2019, arXiv 1909.11556) leaves every layer out of an update with probability
1/2. Work is counted, not timed: the share of layers that are computed. The claim: half of the work
of an update is saved, and with half of the layers dropped the model trains, given the work of a
whole one. Efficiency says more, and that is the reach: for the same work the loss is lower than
without dropping.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.claims.catalog import Measured, Trial, claim
from leadline.claims.claim import Check
from leadline.claims.training._cells import cell, fields_of, gain, trains
from leadline.claims.training._pictures import losses

PLAIN, SAME_STEPS = cell("pre", 12), cell("layerdrop", 12)
SAME_WORK = cell("layerdrop", 12, steps=600)
DEPTH, COUNTED = 12, 30
"""Layers, and the updates in which computed branches are counted."""


def _count(seed: int) -> Mapping[str, Any]:
    """The share of the branches that is computed in training, counted as they run."""
    from leadline.lab.fields import split_fields
    from leadline.lab.tasks import build_task
    from leadline.lab.trainer import Trainer, model_for
    from leadline.lab.training import Training
    from leadline.parts import Recipe

    fields = fields_of("layerdrop", DEPTH, steps=COUNTED)
    of_recipe, of_training = split_fields({**fields, "gauges": 0})
    task = build_task(of_training["task"])
    model = model_for(Recipe.from_json(of_recipe), task, seed=seed)
    computed = 0

    def note(module: Any, _given: Any, _output: Any) -> None:
        nonlocal computed
        computed += int(module.training)

    for sublayer in model.sublayers():
        sublayer.branch.register_forward_hook(note)
    Trainer(model, task, Training.from_json(of_training), seed=seed).run()
    return {"share": computed / (COUNTED * 2 * DEPTH)}


COUNT = Trial("computed share of layerdrop", _count, seconds=1.0)


@claim(
    "layer-dropping-saves-work",
    group="training",
    notes=("card",),
    title="Layers can be dropped during training, for efficiency",
    formula=r"x_{l+1} = x_l + b_l F_l(x_l), \quad b_l \in \{0, 1\}",
    plain="x + bF(x), b = 0 or 1 at random",
    says="Residual connections make it possible to drop layers during training, which is more "
    "efficient.",
    correction="Layers can be dropped, and the work is saved. For the same work the model is "
    "about as good as without dropping, not better.",
    why="With each layer dropped with probability one half, {share:.2f} of the layers are "
    "computed. After as many updates the model of 12 layers ends {same_steps:.2f} nats below the "
    "entropy of the byte frequencies, the whole one {plain:.2f}. With twice the updates, for "
    "the same work, it ends {same_work:.2f} below. An update costs half, and it takes about "
    "twice as many.",
    checks=(
        trains("same_work", "claim", "gain with half of the layers dropped, same work"),
        Check(
            "share", "claim", "near", 0.5, within=0.1, label="share of the layers computed",
            because="360 layers are drawn with probability 1/2: a standard error of 0.026.",
        ),
        Check(
            "advantage", "reach", "at least", 0.05,
            label="gain with dropping minus without, same work",
            because="More efficient is read as 0.05 nats better for the same work, with every "
            "seed, as all runs of this group are judged; the difference varies by about 0.02.",
        ),
        Check(
            "difference", "correction", "at most", 0.1,
            label="gain with dropping from that without, same work",
            because="About as good is read as within 0.1 nats, a sixth of what is learned.",
        ),
    ),
    source="Fan et al. 2019, arXiv 1909.11556",
    seconds=0.01,
    needs=(PLAIN, SAME_STEPS, SAME_WORK, COUNT),
)  # fmt: skip
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """Gains for the same updates and for the same work, and the share computed."""
    runs = {
        "whole": trials[PLAIN.name],
        "half dropped, same updates": trials[SAME_STEPS.name],
        "half dropped, same work": trials[SAME_WORK.name],
    }
    plain, same_steps, same_work = map(gain, runs.values())
    return Measured(
        {
            "plain": plain,
            "same_steps": same_steps,
            "same_work": same_work,
            "advantage": same_work - plain,
            "difference": abs(same_work - plain),
            "share": float(trials[COUNT.name]["share"]),
        },
        losses(runs),
    )
