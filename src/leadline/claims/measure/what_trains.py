"""What trains: depth, skip, norms, their placement, warm-up and rate, judged by gains.

The runs of networks are those of `training_runs`: gains in nats below the unigram entropy, at the
rate 0.001 without warm-up and after 300 updates where nothing else is said.

Without skip, with norms: 2 and 3 layers get 600 updates and 6 get 600 with warm-up, which is to
their advantage. A run that has blown up has a loss that is no number, or far above that of the
frequencies; for that the mean of the last 50 updates is read. What "only with warm-up" leads a
reader to expect is the reach of no-skip-needs-warmup: that a long one makes 6 layers train, and
that no depth trains without. The 20 layers of a plain network are read for towers of MLPs with
ReLU, to within a factor of two or so; a card on Transformers carries them to a Transformer of 6
layers.

Without norms: one network that trains refutes "mandatory". With updates weighted by 1/sqrt(2 L) the
mean square of the stream stays of order 1 at any depth (Noci et al. 2022, arXiv 2206.03126), with
weights that start at 0 the stream starts as the identity (Bachlechner et al. 2020, arXiv
2003.04887). What the card draws as a residual connection and nothing more, x + F(x), is the reach
of the thousand layers, which ResNets have with norms.

Post-norm: "bad beyond 12" lets a reader think that 12 are fine and that nothing helps beyond; its
reach are 12 layers, and DeepNorm, N(a x + F(x)) with a constant a, whose norms stand in the same
place (Wang et al. 2022, arXiv 2203.00555). "Needs a small rate" says that the larger one cannot be
had; its reach is the larger one with a warm-up. "Requires warm-up" is a word about what happens
without one, and 24 layers with one are read for "hard to warm up"; how far a warm-up or a smaller
rate gets 12 layers differs much between seeds and decides nothing. Models of 70 billion parameters
cannot be had here, their depth can. Unstable is read as a training loss that jumps: the largest
rise between means of five updates from step 100 on. The batches are the same in all runs, so a
model that has learned the frequencies shows what the batches alone do.

Pre-norm: how far 200 layers are behind 12 is told and decides nothing, since no note says that
depth is free. "Most stable" is a superlative, so one configuration that ends lower refutes it:
stable is read as training at 3e-2, thirty times the usual rate, without warm-up. Without norms
small updates end lower there with some seeds and diverge with others, so of those runs the share
that diverged is told, and no gain. "No warm-up" is read at the rate at which post-norm sticks; its
reach is 3e-2. The variants x + a F(x), x + s(W x) F(x) and x + dropout(F(x)) have the weight
1/sqrt(2 L), the gate of the connection `gated` and a rate of 0.1; LayerScale, a weight per feature
(Touvron et al. 2021, arXiv 2103.17239), is a fourth of the kind.

One block and a row of 12 learn a map (`reproduce` learning-identity: ReLU, mean squared error,
Adam), judged by log10 of the error without skip over that with it. zero-easier-than-identity: one
block from either start, and the row from that of torch's own layers, are the claim; the row from a
start that keeps the mean square of a network WITHOUT skip, which with skip doubles in every block,
is its reach. residual-task-is-simpler: x + F(x) = A x needs F = A - I, without skip F = A. The note
argues with a map near the identity, A = I + 0.1 G; A = 0 and A = -I are its reach.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from leadline.claims.catalog import Measured, Results, measures
from leadline.claims.claim import Picture
from leadline.claims.measure.training_runs import (
    Runs,
    cell,
    cosines_of,
    gain_of,
    largest_rise_of,
    late_losses_of,
    ratios_of,
    tower,
)

if TYPE_CHECKING:
    from torch import Tensor

POST_WARM = cell("post", 12, steps=600, warmup=300)
POST_SLOW = cell("post", 12, steps=900, rate=3e-4)
NO_SKIP_WARM = cell("no skip", 6, steps=600, warmup=300)
LARGE_RATE = 3e-2

NO_SKIP_BY_DEPTH = Runs(
    two=(cell("no skip", 2, steps=600), "2 layers"),
    three=(cell("no skip", 3, steps=600), "3 layers"),
    six=(NO_SKIP_WARM, "6 layers, warm-up"),
)


@measures("deeper-is-harder-without-skip", needs=NO_SKIP_BY_DEPTH.trials)
def deeper_is_harder_without_skip(seed: int, results: Results) -> Measured:
    """Compare the gains of three depths without skip."""
    two, three, six = NO_SKIP_BY_DEPTH.gains(results).values()
    return NO_SKIP_BY_DEPTH.measured(
        results, two_over_three=two - three, three_over_six=three - six
    )


WITH_AND_WITHOUT_SKIP = Runs(
    six=(cell("no skip", 6), "no skip, 6 layers"),
    deep=(cell("no skip", 24), "no skip, 24 layers"),
    skip_six=(cell("pre", 6), "skip, 6 layers"),
    skip=(cell("pre", 24), "skip, 24 layers"),
)


@measures("no-skip-does-not-train", needs=WITH_AND_WITHOUT_SKIP.trials)
def no_skip_does_not_train(seed: int, results: Results) -> Measured:
    """Take the gains with and without skip, and how far the loss ends from the entropy."""
    deep = WITH_AND_WITHOUT_SKIP.read(results)["deep"]
    late = late_losses_of(deep)
    above = sum(late) / len(late) - float(deep["unigram"])
    return WITH_AND_WITHOUT_SKIP.measured(
        results, above=above, apart=abs(above), alike=cosines_of(deep)[1]
    )


NO_SKIP_BY_WARMUP = Runs(
    cold=(cell("no skip", 6), "6 layers"),
    warm=(NO_SKIP_WARM, "6 layers, warm-up"),
    two=(cell("no skip", 2, steps=600), "2 layers"),
)


@measures("no-skip-needs-warmup", needs=NO_SKIP_BY_WARMUP.trials)
def no_skip_needs_warmup(seed: int, results: Results) -> Measured:
    """Take the gains without skip, with and without warm-up."""
    alike = cosines_of(NO_SKIP_BY_WARMUP.read(results)["cold"])[0]
    return NO_SKIP_BY_WARMUP.measured(results, alike=alike)


BY_NORM = Runs(
    bare=(cell("no norm", 12), "plain sum, 12 layers"),
    weighted=(cell("weighted, no norm", 24), "no norm, weighted, 24 layers"),
    rezero=(cell("rezero", 24), "ReZero, 24 layers"),
    pre=(cell("pre", 24), "pre-norm, 24 layers"),
)


@measures("normalisation-is-mandatory", needs=BY_NORM.trials)
def normalisation_is_mandatory(seed: int, results: Results) -> Measured:
    """Take the gains without norms, and with them."""
    return BY_NORM.measured(results)


PLAIN_TOWERS = Runs(
    ten=(tower("plain", 10), "10 layers"),
    twenty=(tower("plain", 20), "20 layers"),
    fifty=(tower("plain", 50), "50 layers"),
    transformer=(cell("no skip", 6), "Transformer, 6 layers"),
)


@measures("plain-networks-stop-near-twenty", needs=PLAIN_TOWERS.trials)
def plain_networks_stop_near_twenty(seed: int, results: Results) -> Measured:
    """Take the gains of plain towers by depth, and of a Transformer without skip."""
    alike = cosines_of(PLAIN_TOWERS.read(results)["transformer"])[0]
    return PLAIN_TOWERS.measured(results, alike=alike)


TOWERS_WITH_SKIP = Runs(
    thousand=(tower("pre", 1000, steps=200, rate=2e-3), "1,000 layers, skip and norms"),
    bare=(tower("residual", 100), "100 layers, skip alone"),
    plain=(tower("plain", 50), "50 layers, plain"),
)


@measures("resnet-thousand-layers", needs=TOWERS_WITH_SKIP.trials)
def resnet_thousand_layers(seed: int, results: Results) -> Measured:
    """Take the gains of towers with skip."""
    return TOWERS_WITH_SKIP.measured(results)


DEEP_NETWORKS = Runs(
    pre=(cell("pre", 96), "skip, pre-norm, 96 layers"),
    post=(cell("post", 24), "skip, post-norm, 24 layers"),
    bare=(cell("no norm", 12), "skip, no norms, 12 layers"),
    none=(cell("no skip", 24), "no skip, 24 layers"),
)


@measures("skip-makes-depth-trainable", needs=DEEP_NETWORKS.trials)
def skip_makes_depth_trainable(seed: int, results: Results) -> Measured:
    """Take the gains of four deep networks."""
    return DEEP_NETWORKS.measured(results)


POST_BY_DEPTH = Runs(
    six=(cell("post", 6), "6 layers"),
    twelve=(cell("post", 12), "12 layers"),
    deep=(cell("post", 24), "24 layers"),
    slow=(POST_SLOW, "12 layers, rate 0.0003"),
    deepnorm=(cell("deepnorm", 96), "DeepNorm, 96 layers"),
)


@measures("post-norm-bad-beyond-twelve", needs=POST_BY_DEPTH.trials)
def post_norm_bad_beyond_twelve(seed: int, results: Results) -> Measured:
    """Take the gains of norms after the addition, by depth."""
    return POST_BY_DEPTH.measured(results)


POST_BY_RATE = Runs(
    usual=(cell("post", 12), "rate 0.001"),
    small=(POST_SLOW, "rate 0.0003"),
    warm=(POST_WARM, "rate 0.001, warm-up"),
    shallow=(cell("post", 6), "rate 0.001, 6 layers"),
)


@measures("post-norm-needs-small-rate", needs=POST_BY_RATE.trials)
def post_norm_needs_small_rate(seed: int, results: Results) -> Measured:
    """Take the gains of post-norm by learning rate."""
    return POST_BY_RATE.measured(results)


POST_BY_WARMUP = Runs(
    cold=(cell("post", 12), "12 layers"),
    warm=(POST_WARM, "12 layers, warm-up"),
    slow=(POST_SLOW, "12 layers, rate 0.0003"),
    shallow=(cell("post", 6), "6 layers"),
    warm_deep=(cell("post", 24, steps=600, warmup=300), "24 layers, warm-up"),
)


@measures("post-norm-needs-warmup", needs=POST_BY_WARMUP.trials)
def post_norm_needs_warmup(seed: int, results: Results) -> Measured:
    """Take the gains of post-norm with and without warm-up."""
    return POST_BY_WARMUP.measured(results)


VERY_DEEP_POST = Runs(
    deep=(cell("post", 96), "post-norm, 96 layers"),
    limit=(cell("post", 24), "post-norm, 24 layers"),
    pre=(cell("pre", 24), "pre-norm, 24 layers"),
)


@measures("post-norm-unstable-past-24", needs=VERY_DEEP_POST.trials)
def post_norm_unstable_past_24(seed: int, results: Results) -> Measured:
    """Take the gains, and the largest rise of the training loss."""
    runs = VERY_DEEP_POST.read(results)
    jump, pre_jump = largest_rise_of(runs["deep"]), largest_rise_of(runs["pre"])
    return Measured(
        deep=gain_of(runs["deep"]),
        limit=gain_of(runs["limit"]),
        jump=jump,
        pre_jump=pre_jump,
        excess=jump - pre_jump,
        calm=abs(jump - pre_jump),
        alike=cosines_of(runs["deep"])[1],
        ratio=ratios_of(runs["deep"])[1],
        picture=VERY_DEEP_POST.losses(results),
    )


AT_96_LAYERS = Runs(
    post=(cell("post", 96), "post-norm"),
    deepnorm=(cell("deepnorm", 96), "DeepNorm"),
    pre=(cell("pre", 96), "pre-norm"),
)


@measures("post-norm-untrainable-at-hundred", needs=AT_96_LAYERS.trials)
def post_norm_untrainable_at_hundred(seed: int, results: Results) -> Measured:
    """Take the gains at 96 layers."""
    return AT_96_LAYERS.measured(results)


PRE_BY_DEPTH = Runs(
    shallow=(cell("pre", 12), "12 layers"),
    hundred=(cell("pre", 96), "96 layers"),
    hundreds=(cell("pre", 200), "200 layers"),
)


@measures("pre-norm-hundreds-of-layers", needs=PRE_BY_DEPTH.trials)
def pre_norm_hundreds_of_layers(seed: int, results: Results) -> Measured:
    """Take the gains by depth, and how 200 layers go beside 12 on the same batches."""
    runs = PRE_BY_DEPTH.read(results)
    deep, shallow = runs["hundreds"], runs["shallow"]
    beside = late_losses_of(shallow)
    jump, shallow_jump = largest_rise_of(deep), largest_rise_of(shallow)
    return PRE_BY_DEPTH.measured(
        results,
        behind=(sum(late_losses_of(deep)) - sum(beside)) / len(beside),
        jump=jump,
        shallow_jump=shallow_jump,
        excess=jump - shallow_jump,
        alike_shallow=cosines_of(shallow)[0],
        alike_hundreds=cosines_of(deep)[0],
    )


AT_LARGE_RATE = Runs(
    pre=(cell("pre", 12, steps=200, rate=LARGE_RATE), "pre-norm"),
    post=(cell("post", 12, steps=200, rate=LARGE_RATE), "post-norm"),
    deepnorm=(cell("deepnorm", 12, steps=200, rate=LARGE_RATE), "DeepNorm"),
    weighted=(cell("weighted pre", 12, steps=200, rate=LARGE_RATE), "pre-norm, weighted"),
    layerscale=(cell("layerscale", 12, steps=200, rate=LARGE_RATE), "LayerScale"),
    usual=(cell("pre", 12), ""),
    post_usual=(cell("post", 12), ""),
)
UNNORMED = cell("weighted, no norm", 12, steps=200, rate=LARGE_RATE)


@measures("pre-norm-most-stable", needs=(*AT_LARGE_RATE.trials, UNNORMED))
def pre_norm_most_stable(seed: int, results: Results) -> Measured:
    """Take the gains of six configurations at a large rate."""
    gains, unnormed = AT_LARGE_RATE.gains(results), gain_of(results[UNNORMED.name])
    others = (gains[name] for name in ("post", "deepnorm", "weighted", "layerscale"))
    return AT_LARGE_RATE.measured(
        results,
        beaten=max(unnormed, *others) - gains["pre"],
        lead=min(gains["weighted"], gains["layerscale"]) - gains["pre"],
        diverged=float(not math.isfinite(unnormed)),
    )


PRE_BY_WARMUP = Runs(
    cold=(cell("pre", 12), "12 layers"),
    deep=(cell("pre", 24), "24 layers"),
    post=(cell("post", 12), "post-norm, 12 layers"),
    fast=(cell("pre", 12, steps=200, rate=LARGE_RATE), "12 layers, rate 0.03"),
    fast_warm=(
        cell("pre", 12, steps=200, warmup=100, rate=LARGE_RATE),
        "12 layers, rate 0.03, warm-up",
    ),
)


@measures("pre-norm-needs-no-warmup", needs=PRE_BY_WARMUP.trials)
def pre_norm_needs_no_warmup(seed: int, results: Results) -> Measured:
    """Take the gains of pre-norm at two rates, with and without warm-up."""
    return PRE_BY_WARMUP.measured(results)


BY_PLACEMENT = Runs(
    pre_96=(cell("pre", 96), "pre-norm, 96 layers"),
    post_96=(cell("post", 96), "post-norm, 96 layers"),
    deepnorm=(cell("deepnorm", 96), "DeepNorm, 96 layers"),
    pre_6=(cell("pre", 6), "pre-norm, 6 layers"),
    post_6=(cell("post", 6), "post-norm, 6 layers"),
    pre_24=(cell("pre", 24), ""),
    post_24=(cell("post", 24), ""),
)


@measures("pre-norm-scales-better", needs=BY_PLACEMENT.trials)
def pre_norm_scales_better(seed: int, results: Results) -> Measured:
    """Compare the gains of both placements by depth."""
    gains = BY_PLACEMENT.gains(results)
    leads = {
        f"lead_{depth}": gains[f"pre_{depth}"] - gains[f"post_{depth}"] for depth in (24, 96, 6)
    }
    return BY_PLACEMENT.measured(
        results, **leads, lead_deepnorm=gains["pre_96"] - gains["deepnorm"]
    )


VARIANTS = Runs(
    weighted=(cell("weighted pre", 12), "weighted"),
    gated=(cell("gated", 12), "gated"),
    dropout=(cell("dropout", 12), "dropout"),
    layerscale=(cell("layerscale", 12), "layerscale"),
    plain=(cell("pre", 12), "plain"),
)


@measures("residual-variants-train", needs=VARIANTS.trials)
def residual_variants_train(seed: int, results: Results) -> Measured:
    """Take the gain of every variant."""
    return VARIANTS.measured(results)


@measures("zero-easier-than-identity")
def zero_easier_than_identity(seed: int) -> Measured:
    """Train one block and a row to copy their input, with and without skip, from two starts."""
    from leadline.experiments.learning_identity import STARTS, LearningIdentityOptions, trained

    row = 12
    setting = LearningIdentityOptions(blocks=row, seeds=1, seed=seed)
    cases = {
        (blocks, start, skip): trained(setting, blocks=blocks, skip=skip, start=start)
        for blocks in (1, row)
        for start in STARTS
        for skip in (False, True)
    }
    errors = {key: float(case.error[0]) for key, case in cases.items()}
    gains = {
        f"{number}_{start}": math.log10(errors[blocks, start, False] / errors[blocks, start, True])
        for blocks, number in ((1, "one"), (row, "row"))
        for start in STARTS
    }
    sizes = {1: "1 block", row: "12 blocks"}
    starts = {"small": "small start", "kept": "large start"}
    names = {
        (blocks, start, skip): f"{sizes[blocks]}, {'skip' if skip else 'no skip'}, {starts[start]}"
        for blocks, start, skip in cases
    }
    return Measured(
        gains,
        one_skip=errors[1, "small", True],
        one_plain=errors[1, "small", False],
        row_skip=errors[row, "small", True],
        row_plain=errors[row, "small", False],
        kept_skip=errors[row, "kept", True],
        kept_plain=errors[row, "kept", False],
        exploded=cases[row, "kept", True].curve[0, 0],
        picture=Picture(
            "step",
            "mean squared error",
            {names[key]: case.curve[:, 0] for key, case in cases.items()},
            over=setting.readings,
            y_log=True,
            faint=(name for key, name in names.items() if key[1] == "kept"),
        ),
    )


@measures("residual-task-is-simpler")
def residual_task_is_simpler(seed: int) -> Measured:
    """Train one block with and without skip on three maps."""
    import torch

    from leadline.experiments.learning_identity import (
        JUDGED,
        LearningIdentityOptions,
        drawn,
        mapped,
    )

    setting = LearningIdentityOptions(steps=300, seeds=1, seed=seed)
    width = setting.width
    rng = np.random.default_rng([seed, 110])
    change = torch.from_numpy(rng.normal(size=(width, width)) / math.sqrt(width)).float()
    eye = torch.eye(width)
    maps = {"near": eye + 0.1 * change, "zero": 0.0 * eye, "mirror": -eye}
    names = {"near": "near the identity", "zero": "zero map", "mirror": "map -x"}

    def errors(target: Tensor, skip: bool) -> list[float]:
        """Return the error at every reading; the last one is judged on more examples."""
        weights = drawn(setting, blocks=1, start="small")
        flat = [one.requires_grad_() for block in weights for one in block]
        adam = torch.optim.Adam(flat, lr=setting.rate)
        generator = torch.Generator().manual_seed(1000 * seed + 2)
        curve: list[float] = []
        for step in range(setting.steps + 1):
            count = JUDGED if step == setting.steps else setting.batch
            x = torch.randn(1, count, width, generator=generator)
            error = (mapped(x, weights, skip=skip)[0] - x @ target).square().mean()
            if step in setting.readings:
                curve.append(error.item())
            if step < setting.steps:
                adam.zero_grad()
                error.backward()
                adam.step()
        return curve

    curves = {
        (name, skip): errors(target, skip)
        for name, target in maps.items()
        for skip in (False, True)
    }
    gains = {name: math.log10(curves[name, False][-1] / curves[name, True][-1]) for name in maps}
    lines = {
        f"{names[name]}, {'skip' if skip else 'no skip'}": curve
        for (name, skip), curve in curves.items()
    }
    return Measured(
        gains,
        near_times=10.0 ** gains["near"],
        zero_times=10.0 ** -gains["zero"],
        picture=Picture("step", "mean squared error", lines, over=setting.readings, y_log=True),
    )
