"""G05, G07, G08, G11 and G12: attention logits, stream, tokens, output logits, rounding."""

import numpy as np
import pytest

from tests.synthetic_history import first_steps, noise, warnings_of

LOGITS, STREAM, EQUAL = "attention-logits-growing", "stream-growing", "tokens-becoming-equal"
DRIFT, ROUNDED = "logits-drifting", "bfloat16-write-loss"


def power(exponent, *, level=1.0):
    return lambda s: level * s**exponent


# --- G05 ---------------------------------------------------------------------------------------


def test_logits_that_run_away_are_said_by_layer_with_the_last_step_before_softmax_froze():
    gauges = {
        "attention.logit_std": {
            1: lambda s: 1.0,
            2: lambda s: 0.1 * np.exp(s / 20),
            3: lambda s: 0.5,
        },
        "attention.entropy": {2: lambda s: 3.0 * np.exp(-s / 40)},
    }
    said = warnings_of(LOGITS, gauges, steps=120)
    # 0.1 exp(s / 20) is 8 at step 87.6
    assert first_steps(said)[0] == 90
    assert (said[0].layers, said[0].sublayer) == ((2,), "attention")
    assert said[0].details["since"] == 90
    assert "Up to step 84" in said[0].remedy["words"]
    assert said[0].evidence[2]["what"] == "entropy of the weights"


@pytest.mark.parametrize(("level", "warned"), [(7.9, False), (8.1, True)])
def test_eight_is_twice_the_freezing_point_of_three_thousand_keys(level, warned):
    assert 2 * np.sqrt(2 * np.log(3000)) == pytest.approx(8.0, abs=0.01)
    gauges = {"attention.logit_std": {1: lambda s: level * np.exp((s - 150) / 40)}}
    assert bool(warnings_of(LOGITS, gauges, steps=150)) is warned


@pytest.mark.parametrize(("growth", "warned"), [(1.45, False), (1.55, True)])
def test_logits_grow_by_half_over_the_last_samples(growth, warned):
    # the window of 21 samples spans 100 steps
    gauges = {"attention.logit_std": {1: lambda s: 20.0 * growth ** ((s - 150) / 100)}}
    assert bool(warnings_of(LOGITS, gauges, steps=150)) is warned


@pytest.mark.parametrize(("reversed_samples", "warned"), [(9, True), (10, False)])
def test_logits_grow_steadily(reversed_samples, warned):
    """Of 21 rising samples the first are in reverse: each of their pairs falls, of 210 in all."""
    tau = 1 - reversed_samples * (reversed_samples - 1) / 210
    assert (tau > 0.6) is warned

    def course(step):
        index = (step - 50) // 5
        place = reversed_samples - 1 - index if 0 <= index < reversed_samples else index
        return 8.0 * np.exp(max(place, 0) / 5)

    said = warnings_of(LOGITS, {"attention.logit_std": {1: course}}, steps=150)
    assert bool([one for one in said if one.details["step"] == 150]) is warned


@pytest.mark.parametrize(("growth", "warned"), [(1.20, False), (1.25, True)])
def test_logits_still_grow_in_the_later_half(growth, warned):
    # eleven of 21 samples, from step 100 to 150, grow by `growth`; the root of 1.5 is 1.225
    def course(step):
        if step < 100:
            return 20.0 * np.exp((step - 100) / 20)
        return 20.0 * growth ** ((step - 100) / 50)

    said = warnings_of(LOGITS, {"attention.logit_std": {1: course}}, steps=150)
    assert bool([one for one in said if one.details["step"] == 150]) is warned


def test_heads_that_have_become_sharp_are_healthy():
    wave = noise(0.05)
    sharp = {"attention.logit_std": {1: lambda s: 12.0 * (1 - np.exp(-s / 8)) * wave(s)}}
    assert warnings_of(LOGITS, sharp, steps=600) == []
    growing = {"attention.logit_std": {1: lambda s: 0.02 * s**0.9}}
    assert warnings_of(LOGITS, growing, steps=600) == []


# --- G07 ---------------------------------------------------------------------------------------


def test_a_stream_that_grows_ever_faster_is_said_by_layer():
    gauges = {
        "stream.norm": {0: lambda s: 1.0, 1: lambda s: 1.0, 2: lambda s: 2.0 ** (s / 20)},
        "stream.largest": {2: lambda s: 2.0 ** (s / 20)},
    }
    said = warnings_of(STREAM, gauges, steps=150)
    # at 120 it has doubled 3 times since step 60; at 135 it is 100 times the first
    assert first_steps(said)[0] == 120
    assert said[0].layers == (2,)
    # the limit that it broke stands beside it, and none that it kept
    assert [(one["what"], one["expected"]) for one in said[0].evidence] == [
        ("doublings in the last half of the run", "below 3")
    ]
    # the last sample below twice the norm at step 60
    assert said[0].details["since"] == 80
    # 2^16 is 65,536, at step 320
    assert "in about 200 updates" in said[0].verdict


