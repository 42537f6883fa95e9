"""G02 and G10: a loss far above its past, and one that does not fall."""

import importlib

import numpy as np
import pytest

from leadline.reading.watch.alarm import ALARMS
from leadline.reading.watch.history import History
from leadline.record import Reading
from leadline.record.rows.site import RUN
from tests.synthetic_history import QUANTITIES, first_steps, noise, warnings_of

SPIKING, FLAT = "loss-spiking", "loss-flat"


def noisy(level=2.0, scale=0.1, seed=0):
    """A level with normal noise of `scale`, the same whenever it is asked."""
    return lambda step: level + scale * float(np.random.default_rng((seed, step)).normal())


def test_a_spike_is_said_at_the_next_sample_with_the_step_to_go_back_to():
    usual = noisy()
    said = warnings_of(
        SPIKING,
        {"train.loss": lambda s: 5.0 if s == 122 else usual(s), "train.rate": lambda s: 1e-3},
    )
    assert first_steps(said) == [125]
    assert said[0].details["since"] == 122
    assert "a checkpoint of step 120 or earlier" in said[0].remedy["words"]
    assert said[0].quantity == "train.loss"


@pytest.mark.parametrize(("height", "warned"), [(7.9, False), (8.1, True)])
def test_a_spike_is_eight_noises(height, warned):
    """Of a loss that alternates by a: spread and noise are 1.4826 a and 1.4826 * 2 a / sqrt(2)."""
    a = 0.1
    noise_of_one = 1.4826 * 2 * a / np.sqrt(2)

    def loss(step):
        return 2.0 + (height * noise_of_one if step == 150 else (-1) ** step * a)

    assert (
        bool(warnings_of(SPIKING, {"train.loss": loss, "train.rate": lambda s: 1.0}, steps=150))
        is warned
    )


def test_the_noise_of_a_spike_is_that_of_sixty_updates_and_its_level_that_of_thirty():
    """Differences of 1 in updates 90 to 119 widen the noise at 150, not any more at 181."""

    def loss(spike):
        def at(step):
            if step == spike:
                return 12.0
            return 2.0 + (0.5 * (-1) ** step if 89 < step < 121 else 0.0)

        return at

    rate = {"train.rate": lambda s: 1.0}
    # 31 of the 59 differences before 150 are 0.5 or 1: the noise is 1.05 and 10 is 9.5 of it
    early = warnings_of(SPIKING, {"train.loss": loss(150), **rate}, steps=150, every=1)
    assert 9.0 < early[-1].evidence[0]["value"] < 10.0
    # before 181 none of the last 60 differences but one is: the floor of 2 % and 0.001 is left
    late = warnings_of(SPIKING, {"train.loss": loss(181), **rate}, steps=181, every=1)
    assert late[-1].evidence[0]["value"] == pytest.approx(10 / (0.02 * 2 + 0.001), rel=0.05)


def test_a_loss_that_is_nearly_gone_may_double():
    quiet = warnings_of(SPIKING, {"train.loss": lambda s: 2e-4 if s % 50 == 0 else 1e-4})
    assert quiet == []
    # the floor at 0 is 0.001: eight of them are a spike
    loud = warnings_of(SPIKING, {"train.loss": lambda s: 0.0085 if s == 100 else 0.0}, steps=100)
    assert first_steps(loud) == [100]
    less = warnings_of(SPIKING, {"train.loss": lambda s: 0.0075 if s == 100 else 0.0}, steps=100)
    assert less == []


def test_a_rise_is_said_with_the_step_at_which_the_loss_was_lowest():
    usual = noisy(scale=0.05)

    def loss(step):
        return usual(step) + (0.01 * (step - 100) if step > 100 else -0.004 * step + 0.4)

    said = warnings_of(SPIKING, {"train.loss": loss, "train.rate": lambda s: 1.0})
    assert 115 <= first_steps(said)[0] <= 140
    assert 90 <= said[0].details["since"] <= 112
    assert said[0].verdict.startswith("The loss rises")


@pytest.mark.parametrize(("height", "warned"), [(3.9, False), (4.1, True)])
def test_a_rise_is_four_noises_of_the_median_of_ten(height, warned):
    a = 0.1
    one = 1.4826 * 2 * a / np.sqrt(2)

    def loss(step):
        return 2.0 + (-1) ** step * a + (height * one if step > 141 else 0.0)

    # of the last ten updates before 151 nine are up; the median of the ten at 150 is up as a whole
    said = warnings_of(
        SPIKING, {"train.loss": loss, "train.rate": lambda s: 1.0}, steps=152, every=152
    )
    assert bool([one for one in said if "rises" in one.verdict]) is warned


