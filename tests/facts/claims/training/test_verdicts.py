"""The verdicts of the training claims: what the numbers of runs make of them."""

import math

import pytest

from leadline.claims import CLAIMS
from leadline.claims.claim import placeholders
from leadline.claims.ruling import rule
from tests.claims_ruled import ruled

TRAINING = [name for name in CLAIMS.names() if CLAIMS.get(name).claim.group == "training"]
CHECKABLE = [name for name in TRAINING if CLAIMS.get(name).claim.checkable]


def run(gain, *, steps=300, ratio=(1.0, 1.0), cosine=0.5, depth=6, reached=100):
    """What a training run with this gain leaves behind; its loss falls to the end's at a step."""
    last = 3.1 - gain
    points = [[float(step), last if step >= reached else 4.0] for step in range(5, steps + 1, 5)]
    profile = [ratio[1] ** (1 - layer / depth) for layer in range(depth + 1)]
    return {
        "status": "finished",
        "steps": steps,
        "loss": None if gain == -math.inf else last,
        "unigram": 3.1,
        "bigram": 2.4,
        "curve": points,
        "held_out": points,
        "ratio": [[0.0, ratio[0]], [float(steps), ratio[1]]],
        "cosine": [[0.0, 0.9], [float(steps), cosine]],
        "profile": profile,
        "recall": [1.0] * depth + [0.9 if gain > 0.1 else 0.1],
        "without": [0.01] + [0.4] * (depth - 1),
        "updates": [[0.3, 0.3]] * depth,
    }


GOOD, BAD = run(0.6), run(0.0, ratio=(1.0, 1e-5), cosine=1.0)


def verdict(name, runs):
    """The ruling on numbers that are the same with three seeds."""
    entry = CLAIMS.get(name)
    needed = {trial.name for trial in entry.needs}
    assert set(runs) == needed, needed ^ set(runs)
    measured = entry.run(0, runs)
    return rule(entry.claim, {key: [value] * 3 for key, value in measured.numbers.items()})


def by_trial(name, good):
    """Runs that train where `good` says so of the trial's name, and are stuck elsewhere."""
    return {t.name: GOOD if good(t.name) else BAD for t in CLAIMS.get(name).needs}


@pytest.mark.parametrize("name", CHECKABLE)
def test_every_number_that_a_text_asks_for_is_measured(name):
    entry = CLAIMS.get(name)
    if any("residual weight" in trial.name for trial in entry.needs):
        runs = {t.name: tuned() for t in entry.needs}
    else:
        runs = {t.name: {**GOOD, "share": 0.5} for t in entry.needs}
    numbers = entry.run(0, runs).numbers
    for text in entry.claim.texts():
        for asked in placeholders(text):
            assert asked.partition(":")[0] in numbers


def test_a_network_without_norms_that_trains_refutes_that_norms_are_mandatory():
    name = "normalisation-is-mandatory"
    found = verdict(name, by_trial(name, lambda n: not n.startswith("no norm")))
    assert (found.verdict, found.correction) == ("false as stated", "holds")
    found = verdict(name, by_trial(name, lambda n: n.startswith("pre")))
    assert (found.verdict, found.correction) == ("holds", "fails")


def test_post_norm_needs_warmup_only_where_nothing_else_helps():
    name = "post-norm-needs-warmup"
    cold = {"post, 12 layers, 300 steps", "post, 24 layers, 600 steps, warm-up 300"}
    found = verdict(name, by_trial(name, lambda n: n not in cold))
    assert (found.verdict, found.correction) == ("holds under conditions", "holds")
    nothing = verdict(
        name, by_trial(name, lambda n: n == "post, 12 layers, 600 steps, warm-up 300")
    )
    assert (nothing.verdict, nothing.correction) == ("holds", "fails")
    needless = verdict(name, by_trial(name, lambda n: True))
    assert needless.verdict == "false as stated"


def test_a_more_stable_configuration_refutes_the_most_stable_one():
    name = "pre-norm-most-stable"
    stuck = ("post", "deepnorm", "pre, 12 layers, 200")
    found = verdict(name, by_trial(name, lambda n: not n.startswith(stuck)))
    assert (found.verdict, found.correction) == ("false as stated", "holds")
    equal = verdict(name, by_trial(name, lambda n: not n.startswith(("post", "deepnorm"))))
    assert (equal.verdict, equal.correction) == ("holds", "fails")


def test_a_run_without_norms_that_diverges_is_told_and_decides_nothing():
    name = "pre-norm-most-stable"
    stuck = ("post", "deepnorm", "pre, 12 layers, 200")
    runs = by_trial(name, lambda n: not n.startswith(stuck))
    runs["weighted, no norm, 12 layers, 200 steps, rate 0.03"] = run(-math.inf)
    found = verdict(name, runs)
    assert (found.verdict, found.correction) == ("false as stated", "holds")
    assert "100% diverged" in found.text(found.claim.why)
    assert "inf" not in found.text(found.claim.why)


def test_a_gradient_that_is_strong_only_where_updates_are_small_breaks_the_correction():
    name = "first-layers-hear-the-loss"
    found = verdict(name, by_trial(name, lambda n: n != "post, 24 layers, 300 steps"))
    assert (found.verdict, found.correction) == ("holds under conditions", "holds")
    found = verdict(name, by_trial(name, lambda n: not n.startswith("post")))
    assert found.correction == "fails"