@pytest.mark.parametrize(("exponent", "warned"), [(2.9, False), (3.1, True)])
def test_three_doublings_in_half_of_the_run_are_enough(exponent, warned):
    # at step 1 it is high, so that it has not grown a hundredfold
    gauges = {"stream.norm": {1: lambda s: 1e9 if s == 1 else float(s) ** exponent}}
    assert bool(warnings_of(STREAM, gauges, steps=200, every=10)) is warned


@pytest.mark.parametrize(("exponent", "warned"), [(0.95, False), (1.05, True)])
def test_one_doubling_is_enough_after_a_hundredfold_growth(exponent, warned):
    gauges = {"stream.norm": {1: lambda s: 1e-9 if s == 1 else float(s) ** exponent}}
    said = warnings_of(STREAM, gauges, steps=200, every=10)
    assert bool(said) is warned
    assert all(
        [row["expected"] for row in one.evidence] == ["below 100", "below 1"] for one in said
    )


@pytest.mark.parametrize(("count", "warned"), [(9, True), (10, False)])
def test_a_stream_grows_steadily(count, warned):
    course = lambda s: np.exp(reversed_start(count, s) / 2)  # noqa: E731
    said = warnings_of(STREAM, {"stream.norm": {1: course}}, steps=150)
    assert bool([one for one in said if one.details["step"] == 150]) is warned


@pytest.mark.parametrize(("first", "warned"), [(2.02, False), (1.98, True)])
def test_a_hundredfold_growth_is_counted_from_the_first_sample(first, warned):
    # at step 200 it is 200, with an exponent of 1
    gauges = {"stream.norm": {1: lambda s: first if s == 1 else float(s)}}
    assert bool(warnings_of(STREAM, gauges, steps=200, every=10)) is warned


def test_a_stream_is_not_judged_before_a_hundred_updates():
    gauges = {"stream.norm": {1: lambda s: 2.0 ** (s / 10)}}
    assert first_steps(warnings_of(STREAM, gauges, steps=110, every=1))[0] == 100


def test_the_growth_of_a_model_that_learns_is_healthy():
    wave = noise(0.05)
    gauges = {
        "stream.norm": {n: lambda s: 0.3 + 20 * (1 - np.exp(-s / 200)) * wave(s) for n in range(5)},
        "stream.largest": {n: lambda s: 40_000 * noise(0.02, seed=3)(s) for n in range(5)},
    }
    for every in (1, 5, 50):
        assert warnings_of(STREAM, gauges, steps=50 * every, every=every) == []


def test_a_jump_that_is_over_is_no_growth():
    gauges = {"stream.norm": {1: lambda s: 20.0 * noise(0.1)(s) if s > 110 else 1.0}}
    assert first_steps(warnings_of(STREAM, gauges, steps=400))[-1:] in ([], [210], [215], [220])


@pytest.mark.parametrize(("largest", "warned"), [(32_700.0, False), (32_800.0, True)])
def test_half_of_float16_is_near_its_end(largest, warned):
    assert np.finfo(np.float16).max == 65504
    gauges = {
        "stream.norm": {1: lambda s: 1.0},
        "stream.largest": {1: lambda s: largest * 1.001 ** ((s - 150) / 5)},
    }
    said = warnings_of(STREAM, gauges, steps=150)
    assert bool(said) is warned
    if said:
        assert (said[0].quantity, said[0].layers) == ("stream.largest", (1,))


# --- G08 ---------------------------------------------------------------------------------------


def test_tokens_that_stay_one_vector_are_said_by_layer_with_the_step_since_when():
    gauges = {
        "tokens.cosine": {
            0: lambda s: 0.1,
            1: lambda s: 0.9,
            2: lambda s: 0.3 if s < 100 else 0.9999,
            3: lambda s: 0.3 if s < 100 else 0.9999,
        }
    }
    said = warnings_of(EQUAL, gauges)
    assert first_steps(said)[0] == 160
    assert said[0].layers == (2, 3)
    assert said[0].details["since"] == 100
    assert "a checkpoint of step 94 or earlier" in said[0].remedy["words"]


@pytest.mark.parametrize(("distance", "warned"), [(0.0099, True), (0.0101, False)])
def test_equal_is_a_hundredth(distance, warned):
    gauges = {"tokens.cosine": {1: lambda s: 0.5 if s == 1 else 1.0 - distance}}
    assert bool(warnings_of(EQUAL, gauges)) is warned


