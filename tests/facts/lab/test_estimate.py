"""What a sweep will cost: FLOPs are those of its steps, seconds follow from one speed."""

import math

import pytest

from leadline.lab.cost import flops_of
from leadline.lab.estimate import estimate
from leadline.lab.tasks import build_task
from leadline.parts import Recipe


def test_the_flops_of_a_cell_are_those_of_a_step_times_the_steps(tiny):
    task = build_task("copy(items=4)")
    recipe = Recipe(depth=2, width=16, heads=2, vocabulary=task.vocabulary, context=task.length)
    one = flops_of(recipe, examples=4, length=task.length)
    (cost,) = estimate(tiny("depth=2"))
    assert (cost.run, cost.steps, cost.flops) == ("depth=2, seed=0", 6, 6 * one)
    (cost,) = estimate(tiny("depth=2", flops=2.5 * one))
    assert (cost.steps, cost.flops) == (2, 2 * one)


def test_all_seconds_follow_from_one_speed_and_what_cannot_be_has_a_reason(tiny):
    told = []
    costs = estimate(tiny("depth=1,2", "heads=2,3"), progress=lambda *said: told.append(said))
    possible = [cost for cost in costs if not cost.reason]
    assert [cost.run for cost in possible] == [
        "depth=1, heads=2, seed=0",
        "depth=2, heads=2, seed=0",
    ]
    speeds = [cost.flops / cost.seconds for cost in possible]
    assert speeds[0] == pytest.approx(speeds[1]) and speeds[0] > 0
    assert "cannot be divided among 3 heads" in costs[1].reason
    assert math.isnan(costs[1].seconds)
    assert told[-1] == ("counting FLOPs", 3, 4)