def test_very_deep_pre_norm_holds_unless_its_loss_jumps():
    name = "pre-norm-hundreds-of-layers"
    runs = by_trial(name, lambda n: True)
    assert verdict(name, runs).verdict == "holds"
    jumps = [[step, 4.0 if step == 200 else loss] for step, loss in GOOD["curve"]]
    runs["pre, 200 layers, 300 steps"] = {**GOOD, "curve": jumps}
    assert verdict(name, runs).verdict == "false as stated"


def test_a_layer_is_missed_more_without_skip_only_beside_a_model_as_deep():
    name = "layers-can-be-turned-off"
    runs = {t.name: GOOD for t in CLAIMS.get(name).needs}
    without = runs["no skip, 2 layers, 600 steps"] = {**GOOD, "without": [1.0, 2.0]}
    runs["pre, 2 layers, 300 steps"] = {**GOOD, "without": [0.5, 0.4]}
    found = verdict(name, runs)
    assert (found.verdict, found.correction) == ("holds under conditions", "holds")
    runs["pre, 2 layers, 300 steps"] = {**GOOD, "without": [1.5, 2.0]}
    assert min(without["without"]) > 0.3
    assert verdict(name, runs).correction == "fails"


def test_deepnorm_is_a_post_norm_that_trains():
    name = "post-norm-untrainable-at-hundred"
    found = verdict(name, by_trial(name, lambda n: not n.startswith("post")))
    assert (found.verdict, found.correction) == ("holds under conditions", "holds")
    found = verdict(name, by_trial(name, lambda n: n.startswith("pre")))
    assert found.verdict == "holds"
    assert verdict(name, by_trial(name, lambda n: True)).verdict == "false as stated"


def test_the_front_gradient_of_post_norm_vanishes_in_training_alone():
    name = "post-norm-first-gradients-vanish"
    runs = by_trial(name, lambda n: "24 layers" not in n)
    assert verdict(name, runs).correction == "fails"  # the gradient is never lost
    dipped = [[0.0, 1.0], [50.0, 0.1], [300.0, 1.0]]
    found = verdict(name, {**runs, "post, 6 layers, 300 steps": {**GOOD, "ratio": dipped}})
    assert (found.verdict, found.correction) == ("holds under conditions", "holds")
    never = verdict(name, by_trial(name, lambda n: True))
    assert (never.verdict, never.correction) == ("false as stated", "fails")


def test_a_run_that_overflowed_does_not_train():
    name = "skip-makes-depth-trainable"
    runs = by_trial(name, lambda n: n.startswith("pre"))
    runs["no norm, 12 layers, 300 steps"] = run(-math.inf)
    assert verdict(name, runs).verdict == "holds under conditions"


def tuned(*, output=0.4, after=2.8, both=2.62):
    """What two residual weights leave behind: the numbers are those of weight 4."""
    plain = {
        "base": 2.5, "before": 3.3, "after": 2.8, "ratio": 0.3, "output": 1.0,
        "old_alone": 2.9, "new_alone": 2.55, "old_both": 2.5, "new_both": 2.62,
    }  # fmt: skip
    strong = {**plain, "output": output, "after": after, "new_both": both}
    return {design: {"1": plain, "4": strong} for design in ("pre-norm", "post-norm")}


def test_lora_is_hindered_where_it_learns_less_and_not_where_it_is_less_heard():
    name, (trial,) = "strong-residual-mutes-lora", CLAIMS.get("strong-residual-mutes-lora").needs
    found = verdict(name, {trial.name: tuned()})
    assert (found.verdict, found.correction) == ("holds under conditions", "holds")
    drowned = verdict(name, {trial.name: tuned(after=3.1)})
    assert (drowned.verdict, drowned.correction) == ("holds", "fails")
    assert verdict(name, {trial.name: tuned(output=1.1)}).verdict == "false as stated"


def test_adapters_and_two_tasks_are_hindered_by_the_residual_only_if_more_of_it_hinders_more():
    (trial,) = CLAIMS.get("adapters-cannot-keep-up").needs
    assert verdict("adapters-cannot-keep-up", {trial.name: tuned()}).verdict == "false as stated"
    drowned = {trial.name: tuned(after=3.1)}
    assert verdict("adapters-cannot-keep-up", drowned).verdict == "holds"
    name = "old-tasks-leak-through-residual"
    assert verdict(name, {trial.name: tuned()}).verdict == "false as stated"
    assert verdict(name, {trial.name: tuned(both=2.7)}).verdict == "holds"


def test_the_scaling_laws_are_not_checkable_here():
    entry = CLAIMS.get("pre-norm-scaling-laws")
    assert not entry.claim.checkable
    assert rule(entry.claim, {}).verdict == "not checkable here"


# --- with real runs --------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("deeper-is-harder-without-skip", ("holds", None)),
        ("no-skip-needs-warmup", ("holds under conditions", "holds")),
        ("residual-converges-faster", ("holds", None)),
        ("plain-networks-stop-near-twenty", ("holds under conditions", "holds")),
        ("residual-variants-train", ("holds", None)),
    ],
)
def test_the_verdict_of_real_runs(name, expected):
    found = ruled(name, seeds=(0,))
    assert (found.verdict, found.correction) == expected