@pytest.mark.parametrize(("leaves", "warned"), [(161, True), (160, False)])
def test_tokens_are_equal_for_sixty_updates(leaves, warned):
    gauges = {"tokens.cosine": {1: lambda s: 0.9999 if 100 <= s < leaves else 0.5}}
    assert bool(warnings_of(EQUAL, gauges, every=10, steps=200)) is False
    assert bool(warnings_of(EQUAL, gauges)) is warned


def test_a_model_that_learns_frequencies_first_is_healthy():
    gauges = {"tokens.cosine": {n: lambda s: 0.9999 if 10 < s < 60 else 0.4 for n in range(4)}}
    assert warnings_of(EQUAL, gauges) == []


def test_tokens_that_became_equal_before_the_second_sample_need_a_new_start():
    said = warnings_of(EQUAL, {"tokens.cosine": {1: lambda s: 0.991 if s == 1 else 1.0}})
    assert first_steps(said)[0] == 65
    assert "Start again" in said[0].remedy["words"]


@pytest.mark.parametrize(("first", "warned"), [(0.0034, True), (0.0032, False)])
def test_a_model_that_begins_with_much_in_common_is_not_warned_of(first, warned):
    # 0.3 of the first distance
    gauges = {"tokens.cosine": {1: lambda s: 1.0 - (first if s == 1 else 0.001)}}
    assert bool(warnings_of(EQUAL, gauges)) is warned


# --- G11 ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_output_logits_that_drift_are_said_in_both_directions(sign):
    said = warnings_of(DRIFT, {"output.log_z": lambda s: sign * 0.3 * s}, steps=150)
    # 0.3 s is 32 at step 106.7
    assert first_steps(said)[0] == 110
    assert said[0].details["since"] == 110


@pytest.mark.parametrize(("level", "warned"), [(31.9, False), (32.1, True)])
def test_from_thirty_two_on_numbers_of_bfloat16_are_a_quarter_apart(level, warned):
    # eight bits of significand: 2^5 / 2^7
    assert 32 / 128 == 0.25
    course = {"output.log_z": lambda s: level + (s - 150) / 100}
    assert bool(warnings_of(DRIFT, course, steps=150)) is warned


def reversed_start(count, step):
    """The place of a sample of the last 20 up to step 150, the first `count` of them in reverse.

    Of 190 pairs those of the first `count` fall: tau is 1 - count (count - 1) / 190.
    """
    index = (step - 55) // 5
    return max(count - 1 - index if 0 <= index < count else index, 0)


@pytest.mark.parametrize(("count", "warned"), [(9, True), (10, False)])
def test_output_logits_drift_steadily(count, warned):
    assert (1 - count * (count - 1) / 190 > 0.6) is warned
    course = {"output.log_z": lambda s: 33.0 + reversed_start(count, s)}
    said = [one for one in warnings_of(DRIFT, course, steps=150) if one.details["step"] == 150]
    assert bool(said) is warned


def test_logits_of_a_sure_model_that_have_settled_are_healthy():
    wave = noise(0.02)
    course = {"output.log_z": lambda s: 40.0 * (1 - np.exp(-s / 5)) * wave(s)}
    assert warnings_of(DRIFT, course, steps=600) == []


# --- G12 ---------------------------------------------------------------------------------------


def test_writes_that_get_lost_are_said_by_layer():
    gauges = {
        "update.bf16_loss": {1: lambda s: 0.01, 2: lambda s: 0.9 if s >= 100 else 0.01},
    }
    said = warnings_of(ROUNDED, gauges)
    assert first_steps(said)[0] == 120
    assert said[0].layers == (2,)
    assert said[0].details["since"] == 100
    assert said[0].severity == "note"


@pytest.mark.parametrize(("lost", "warned"), [(0.49, False), (0.51, True)])
def test_half_of_a_write_is_much(lost, warned):
    gauges = {"update.bf16_loss": {1: lambda s: lost if s >= 100 else 0.01}}
    assert bool(warnings_of(ROUNDED, gauges)) is warned


@pytest.mark.parametrize(("first", "warned"), [(0.29, True), (0.31, False)])
def test_what_was_so_from_the_start_is_the_design(first, warned):
    gauges = {"update.bf16_loss": {1: lambda s: 0.6 if s >= 100 else first}}
    assert bool(warnings_of(ROUNDED, gauges)) is warned


def test_a_loss_of_writes_that_goes_away_is_not_said():
    gauges = {"update.bf16_loss": {1: lambda s: 0.9 if 100 <= s < 120 else 0.01}}
    assert warnings_of(ROUNDED, gauges) == []
