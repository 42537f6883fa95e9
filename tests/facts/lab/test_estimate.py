"""What a sweep will cost: FLOPs are those of its steps, seconds follow from one speed."""

import itertools
import math
import random

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from leadline.errors import LabError
from leadline.lab import estimate as estimate_module
from leadline.lab.cell import run_cell
from leadline.lab.cost import affordable_steps, flops_of
from leadline.lab.estimate import estimate, makespan
from leadline.lab.tasks import build_task
from leadline.parts import Recipe, Transformer


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


@pytest.mark.parametrize("connection", ["identity", "gtrxl", "hyper", "manifold_hyper"])
def test_the_operations_are_those_that_a_whole_batch_with_numbers_takes(connection):
    recipe = Recipe(depth=2, width=16, heads=2, vocabulary=50, context=8, connection=connection)
    model, ids = Transformer(recipe), torch.zeros(5, 8, dtype=torch.long)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model(ids).sum().backward()
    found = flops_of(recipe, examples=5, length=8)
    assert found == counter.get_total_flops() == 5 * flops_of(recipe, examples=1, length=8)


def test_counting_with_numbers_leaves_the_random_numbers_as_they_were():
    before = torch.get_rng_state()
    flops_of(
        Recipe(depth=1, width=16, heads=2, vocabulary=9, context=4, connection="hyper"),
        examples=3,
        length=4,
    )
    assert torch.equal(torch.get_rng_state(), before)


def test_a_budget_of_flops_works_for_parts_that_need_numbers(tiny):
    task = build_task("copy(items=4)")
    recipe = Recipe(
        depth=1,
        width=16,
        heads=2,
        connection="hyper",
        vocabulary=task.vocabulary,
        context=task.length,
    )
    one = flops_of(recipe, examples=4, length=task.length)
    what = tiny("depth=1", connection="hyper", flops=2.5 * one)
    (cost,) = estimate(what)
    assert (cost.steps, cost.flops) == (2, 2 * one)
    (cell,) = what.cells()
    facts = run_cell(cell, folder=None).facts
    assert (facts["status"], facts["steps"], facts["flops"]) == ("finished", 2, 2 * one)


def test_a_budget_below_one_step_is_told_as_the_run_tells_it(tiny):
    what = tiny("depth=1", flops=10.0)
    (cost,) = estimate(what)
    assert (cost.steps, math.isnan(cost.flops), math.isnan(cost.seconds)) == (0, True, True)
    assert cost.reason.startswith("One step costs ")
    (cell,) = what.cells()
    assert run_cell(cell, folder=None).facts["reason"] == cost.reason


def test_the_steps_that_a_budget_allows():
    assert affordable_steps(7, cost=2.0, flops=None) == 7
    assert affordable_steps(7, cost=2.0, flops=5.0) == 2
    assert affordable_steps(7, cost=2.0, flops=2.0) == 1
    assert affordable_steps(7, cost=2.0, flops=100.0) == 7
    with pytest.raises(LabError, match=r"One step costs 2 FLOPs and the budget is 1\.9; raise"):
        affordable_steps(7, cost=2.0, flops=1.9)


def test_what_cannot_be_counted_or_built_does_not_stop_the_rest(tiny, monkeypatch):
    count = estimate_module.total_flops

    def counted(recipe, training, task, *, steps):
        if recipe.depth == 2:
            return math.nan
        return count(recipe, training, task, steps=steps)

    monkeypatch.setattr(estimate_module, "total_flops", counted)
    costs = estimate(tiny("depth=1,2"))
    assert [math.isfinite(cost.seconds) for cost in costs] == [True, False]
    assert [(cost.steps, cost.reason) for cost in costs] == [(6, "")] * 2
    costs = estimate(tiny("depth=1,2", flops=1e9))
    assert "needs parts that can be counted; give steps instead" in costs[1].reason
    (cost,) = estimate(tiny("depth=1", attention="multihead(causal=false)"))
    assert "which a bidirectional model sees" in cost.reason


def test_a_limit_of_seconds_limits_the_estimate(tiny):
    (cost,) = estimate(tiny("depth=1", steps=10**9, seconds=5.0))
    assert cost.seconds == 5.0


def test_the_longest_cell_goes_to_the_worker_that_is_free_first():
    assert makespan([10.0], 2) == 10.0
    assert makespan([3.0, 5.0, 4.0, 3.0, 3.0], 2) == 10.0
    assert makespan([1.0, 2.0, 3.0], 1) == 6.0
    assert makespan([], 2) == 0.0


def test_the_order_is_at_most_a_third_longer_than_the_best():
    chance = random.Random(0)
    for _ in range(30):
        lengths = [chance.uniform(0.1, 1.0) for _ in range(6)]
        best = min(
            max(sum(n for n, at in zip(lengths, where, strict=True) if at == w) for w in range(2))
            for where in itertools.product(range(2), repeat=6)
        )
        assert best <= makespan(lengths, 2) * (1 + 1e-12) and makespan(lengths, 2) <= 4 / 3 * best
