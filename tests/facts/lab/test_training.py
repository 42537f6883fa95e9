"""The page that describes a training: its checks and its learning rate."""

import math

import numpy as np
import pytest

from leadline.errors import LabError, UnknownName
from leadline.lab.fields import known_fields, split_fields
from leadline.lab.training import FLOOR, Training, learning_rate


def test_the_rate_rises_in_a_straight_line_during_warm_up():
    training = Training(rate=0.4, warmup=4, steps=10)
    rates = [learning_rate(training, update) for update in range(1, 7)]
    assert rates == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.4, 0.4])


def test_without_warm_up_the_first_update_has_the_full_rate():
    assert learning_rate(Training(rate=3e-4), 1) == 3e-4


def test_the_cosine_falls_from_the_full_rate_to_a_tenth():
    training = Training(rate=2.0, warmup=2, steps=12, schedule="cosine")
    assert learning_rate(training, 2) == pytest.approx(2.0)
    middle = 2.0 * (0.1 + 0.9 * (1 + math.cos(math.pi * 0.5)) / 2)
    assert learning_rate(training, 7) == pytest.approx(middle)
    assert learning_rate(training, 12) == pytest.approx(0.2)
    assert FLOOR == 0.1


def test_a_shorter_run_ends_its_cosine_earlier():
    training = Training(rate=1.0, steps=100, schedule="cosine")
    assert learning_rate(training, 50, steps=50) == pytest.approx(0.1)


def test_a_warm_up_longer_than_the_run_never_reaches_the_rate():
    training = Training(rate=1.0, steps=10, warmup=100, schedule="cosine")
    assert learning_rate(training, 10) == pytest.approx(0.1)


def test_a_training_comes_back_from_json():
    training = Training(task="stdlib(length=32)", steps=7, clip=1.0, seconds=3.5)
    assert Training.from_json(training.to_json()) == training


def test_a_numpy_integer_becomes_a_plain_one():
    training = Training(steps=np.int64(7), warmup=np.int32(0))
    assert type(training.steps) is int and training == Training(steps=7, warmup=0)


def test_a_change_is_checked():
    with pytest.raises(LabError, match=r"no field 'warmpu'\. Did you mean 'warmup'"):
        Training().but(warmpu=3)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("steps", 0, "steps is 0; give a whole number of at least 1"),
        ("steps", True, "steps is True; give a whole number of at least 1"),
        ("batch", 1.5, "batch is 1.5; give a whole number of at least 1"),
        ("warmup", -1, "warmup is -1; give a whole number of at least 0"),
        ("rate", 0.0, "rate is a number above 0"),
        ("rate", math.nan, "rate is a number above 0"),
        ("rate", math.inf, "rate is a number above 0"),
        ("rate", 10**400, "rate is a number above 0"),
        ("decay", -0.1, "decay is a number from 0 on"),
        ("clip", 0, "clip is a number above 0"),
        ("seconds", "ten", "seconds is a number above 0"),
        ("schedule", "linear", "No schedule is called 'linear'. Known: constant, cosine"),
        ("precision", "int8", "No precision is called 'int8'"),
        ("layers", 1, "layers is true or false"),
        ("accumulate", 3, "cannot be taken in 3 equal pieces"),
    ],
)
def test_a_field_that_makes_no_sense_is_refused(field, value, said):
    with pytest.raises(LabError, match=said):
        Training(**{field: value})


def test_an_unknown_task_is_refused_by_name():
    with pytest.raises(UnknownName, match="Did you mean 'stdlib'"):
        Training(task="stdlb")


def test_recipe_and_training_share_no_field():
    assert len(set(known_fields())) == len(known_fields())


def test_fields_are_split_between_recipe_and_training():
    found = split_fields({"depth": 3, "warmup": 5, "placement": "post"})
    assert found == ({"depth": 3, "placement": "post"}, {"warmup": 5})


def test_a_field_of_neither_is_refused_with_the_nearest():
    with pytest.raises(LabError, match=r"field 'dept'\. Did you mean 'depth'"):
        split_fields({"dept": 3})
