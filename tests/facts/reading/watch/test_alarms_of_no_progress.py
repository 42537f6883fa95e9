"""G13, G14 and G15: a loss above where the run began, weights that stand still, no gradient at all."""

import numpy as np
import pytest

from leadline.reading.watch.alarm import ALARMS
from leadline.reading.watch.alarms import gradient_zero as zero
from leadline.reading.watch.alarms import loss_above_start as above
from leadline.reading.watch.alarms import weights_not_moving as still
from leadline.reading.watch.history import History
from leadline.record import Reading, Site
from leadline.record.rows.site import RUN
from leadline.record.run.training import VALIDATION_LOSS
from tests.synthetic_history import QUANTITIES, first_steps, warnings_of


def after_start(level, *, start=4.0, scatter=0.0):
    """A loss that begins at `start` and stands at a level from the second update on."""

    def course(step):
        if step == 1:
            return start
        return level + scatter * (1 if step % 2 else -1)

    return course


def above_start(course, **options):
    return warnings_of("loss-above-start", {"train.loss": course}, **options)


def test_a_level_half_as_high_again_as_the_first_loss_is_told():
    assert above.TIMES == 1.5
    assert not above_start(after_start(5.99))
    finding = above_start(after_start(6.01))[0]
    assert finding.severity == "serious"
    assert finding.verdict.startswith("The loss is 6.01 and began at 4:")
    assert finding.details["since"] == 2


def test_twenty_updates_and_ten_losses_are_asked():
    assert (above.LEAST, above.RECENT) == (20, 10)
    assert first_steps(above_start(after_start(40.0), every=1, steps=30))[0] == 20


def test_where_losses_are_read_rarely_the_validation_loss_says_where_the_run_began():
    history = History([*QUANTITIES.values(), VALIDATION_LOSS])
    rows = [
        ("validation.loss", 0, 5.3),
        *(("train.loss", step, 700.0) for step in range(10, 110, 10)),
    ]
    for name, step, value in rows:
        history.add([Reading(name, RUN, "value", value, step=step)])
        said = list(ALARMS.get("loss-above-start").look(history))
        assert bool(said) == (step == 100)
    assert said[0].verdict.startswith("The loss is 700 and began at 5.3")


def test_one_of_ten_losses_below_the_first_is_enough_for_hope():
    assert not above_start(lambda step: 3.9 if step == 1 or step % 10 == 0 else 40.0, every=10)


def test_scattered_losses_have_to_be_ten_times_as_high():
    assert (above.SCATTER, above.TIMES_OF_SCATTERED, above.NOISE) == (0.25, 10.0, 60)
    # Neighbours differ by twice the scatter: sigma = 1.4826 * 2 s / sqrt(2) = 2.097 s.
    quiet, loud = 0.99 / 2.097, 1.01 / 2.097
    assert above_start(after_start(8.0, scatter=quiet))
    assert not above_start(after_start(8.0, scatter=loud))
    assert not above_start(after_start(39.0, scatter=loud))
    assert above_start(after_start(41.0, scatter=loud))


def test_the_scatter_is_taken_of_sixty_losses():
    """Half of the differences of the last sixty losses are large, of more of them fewer."""

    def course(step, large):
        return 4.0 if step == 1 else 8.0 + (2.0 if step > 200 - large and step % 2 else 0.0)

    assert above_start(lambda s: course(s, 29), steps=200, every=200)
    assert not above_start(lambda s: course(s, 32), steps=200, every=200)


def test_a_loss_that_falls_or_is_negative_or_lost_is_not_told():
    assert not above_start(lambda step: 4.0 / step)
    assert not above_start(lambda step: -4.0 + step)
    assert not above_start(lambda step: 4.0 if step < 30 else np.nan)


# --- G14 -------------------------------------------------------------------------------------------


def moving(ratios, *, gradient=1.0, rate=1e-3):
    layers = dict(enumerate(ratios, 1))
    return warnings_of(
        "weights-not-moving",
        {
            "weights.update_ratio": layers,
            "gradient.parameters": {layer: lambda _: gradient for layer in layers},
            "train.rate": lambda _: rate,
        },
        steps=20,
    )


