"""Models that were trained: how fast, their gradients, what is inside, and how they are adapted.

The runs are those of `training_runs`. Speed is the update from which on a model trains (held-out
loss, read every 20 updates), compared where both train, at 2 and 3 layers; where one never does,
all of its updates count, so the number is then too small. The reach of residual-converges-faster is
post-norm beside no skip at 6 layers, where one trains and the other does not, so gains are
compared; that of layernorm-speeds-convergence a network without norms and with updates weighted by
1/sqrt(2 L): if norms as such were what is fast, that one would be slower too. LayerDrop (Fan et al.
2019, arXiv 1909.11556) leaves every layer out of an update with probability 1/2; work is counted,
not timed, as the share of the branches that are computed, and efficiency says more than that it is
saved: for the same work the loss is lower (its reach).

|g_0| / |g_L| is the gradient of the loss at the stream before the first layer over that after the
last. The notes speak of the gradient that training uses, so claims are read after training and the
reach before the first update, where a product of small factors would have to show. Strong is at
least a tenth, tiny less than a hundredth, vanished less than a thousandth of the gradient at the
end. Uniform is max_l |g_l| / min_l |g_l|; at 6 layers both placements train, and the sentence would
have to hold there too if it were about the placement.

A layer that is left out hands its input on (the ablation of `measure`). The card says that some
layers can be turned off (the claim: the one missed least costs less than 0.05 nats at 12 layers)
and that this means f(x) = 0 or nearly so (the reach). What came in is kept where a linear map still
reads x_0 from the stream after the last layer, R^2 on held-out tokens (the probe `recall`).

Adaptation, as in the experiment `fine-tuning`: x' = r x + u with r = 1 and 4, in pre-norm as x + u
/ r, which is the same up to a factor of the stream that the next norm takes away, in post-norm as
N(r x + u). A base is trained on a text, then adapted to the same text read backwards: with LoRA of
rank 4 on every map of the branches, with bottleneck adapters, with all weights, and with all
weights on both tasks by turns. What the notes list under "when a residual hinders" must come from
the residual, so a stronger one must hinder more: output per change is |change of the logits| over
|change of the updates|; the share of adapters is how far they lower the loss of the new task over
how far all weights do; interference is how much higher the new task ends when the old one is
trained too, with as many batches of the new one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from leadline.claims.catalog import Measured, Results, Trial, measures
from leadline.claims.claim import Picture
from leadline.claims.measure.training_runs import (
    Runs,
    cell,
    cosines_of,
    fields_of,
    gain_of,
    profile_of,
    ratios_of,
    slowdown,
)

if TYPE_CHECKING:
    from leadline.experiments.fine_tuning.adapting import Tuning
    from leadline.parts import Transformer

SHALLOW_PAIRS = Runs(
    skip_2=(cell("pre", 2), "2 layers, skip"),
    none_2=(cell("no skip", 2, steps=600), "2 layers, no skip"),
    skip_3=(cell("pre", 3), "3 layers, skip"),
    none_3=(cell("no skip", 3, steps=600), "3 layers, no skip"),
    post_6=(cell("post", 6), ""),
    none_6=(cell("no skip", 6), ""),
)


@measures("residual-converges-faster", needs=SHALLOW_PAIRS.trials)
def residual_converges_faster(seed: int, results: Results) -> Measured:
    """Compare how many updates each form needs until it trains."""
    runs = SHALLOW_PAIRS.read(results)
    return Measured(
        two=slowdown(runs["none_2"], runs["skip_2"]),
        three=slowdown(runs["none_3"], runs["skip_3"]),
        post=gain_of(runs["post_6"]) - gain_of(runs["none_6"]),
        picture=SHALLOW_PAIRS.losses(results),
    )


NORMS_OR_NOT = Runs(
    norms=(cell("pre", 3), "pre-norm, 3 layers"),
    bare=(cell("no norm", 3), "no norms, 3 layers"),
    deep=(cell("pre", 24), "pre-norm, 24 layers"),
    weighted=(cell("weighted, no norm", 24), "no norm, weighted, 24 layers"),
    bare_deep=(cell("no norm", 12), ""),
)


@measures("layernorm-speeds-convergence", needs=NORMS_OR_NOT.trials)
def layernorm_speeds_convergence(seed: int, results: Results) -> Measured:
    """Compare how many updates are needed with norms and without."""
    runs = NORMS_OR_NOT.read(results)
    return Measured(
        bare=slowdown(runs["bare"], runs["norms"]),
        weighted=slowdown(runs["weighted"], runs["deep"]),
        bare_deep=gain_of(runs["bare_deep"]),
        picture=NORMS_OR_NOT.losses(results),
    )


def _count_computed(seed: int) -> Mapping[str, Any]:
    """Return the share of the branches that is computed in training, counted as they run."""
    from leadline.lab.fields import split_fields
    from leadline.lab.tasks import build_task
    from leadline.lab.trainer import Trainer, model_for
    from leadline.lab.training import Training
    from leadline.parts import Recipe

    depth, updates = 12, 30
    fields = fields_of("layerdrop", depth, steps=updates)
    of_recipe, of_training = split_fields({**fields, "gauges": 0})
    task = build_task(of_training["task"])
    model = model_for(Recipe.from_json(of_recipe), task, seed=seed)
    computed = 0

    def note(module: Any, _input: Any, _output: Any) -> None:
        nonlocal computed
        computed += int(module.training)

    for sublayer in model.sublayers():
        sublayer.branch.register_forward_hook(note)
    Trainer(model, task, Training.from_json(of_training), seed=seed).run()
    return {"share": computed / (updates * 2 * depth)}


COMPUTED_SHARE = Trial("computed share of layerdrop", _count_computed, seconds=1.0)
LAYERDROP = Runs(
    plain=(cell("pre", 12), "whole"),
    same_steps=(cell("layerdrop", 12), "half dropped, same updates"),
    same_work=(cell("layerdrop", 12, steps=600), "half dropped, same work"),
)


@measures("layer-dropping-saves-work", needs=(*LAYERDROP.trials, COMPUTED_SHARE))
def layer_dropping_saves_work(seed: int, results: Results) -> Measured:
    """Compare gains for the same updates and for the same work, and take the share computed."""
    gains = LAYERDROP.gains(results)
    advantage = gains["same_work"] - gains["plain"]
    share = float(results[COMPUTED_SHARE.name]["share"])
    return LAYERDROP.measured(results, advantage=advantage, difference=abs(advantage), share=share)


WITH_SKIP = Runs(
    pre=(cell("pre", 96), "pre-norm, 96 layers"),
    deepnorm=(cell("deepnorm", 96), "DeepNorm, 96 layers"),
    six=(cell("post", 6), "post-norm, 6 layers"),
    post=(cell("post", 24), "post-norm, 24 layers"),
)


@measures("first-layers-hear-the-loss", needs=WITH_SKIP.trials)
def first_layers_hear_the_loss(seed: int, results: Results) -> Measured:
    """Take the gradient ratios of four networks with skip after training."""
    gains = WITH_SKIP.gains(results)
    after = {name: ratios_of(run)[1] for name, run in WITH_SKIP.read(results).items()}
    learned = min(gains["six"], gains["deepnorm"])
    return Measured(
        after, learned=learned, post_gain=gains["post"], picture=WITH_SKIP.gradients(results)
    )


WITHOUT_SKIP = Runs(
    no_skip=(cell("no skip", 24), "no skip, after training"),
    pre=(cell("pre", 24), "pre-norm"),
    plain=(cell("plain", 24, steps=5), ""),
)


@measures("no-skip-gradients-vanish", needs=WITHOUT_SKIP.trials)
def no_skip_gradients_vanish(seed: int, results: Results) -> Measured:
    """Take the gradient ratios without skip, with norms and without, before and after."""
    runs = WITHOUT_SKIP.read(results)
    start, end = ratios_of(runs["no_skip"])
    return Measured(
        start=start,
        start_log=math.log10(start) if start > 0 else -math.inf,
        end=end,
        plain=ratios_of(runs["plain"])[0],
        cosine=cosines_of(runs["no_skip"])[1],
        pre=ratios_of(runs["pre"])[1],
        picture=WITHOUT_SKIP.gradients(results),
    )


POST_NORM = Runs(
    deep=(cell("post", 24), "24 layers, no warm-up"),
    shallow=(cell("post", 6), "6 layers, no warm-up"),
)


@measures("post-norm-first-gradients-vanish", needs=POST_NORM.trials)
def post_norm_first_gradients_vanish(seed: int, results: Results) -> Measured:
    """Take the gradient ratios of two post-norm runs: before, in between and after."""
    runs = POST_NORM.read(results)
    deep, shallow = map(ratios_of, runs.values())
    readings = [float(value) for _, value in runs["shallow"]["ratio"] if value is not None]
    return Measured(
        start=deep[0],
        end=deep[1],
        shallow=shallow[1],
        shallow_least=min(readings, default=math.nan),
        shallow_gain=gain_of(runs["shallow"]),
        start_kept=min(min(one[0], 1 / one[0]) for one in (deep, shallow)),
        cosine=cosines_of(runs["deep"])[1],
        picture=POST_NORM.gradients(results),
    )


BOTH_PLACEMENTS = Runs(
    pre_deep=(cell("pre", 24), "pre-norm, 24 layers"),
    post_deep=(cell("post", 24), "post-norm, 24 layers"),
    pre=(cell("pre", 6), "pre-norm, 6 layers"),
    post=(cell("post", 6), "post-norm, 6 layers"),
)


@measures("trained-gradients-more-uniform", needs=BOTH_PLACEMENTS.trials)
def trained_gradients_more_uniform(seed: int, results: Results) -> Measured:
    """Compare the spread of gradients over the layers after training."""
    profiles = {name: profile_of(run) for name, run in BOTH_PLACEMENTS.read(results).items()}
    spread = {name: max(values) / min(values) for name, values in profiles.items()}
    return Measured(
        spread,
        deep=spread["post_deep"] / spread["pre_deep"],
        shallow=spread["post"] / spread["pre"],
        reverse=spread["pre"] / spread["post"],
        picture=BOTH_PLACEMENTS.gradients(results),
    )


WITHOUT_A_LAYER = Runs(
    skip=(cell("pre", 12), ""), two=(cell("pre", 2), ""), none=(cell("no skip", 2, steps=600), "")
)


@measures("layers-can-be-turned-off", needs=WITHOUT_A_LAYER.trials)
def layers_can_be_turned_off(seed: int, results: Results) -> Measured:
    """Take what leaving one layer out costs, and how much the layers write."""
    runs = WITHOUT_A_LAYER.read(results)
    cost, two, none = ([float(value) for value in run["without"]] for run in runs.values())
    return Measured(
        least=min(cost),
        most=max(cost),
        smallest=min(max(map(float, pair)) for pair in runs["skip"]["updates"]),
        none=min(none),
        two=min(two),
        missed=min(none) / min(two),
        picture=Picture(
            "layer left out", "rise of the loss, nats", {"pre-norm, 12 layers": cost}, over=1
        ),
    )


READ_BACK = Runs(
    skip_two=(cell("pre", 2), "pre-norm, 2 layers"),
    none_two=(cell("no skip", 2, steps=600), "no skip, 2 layers"),
    skip_three=(cell("pre", 3), "pre-norm, 3 layers"),
    none_three=(cell("no skip", 3, steps=600), "no skip, 3 layers"),
    deep=(cell("pre", 12), "pre-norm, 12 layers"),
    six=(cell("pre", 6), "pre-norm, 6 layers"),
    post=(cell("post", 6), "post-norm, 6 layers"),
)


@measures("low-level-information-is-kept", needs=READ_BACK.trials)
def low_level_information_is_kept(seed: int, results: Results) -> Measured:
    """Take the R² of the embedding at every layer of trained models."""
    lines = {
        name: [float(value) for value in run["recall"]]
        for name, run in READ_BACK.drawn(results).items()
    }
    last = dict(
        zip(READ_BACK.read(results), (values[-1] for values in lines.values()), strict=True)
    )
    margins = (last[f"skip_{depth}"] - last[f"none_{depth}"] for depth in ("two", "three"))
    return Measured(
        last,
        margin=min(margins),
        covered=last["skip_two"] - last["deep"],
        normed=last["six"] - last["post"],
        picture=Picture("layer", "R² of the embedding", lines, over=0),
    )


PLACEMENTS = ("pre-norm", "post-norm")
PLAIN, STRONG = "1", "4"
"""The residual weights that are compared."""


def _look_at_bases(
    seed: int, look: Callable[[Transformer, Tuning], dict[str, float]]
) -> dict[str, dict[str, dict[str, float]]]:
    """Return what `look` says of every base, by placement and by weight."""
    from leadline.experiments.fine_tuning.adapting import Tuning
    from leadline.experiments.fine_tuning.experiment import ADAPTER_RATE, RATE, FineTuningOptions
    from leadline.experiments.fine_tuning.two_tasks import Backwards
    from leadline.lab.cell import torch_threads
    from leadline.lab.tasks import build_task
    from leadline.lab.trainer import model_for

    setting = FineTuningOptions(
        depth=4, width=32, heads=2, length=32, base=400, steps=150, batch=16, examples=128, rank=4
    )
    old = build_task(f"stdlib(length={setting.length})")
    tuning = Tuning(
        old,
        Backwards(old),
        steps=setting.steps,
        batch=setting.batch,
        examples=setting.examples,
        rank=setting.rank,
        rate=ADAPTER_RATE,
        seed=seed,
    )
    looks: dict[str, dict[str, dict[str, float]]] = {}
    with torch_threads(1):
        for placement in PLACEMENTS:
            for weight in (PLAIN, STRONG):
                model = model_for(setting.recipe(placement, float(weight)), old, seed=seed)
                tuning.train(model, old, steps=setting.base, rate=RATE)
                looks.setdefault(placement, {})[weight] = look(model, tuning)
    return looks


def _adapt(model: Transformer, tuning: Tuning, method: str) -> dict[str, float]:
    from leadline.experiments.fine_tuning.adapting import adapted, losses

    (base,) = losses(model, tuning.old.validation(tuning.examples))
    one = adapted(model, tuning, method=method, base=base)
    return {
        "base": base,
        "before": one.new_before,
        "after": one.new_after,
        "ratio": one.heard.ratio,
        "output": one.heard.output,
    }


def _tune_all_weights(model: Transformer, tuning: Tuning) -> dict[str, float]:
    from leadline.experiments.fine_tuning.adapting import together
    from leadline.experiments.fine_tuning.experiment import RATE

    pair = together(model, tuning, rate=RATE)
    return {
        "old_alone": pair.old_alone,
        "new_alone": pair.new_alone,
        "old_both": pair.old_both,
        "new_both": pair.new_both,
    }


def _run_lora(seed: int) -> Mapping[str, Any]:
    return _look_at_bases(seed, lambda model, tuning: _adapt(model, tuning, "LoRA"))


def _run_adapters(seed: int) -> Mapping[str, Any]:
    def look(model: Transformer, tuning: Tuning) -> dict[str, float]:
        return {**_adapt(model, tuning, "adapters"), **_tune_all_weights(model, tuning)}

    return _look_at_bases(seed, look)


LORA = Trial("LoRA by residual weight", _run_lora, seconds=20.0)
ADAPTERS = Trial("adapters and two tasks by residual weight", _run_adapters, seconds=30.0)


@measures("strong-residual-mutes-lora", needs=(LORA,))
def strong_residual_mutes_lora(seed: int, results: Results) -> Measured:
    """Compare output per change, and what is learned, of a strong residual and a plain one."""
    outputs: list[float] = []
    learned: list[float] = []
    for placement in PLACEMENTS:
        plain, strong = (results[LORA.name][placement][weight] for weight in (PLAIN, STRONG))
        outputs.append(strong["output"] / plain["output"])
        learned.append((strong["before"] - strong["after"]) / (plain["before"] - plain["after"]))
    pairs = zip(learned, outputs, strict=True)
    return Measured(
        pre_output=outputs[0],
        post_output=outputs[1],
        pre_learned=learned[0],
        post_learned=learned[1],
        output=max(outputs),
        learned=max(learned),
        made_up=min(fall - (1 + heard) / 2 for fall, heard in pairs),
    )


@measures("adapters-cannot-keep-up", needs=(ADAPTERS,))
def adapters_cannot_keep_up(seed: int, results: Results) -> Measured:
    """Compare the share of adapters by residual weight."""
    cases = [
        results[ADAPTERS.name][one][weight] for one in PLACEMENTS for weight in (PLAIN, STRONG)
    ]
    shares = [(one["before"] - one["after"]) / (one["before"] - one["new_alone"]) for one in cases]
    names = ("pre_plain", "pre_strong", "post_plain", "post_strong")
    drop = (shares[0] - shares[1] + shares[2] - shares[3]) / 2
    return Measured(dict(zip(names, shares, strict=True)), drop=drop, largest=max(shares))


@measures("old-tasks-leak-through-residual", needs=(ADAPTERS,))
def old_tasks_leak_through_residual(seed: int, results: Results) -> Measured:
    """Compare the interference of two tasks by residual weight."""

    def mean(weight: str, above: str, below: str) -> float:
        cases = [results[ADAPTERS.name][placement][weight] for placement in PLACEMENTS]
        return sum(one[above] - one[below] for one in cases) / len(cases)

    plain, strong = (mean(weight, "new_both", "new_alone") for weight in (PLAIN, STRONG))
    return Measured(
        plain=plain,
        strong=strong,
        growth=strong / plain,
        forgot_plain=mean(PLAIN, "old_alone", "base"),
        forgot_strong=mean(STRONG, "old_alone", "base"),
    )
