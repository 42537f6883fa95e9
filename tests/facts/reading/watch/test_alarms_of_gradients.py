"""G03, G04, G06 and G09: gradients and updates beside the run's own past and beside other layers."""

import numpy as np
import pytest

from leadline.reading.watch.alarm import (
    ALARMS,
    LEAST_RATES,
    RATE_SAMPLES,
    RATE_TIMES,
    ask_alarms,
)
from leadline.reading.watch.history import History
from leadline.record import Reading
from leadline.record.rows.site import OUTSIDE, RUN, Site
from tests.synthetic_history import QUANTITIES, first_steps, noise, sites_of, warnings_of

JUMPING, STALE = "gradient-jumping", "second-moment-stale"
LARGE, STILL = "updates-too-large", "layer-not-learning"


def jump(factor, *, at=150, level=1.0, half_width=0.0):
    """A level that alternates by exp(+-half_width) and is `factor` times as high from a step on."""
    return lambda s: level * (factor if s >= at else float(np.exp(half_width * (-1) ** (s // 5))))


def layers(course, numbers=range(1, 5)):
    return dict.fromkeys(numbers, course)


# --- G03 ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("clipping", "words"),
    [
        (lambda _: 1.0, "Clip the gradient and look at the batch of step 150."),
        (lambda _: 0.25, "Clip the gradient and look"),  # a loop that divides by micro-batches
        (lambda step: 1.0 if step < 150 else 0.05, "Clipping leaves 0.05 of it. Look at the batch"),
        (lambda step: 0.9 if step < 150 else 0.05, "Clipping leaves 0.05 of it. Look at the batch"),
    ],
)
def test_who_clips_already_is_not_told_to(clipping, words):
    gauges = {"train.gradient_norm": jump(20.0), "train.clipping": clipping}
    assert warnings_of(JUMPING, gauges, steps=150)[0].remedy["words"].startswith(words)


def test_a_jump_of_the_gradient_names_layers_and_the_step_to_go_back_to():
    said = warnings_of(
        JUMPING,
        {
            "train.gradient_norm": jump(20.0),
            "gradient.parameters": {1: jump(1.1), 2: jump(30.0), 3: jump(25.0)},
        },
        steps=160,
    )
    assert first_steps(said)[0] == 150
    assert (said[0].layers, said[0].stack) == ((2, 3), "stack")
    assert said[0].details["since"] == 150
    assert "a checkpoint of step 144 or earlier" in said[0].remedy["words"]


@pytest.mark.parametrize(("factor", "warned"), [(7.9, False), (8.1, True)])
def test_the_whole_gradient_jumps_by_a_factor_of_eight(factor, warned):
    assert bool(warnings_of(JUMPING, {"train.gradient_norm": jump(factor)}, steps=150)) is warned


@pytest.mark.parametrize(("deviations", "warned"), [(3.9, False), (4.1, True)])
def test_the_whole_gradient_jumps_by_four_spreads(deviations, warned):
    width = np.log(20.0) / (1.4826 * deviations)
    course = jump(20.0, half_width=width)
    assert bool(warnings_of(JUMPING, {"train.gradient_norm": course}, steps=150)) is warned


@pytest.mark.parametrize(("factor", "warned"), [(49.0, False), (51.0, True)])
@pytest.mark.parametrize("quantity", ["gradient.stream", "gradient.parameters"])
def test_one_layer_jumps_alone_by_a_factor_of_fifty(quantity, factor, warned):
    gauges = {
        "train.gradient_norm": jump(1.0),
        quantity: {1: jump(1.0), 2: jump(factor), 3: jump(1.0)},
    }
    said = warnings_of(JUMPING, gauges, steps=150)
    assert bool(said) is warned
    if said:
        assert said[0].layers == (2,)
        assert said[0].quantity == quantity


@pytest.mark.parametrize(("deviations", "warned"), [(7.9, False), (8.1, True)])
def test_one_layer_jumps_by_eight_spreads(deviations, warned):
    width = np.log(60.0) / (1.4826 * deviations)
    gauges = {
        "train.gradient_norm": jump(1.0),
        "gradient.stream": {1: jump(1.0), 2: jump(60.0, half_width=width)},
    }
    assert bool(warnings_of(JUMPING, gauges, steps=150)) is warned


@pytest.mark.parametrize("seed", range(4))
def test_noise_and_the_fall_of_the_first_updates_are_no_jump(seed):
    wave = noise(0.4, seed=seed)
    fall = lambda s: wave(s) * (1.0 + 50.0 / s)  # noqa: E731
    gauges = {"train.gradient_norm": fall, "gradient.stream": layers(fall)}
    for every in (1, 5, 50):
        assert warnings_of(JUMPING, gauges, steps=40 * every, every=every) == []


def test_a_jump_of_the_first_updates_is_not_said():
    assert warnings_of(JUMPING, {"train.gradient_norm": jump(100.0, at=45)}, steps=45) == []


# --- G04 ---------------------------------------------------------------------------------------


def test_gradients_above_their_second_moment_are_said_with_the_highest_layers():
    gauges = {"optimizer.surprise": {1: jump(9.0), 2: jump(80.0), 3: jump(10.0), 4: jump(9.0)}}
    said = warnings_of(STALE, gauges, steps=150)
    assert first_steps(said) == [150]
    assert said[0].layers == (2,)
    assert "a checkpoint of step 144 or earlier" in said[0].remedy["words"]
    # one batch in some thousand does it in healthy runs: no reason to stop a training
    assert said[0].severity == "warning"


@pytest.mark.parametrize(("factor", "warned"), [(7.9, False), (8.1, True)])
def test_the_second_moment_is_stale_at_eight_times_the_past(factor, warned):
    gauges = {"optimizer.surprise": layers(jump(factor))}
    assert bool(warnings_of(STALE, gauges, steps=150)) is warned


@pytest.mark.parametrize(("value", "warned"), [(3.9, False), (4.1, True)])
def test_the_second_moment_is_stale_at_four(value, warned):
    gauges = {"optimizer.surprise": layers(jump(20.0, level=value / 20.0))}
    assert bool(warnings_of(STALE, gauges, steps=150)) is warned


@pytest.mark.parametrize(("deviations", "warned"), [(4.9, False), (5.1, True)])
def test_the_second_moment_is_stale_at_five_spreads(deviations, warned):
    course = jump(12.0, half_width=np.log(12.0) / (1.4826 * deviations))
    assert bool(warnings_of(STALE, {"optimizer.surprise": layers(course)}, steps=150)) is warned


def test_one_layer_or_a_table_of_embeddings_alone_is_not_stale():
    gauges = {"optimizer.surprise": {1: jump(100.0), 2: jump(1.0), 3: jump(1.0)}}
    assert warnings_of(STALE, gauges) == []
    table = {"optimizer.surprise": {0: jump(100.0)}}
    assert warnings_of(STALE, table, stack=OUTSIDE) == []


@pytest.mark.parametrize("seed", range(4))
def test_noise_of_the_second_moment_is_not_stale(seed):
    gauges = {"optimizer.surprise": {n: noise(0.5, seed=10 * seed + n) for n in range(1, 7)}}
    assert warnings_of(STALE, gauges, steps=600) == []


# --- G06 ---------------------------------------------------------------------------------------


def test_updates_that_jump_are_said_with_what_the_rate_did():
    gauges = {"weights.update_ratio": layers(jump(20.0, level=1e-3)), "train.rate": jump(3.0)}
    said = warnings_of(LARGE, gauges, steps=150)
    assert first_steps(said) == [150]
    assert said[0].layers == (1, 2, 3, 4)
    assert "the learning rate 3.0 times" in said[0].verdict
    assert "a checkpoint of step 144 or earlier" in said[0].remedy["words"]


@pytest.mark.parametrize(("factor", "warned"), [(5.9, False), (6.1, True)])
def test_updates_jump_by_a_factor_of_six(factor, warned):
    gauges = {"weights.update_ratio": layers(jump(factor))}
    assert bool(warnings_of(LARGE, gauges, steps=150)) is warned


@pytest.mark.parametrize(("deviations", "warned"), [(4.9, False), (5.1, True)])
def test_updates_jump_by_five_spreads(deviations, warned):
    course = jump(10.0, half_width=np.log(10.0) / (1.4826 * deviations))
    assert bool(warnings_of(LARGE, {"weights.update_ratio": layers(course)}, steps=150)) is warned


@pytest.mark.parametrize(("rate", "warned"), [(7.6, True), (7.8, False)])
def test_what_the_learning_rate_explains_is_no_jump(rate, warned):
    # 10 / 7.69 is 1.3
    gauges = {"weights.update_ratio": layers(jump(10.0)), "train.rate": jump(rate)}
    assert bool(warnings_of(LARGE, gauges, steps=150)) is warned


def test_warm_up_is_no_jump():
    gauges = {
        "weights.update_ratio": layers(lambda s: 1e-5 * s),
        "train.rate": lambda s: 1e-6 * s,
    }
    for every in (1, 5, 50):
        assert warnings_of(LARGE, gauges, steps=30 * every, every=every) == []


@pytest.mark.parametrize(("factor", "warned"), [(19.0, False), (21.0, True)])
def test_one_write_jumps_alone_by_a_factor_of_twenty(factor, warned):
    gauges = {"weights.update_ratio": {1: jump(1.0), 2: jump(factor), 3: jump(1.0)}}
    said = warnings_of(LARGE, gauges, steps=150)
    assert bool(said) is warned
    if said:
        assert said[0].layers == (2,)


@pytest.mark.parametrize(("others", "warned"), [(2.9, True), (3.1, False)])
def test_alone_means_that_the_others_have_not_moved_by_three(others, warned):
    gauges = {"weights.update_ratio": {1: jump(others), 2: jump(50.0), 3: jump(others)}}
    assert bool(warnings_of(LARGE, gauges, steps=150)) is warned


# --- G09 ---------------------------------------------------------------------------------------


def fading(share, *, start=1.0, after=30):
    return lambda s: share if s > after else start


def test_a_layer_whose_gradient_vanishes_is_named_with_the_step_since_when():
    gauges = {
        "gradient.parameters": {1: fading(0.001), 2: fading(0.5), 3: lambda s: 1.0},
    }
    said = warnings_of(STILL, gauges, steps=100)
    assert first_steps(said)[0] == 55
    assert said[0].layers == (1,)
    assert said[0].details["since"] == 35
    assert said[0].severity == "serious"


@pytest.mark.parametrize(("share", "warned"), [(0.0099, True), (0.0101, False)])
def test_a_hundredth_of_the_longest_gradient_is_hardly_any(share, warned):
    gauges = {"gradient.parameters": {1: fading(share), 2: lambda s: 1.0}}
    assert bool(warnings_of(STILL, gauges, steps=100)) is warned


@pytest.mark.parametrize(("start", "warned"), [(0.051, True), (0.049, False)])
def test_the_share_has_to_have_fallen_to_a_tenth(start, warned):
    gauges = {"gradient.parameters": {1: fading(0.005, start=start), 2: lambda s: 1.0}}
    assert bool(warnings_of(STILL, gauges, steps=100)) is warned


@pytest.mark.parametrize(("last", "warned"), [(105, True), (100, False)])
def test_five_samples_in_a_row_are_asked_for(last, warned):
    course = lambda s: 0.001 if 80 <= s < last else 1.0  # noqa: E731
    gauges = {"gradient.parameters": {1: course, 2: lambda s: 1.0}}
    assert bool(warnings_of(STILL, gauges, steps=150)) is warned


def test_the_first_and_the_last_samples_are_others():
    # five low samples, 40 to 80, are there at step 80; ten in all at step 90
    gauges = {"gradient.parameters": {1: fading(0.001), 2: lambda s: 1.0}}
    assert first_steps(warnings_of(STILL, gauges, steps=150, every=10))[0] == 90


def test_a_gradient_of_exactly_zero_is_cut():
    gauges = {"gradient.parameters": {1: lambda s: 0.0, 2: lambda s: 1.0, 3: lambda s: 1.0}}
    said = warnings_of(STILL, gauges, steps=60)
    assert first_steps(said)[0] == 50
    assert said[0].layers == (1,)
    assert "no gradient at all" in said[0].verdict
    assert "detach" in said[0].remedy["words"]


def test_a_design_that_always_had_small_gradients_or_a_gate_at_zero_is_healthy():
    small = {"gradient.parameters": {1: lambda s: 0.005, 2: lambda s: 1.0}}
    assert warnings_of(STILL, small) == []
    gate = {"gradient.parameters": {1: lambda s: 0.0 if s < 20 else 0.3, 2: lambda s: 1.0}}
    assert warnings_of(STILL, gate) == []
    alone = {"gradient.parameters": {1: fading(0.0)}}
    assert warnings_of(STILL, alone) == []
    together = {"gradient.parameters": {1: fading(1e-6), 2: fading(1e-6)}}
    assert warnings_of(STILL, together) == []


def test_stacks_are_compared_with_themselves():
    history = History(QUANTITIES.values())
    for step in range(5, 101, 5):
        history.add(
            Reading("gradient.parameters", Site(stack, layer, 1, "mlp"), "value", size, step=step)
            for stack, layer, size in (
                ("encoder", 1, 1e-4 if step > 30 else 1e-3),
                ("encoder", 2, 1e-3),
                ("decoder", 1, 10.0),
                ("decoder", 2, 1e-5 if step > 30 else 10.0),
            )
        )
    said = list(ALARMS.get(STILL).look(history))
    assert [(one.stack, one.layers) for one in said] == [("decoder", (2,))]


def test_layers_that_are_unfrozen_have_no_past_to_jump_from():
    gauges = {
        "train.gradient_norm": lambda _: 1.0,
        "gradient.parameters": {1: lambda _: 1.0, 2: lambda step: 0.0 if step < 150 else 1.0},
    }
    assert not warnings_of(JUMPING, gauges, steps=200)


# --- what every warning says of the learning rate -----------------------------------------------


def causes(rate):
    history = History(QUANTITIES.values())
    for step in range(5, 155, 5):
        norm = 1.0 if step < 150 else 20.0
        for name, value in (("train.gradient_norm", norm), ("train.rate", rate(step))):
            history.add([Reading(name, RUN, "value", value, step=step)])
    return [one for one in ask_alarms(history) if one.name == JUMPING]


def test_a_rate_that_rose_is_said_first():
    (finding,) = causes(lambda step: 1e-3 if step < 140 else 0.1)
    assert finding.cause.startswith(
        "the learning rate rose from 0.001 to 0.1 after step 135; a batch"
    )
    assert finding.evidence[-1]["what"] == "learning rate"


def test_a_rate_that_rose_before_the_trouble_began_is_said_though_it_is_level_since():
    history = History(QUANTITIES.values())
    for step in range(5, 405, 5):
        rate = 1e-3 if step < 200 else 0.1
        equal = 0.0 if step < 230 else 0.9999
        history.add([Reading("train.rate", RUN, "value", rate, step=step)])
        for site in sites_of("tokens.cosine", [1]):
            history.add([Reading("tokens.cosine", site, "mean", equal, step=step)])
    (finding,) = [one for one in ask_alarms(history) if one.name == "tokens-becoming-equal"]
    assert finding.details["since"] == 230
    assert finding.cause.startswith(
        "the learning rate rose from 0.001 to 0.1 after step 195; attention averages"
    )


def test_a_linear_warm_up_is_no_rise():
    assert (RATE_TIMES, RATE_SAMPLES, LEAST_RATES) == (3.0, 20, 5)
    (finding,) = causes(lambda step: 1e-3 * step)
    assert "learning rate rose" not in finding.cause


def test_a_rate_that_falls_is_no_rise():
    (finding,) = causes(lambda step: 1e-3 / step)
    assert "learning rate rose" not in finding.cause