def test_the_level_of_a_rise_is_the_median_of_ten_updates():
    one = 1.4826 * 2 * 0.1 / np.sqrt(2)

    def said(up):
        course = lambda s: 2.0 + (-1) ** s * 0.1 + (6 * one if s > 150 - up else 0.0)  # noqa: E731
        found = warnings_of(SPIKING, {"train.loss": course, "train.rate": lambda s: 1.0}, steps=150)
        return [one for one in found if one.details["step"] == 150]

    # with five of ten up the median is half way, at three noises
    assert not said(5)
    assert "in the last 10 updates" in said(6)[0].verdict


def test_the_lowest_level_is_looked_for_in_two_hundred_updates():
    def last_said(low):
        course = lambda s: 1.0 if low <= s < low + 20 else 2.0 + 0.02 * (-1) ** s  # noqa: E731
        said = warnings_of(SPIKING, {"train.loss": course, "train.rate": lambda s: 1.0}, steps=300)
        return [one for one in said if one.details["step"] == 300]

    # of the first ten of the last 200, five are low, and their median is half way down
    assert "rises" in last_said(86)[0].verdict
    assert not last_said(85)


@pytest.mark.parametrize("seed", range(5))
def test_noise_and_a_healthy_fall_are_no_spike(seed):
    usual = noisy(scale=0.15, seed=seed)
    fall = {"train.loss": lambda s: usual(s) + 3.0 * np.exp(-s / 60), "train.rate": lambda s: 1e-3}
    assert warnings_of(SPIKING, fall, steps=600) == []


def test_the_first_updates_may_do_anything():
    wild = {"train.loss": lambda s: 100.0 if s == 45 else 5.0, "train.rate": lambda s: 1.0}
    assert warnings_of(SPIKING, wild, steps=49, every=1) == []
    assert warnings_of(
        SPIKING, wild | {"train.loss": lambda s: 100.0 if s == 50 else 5.0}, steps=50, every=1
    )


def test_a_loss_that_is_not_finite_is_for_another_alarm():
    assert warnings_of(SPIKING, {"train.loss": lambda s: np.nan if s > 90 else 2.0}) == []


def flat(loss, *, rate=lambda s: 1e-3, steps=700):
    return warnings_of(FLAT, {"train.loss": loss, "train.rate": rate}, steps=steps, every=20)


def test_a_loss_that_does_not_fall_is_said_once_three_hundred_updates_are_flat():
    usual = noisy(level=3.0, scale=0.05)
    said = warnings_of(
        FLAT, {"train.loss": usual, "train.rate": lambda s: 1e-3}, steps=604, every=2
    )
    assert first_steps(said)[0] == 600
    assert said[0].details["since"] == 300
    assert said[0].severity == "note"


@pytest.mark.parametrize(("share", "warned"), [(0.009, True), (0.011, False)])
def test_flat_is_a_fall_of_less_than_a_hundredth(share, warned):
    # from step 300 to 600 the loss falls by `share` of its middle, 1
    loss = lambda s: 1.0 + share * (450 - s) / 300 if s > 5 else 4.0  # noqa: E731
    assert bool(flat(loss, steps=600)) is warned


@pytest.mark.parametrize(("now", "warned"), [(0.049, False), (0.051, True)])
def test_a_loss_that_has_gone_is_not_flat(now, warned):
    assert bool(flat(lambda s: 1.0 if s <= 5 else now)) is warned


@pytest.mark.parametrize(("now", "warned"), [(0.49, False), (0.51, True)])
def test_the_end_of_a_schedule_is_not_flat(now, warned):
    assert bool(flat(lambda s: 2.0, rate=lambda s: 1.0 if s < 200 else now)) is warned


def test_where_a_run_began_is_the_median_of_five_losses():
    assert flat(lambda s: 100.0 if s <= 2 else 1.0)
    assert not flat(lambda s: 100.0 if s <= 3 else 1.0)
    assert not flat(lambda s: 100.0 if s <= 3 else 3.0)


def test_few_losses_are_not_enough():
    def said(last):
        history = History(QUANTITIES.values())
        history.add(
            Reading("train.loss", RUN, "value", 2.0, step=s) for s in range(15, last + 1, 15)
        )
        return list(ALARMS.get(FLAT).look(history))

    assert said(900)  # 465 to 900 are 30 losses
    assert not said(870)  # 450 to 870 are 29


def test_a_slope_is_taken_of_sixty_medians(monkeypatch):
    points = []
    module = importlib.import_module("leadline.reading.watch.alarms.loss_flat")
    monkeypatch.setattr(module, "slope", lambda x, y: points.append(len(x)) or 0.0)
    flat(lambda s: 2.0)
    assert points[-1] == 60


def test_noise_around_a_fall_is_not_flat():
    wave = noise(0.05)
    assert not flat(lambda s: 4.0 * (s + 20) ** -0.1 * wave(s))