def at_most(step, value=1e-3):
    """Moves up to a step and not after it."""
    return lambda at: value if at <= step else 0.0


def test_weights_that_move_are_not_told():
    assert not moving([lambda _: 1e-12, lambda _: 1e-3])


def test_no_weight_moves():
    finding = moving([lambda _: 0.0] * 3)[0]
    assert finding.severity == "serious"
    assert finding.verdict == "No weight of the model moves: updates change nothing since step 1."
    assert finding.layers == ()
    assert "optimizer" in finding.cause


def test_two_samples_are_asked_because_warm_up_begins_at_zero():
    assert still.SAMPLES == 2
    assert not moving([lambda step: 0.0 if step == 1 else 1e-3] * 2)
    assert first_steps(moving([at_most(5)] * 2))[0] == 15  # 10 and 15 are zero


def test_layers_that_stand_still_beside_others_are_named():
    finding = moving([lambda _: 1e-3, at_most(5), at_most(5)])[0]
    assert (finding.severity, finding.layers) == ("warning", (2, 3))
    assert finding.details["since"] == 10
    assert "layers 2 to 3 do not move, while others do" in finding.verdict


def test_layers_without_a_gradient_are_for_another_alarm():
    assert not moving([lambda _: 0.0] * 2, gradient=0.0)


def test_weights_whose_gradient_nobody_has_read_count():
    assert warnings_of("weights-not-moving", {"weights.update_ratio": {1: lambda _: 0.0}}, steps=5)


def not_held(*, lost_at=0):
    """Two layers: the second one has rows of the gradient up to a step, of zero, and never moves."""
    history = History(QUANTITIES.values())
    for step in (5, 10, 15):
        for layer, ratio, gradient in ((1, 1e-3, 1.0), (2, 0.0, 0.0)):
            site = Site("decoder", layer, 1, "mlp")
            history.add([Reading("weights.update_ratio", site, "value", ratio, step=step)])
            if layer == 1 or step <= lost_at:
                history.add([Reading("gradient.parameters", site, "value", gradient, step=step)])
    return list(ALARMS.get("weights-not-moving").look(history))


@pytest.mark.parametrize("lost_at", [0, 5, 10])
def test_where_the_optimizer_takes_no_gradient_it_does_not_hold_the_weights(lost_at):
    """A gradient of an earlier sample says nothing about this one."""
    (finding,) = not_held(lost_at=lost_at)
    assert finding.layers == (2,)
    assert finding.cause == "no optimizer that stepped holds these parameters"
    assert "requires_grad_(False)" in finding.remedy["words"]
    assert not not_held(lost_at=15)


def test_a_rate_of_zero_is_the_cause():
    finding = moving([lambda _: 0.0] * 2, rate=0.0)[0]
    assert finding.cause == "a learning rate of 0"
    assert "schedule" in finding.remedy["words"]


@pytest.mark.parametrize("last", [1e-3, np.nan])
def test_what_moves_again_is_not_told(last):
    assert not [w for w in moving([lambda s: last if s >= 10 else 0.0]) if w.details["step"] >= 10]


# --- G15 -------------------------------------------------------------------------------------------


def gradients(*courses):
    return warnings_of(
        "gradient-zero", {"gradient.parameters": dict(enumerate(courses, 1))}, steps=20
    )


def test_a_run_without_any_gradient_is_told_at_the_second_sample():
    assert zero.SAMPLES == 2
    said = gradients(lambda _: 0.0, lambda _: 0.0)
    assert first_steps(said)[0] == 5
    assert said[0].severity == "serious"
    assert said[0].verdict.startswith("Every gradient is zero")


def test_a_gradient_anywhere_is_enough():
    assert not gradients(lambda _: 0.0, lambda _: 1e-30)


def test_one_batch_without_a_gradient_is_none_of_it():
    assert not gradients(lambda step: 0.0 if step == 10 else 1.0)
