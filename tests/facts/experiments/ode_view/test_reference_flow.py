"""The reference flow: its own error is known, and small against what is judged by it."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from leadline.experiments.ode_view import OdeViewOptions
from leadline.experiments.ode_view import reference_flow as reference
from leadline.experiments.ode_view.experiment import (
    DEPTHS,
    _field,
    _network,
    _normed,
    _projected,
    _tangent,
)
from leadline.experiments.ode_view.reference_flow import Reference, apart, followed, runge_kutta


def turning(rate: float) -> tuple[reference.Field, Tensor, Tensor]:
    """A circle of which the flow is known, where it starts and where it is after the time 1."""
    turn = torch.tensor([[0.0, -rate], [rate, 0.0]], dtype=torch.float64)
    start = torch.tensor([1.0, 0.0], dtype=torch.float64)
    end = torch.tensor([math.cos(rate), math.sin(rate)], dtype=torch.float64)
    return lambda x: turn @ x, start, end


def test_the_constants_are_these() -> None:
    assert (reference.FIRST, reference.MOST, reference.FINER) == (256, 4096, 20.0)


def test_the_error_falls_with_the_fourth_power_of_the_steps() -> None:
    field, start, end = turning(8.0)
    errors = [apart(runge_kutta(field, start, 1.0, steps=n), end) for n in (64, 128, 256)]
    for coarse, fine in itertools.pairwise(errors):
        assert coarse / fine == pytest.approx(16.0, rel=0.05)


def test_the_estimate_is_above_the_true_error_by_fifteen() -> None:
    field, start, end = turning(8.0)
    found = followed(field, start, 1.0, judging=[torch.zeros(2, dtype=torch.float64)])
    assert found.steps == 256
    assert found.error / apart(found.end, end) == pytest.approx(15.0, rel=0.05)


def test_steps_are_doubled_until_the_error_is_a_twentieth_of_what_is_judged() -> None:
    field, start, end = turning(100.0)
    for off in (0.5, 1e-3, 1e-4):
        found = followed(field, start, 1.0, judging=[end * (1 + off), end * 3.0])
        assert found.error <= off / 20 * 1.05
        assert found.judged(end * (1 + off)) == pytest.approx(off, rel=0.05)
        # Half as many steps would not have been enough.
        halves = [runge_kutta(field, start, 1.0, steps=found.steps // n) for n in (2, 4)]
        if found.steps > 256:
            assert apart(halves[1], halves[0]) > apart(end * (1 + off), halves[0]) / 20


def test_what_is_too_near_to_be_judged_is_refused() -> None:
    field, start, end = turning(1000.0)
    found = followed(field, start, 1.0, judging=[end * (1 + 1e-9)])
    assert found.steps == 4096
    assert math.isnan(found.judged(end * (1 + 1e-9)))
    one = Reference(torch.ones(4), 256, 0.05)
    assert one.judged(2.1 * torch.ones(4)) == pytest.approx(1.1)  # 20 times 0.05 is 1
    assert math.isnan(one.judged(1.9 * torch.ones(4)))


def test_a_flow_that_is_not_known_itself_judges_nothing() -> None:
    # Steps that are too long damp the circle: everything else seems far away from it.
    field, start, end = turning(1000.0)
    coarse, fine = (runge_kutta(field, start, 1.0, steps=n) for n in (512, 1024))
    assert apart(end, fine) > 20 * apart(coarse, fine)
    assert followed(field, start, 1.0, judging=[end]).steps == 4096
    known, unknown = (Reference(torch.ones(4), 256, error) for error in (0.05, 0.0501))
    assert known.judged(100 * torch.ones(4)) == pytest.approx(99.0)
    assert math.isnan(unknown.judged(100 * torch.ones(4)))


def test_a_flow_that_leaves_all_numbers_is_refused() -> None:
    start = torch.ones(2, dtype=torch.float64)
    found = followed(lambda x: x**3, start, 5.0, judging=[start])
    assert found.steps == 4096 and not math.isfinite(found.error)
    assert math.isnan(found.judged(start))


def test_a_field_of_nothing_is_known_exactly() -> None:
    start = torch.ones(2, dtype=torch.float64)
    found = followed(torch.zeros_like, start, 1.0, judging=[start])
    assert (found.steps, found.error, found.judged(start)) == (256, 0.0, 0.0)


@pytest.mark.slow
def test_a_long_time_gets_a_finer_reference_and_true_errors() -> None:
    field, x = _field(_network(OdeViewOptions(), 0, {"depth": 1}), 1)
    sphere, time = _normed(x), 50.0

    def tangent(at: Tensor) -> Tensor:
        return _tangent(at, field(at))

    ends = [_projected(field, sphere, time / depth, depth) for depth in DEPTHS]
    found = followed(tangent, sphere, time, judging=ends)
    assert 256 < found.steps < 4096
    true = runge_kutta(tangent, sphere, time, steps=4096)
    for end in ends:
        assert found.judged(end) == pytest.approx(apart(end, true), rel=0.05)
    # With 256 steps the last one would not have been known.
    coarse = runge_kutta(tangent, sphere, time, steps=256)
    assert apart(ends[-1], coarse) != pytest.approx(apart(ends[-1], true), rel=0.05)
