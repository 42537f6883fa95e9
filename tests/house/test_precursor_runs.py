"""When a run of the benchmark of precursors fails is decided by its losses."""

import math

import numpy as np
import pytest

from tests.house.test_benchmarks import FOLDER, load


@pytest.fixture
def runs(monkeypatch):
    return load("_precursor_runs", monkeypatch, FOLDER / "scores")


@pytest.fixture
def sets(monkeypatch, runs):
    return load("_precursor_sets", monkeypatch, FOLDER / "scores")


def falling(count=100):
    return list(np.linspace(3.0, 1.0, count))


def test_a_run_fails_at_the_first_update_that_stays_above_by_half_a_nat(runs):
    losses = [*falling(), *[1.6] * 30]
    assert runs.failure(losses) == 101
    assert runs.failure([*falling(), *[1.4] * 30]) is None


def test_a_spike_that_goes_away_is_no_failure(runs):
    assert runs.failure([*falling(), *[9.0] * 14, *[1.0] * 30]) is None
    assert runs.failure([*falling(), *[9.0] * 17, *[1.0] * 30]) == 101


def test_single_updates_do_not_count(runs):
    losses = falling(200)
    losses[150] = losses[160] = 50.0
    assert runs.failure(losses) is None


def test_a_loss_that_is_not_finite_is_a_failure(runs):
    assert runs.failure([*falling(), math.nan]) == 101
    assert runs.failure([*falling(), 5.0, 6.0, 7.0, math.inf]) == 101
    assert runs.failure(falling()) is None


def test_a_run_that_never_learns_fails_where_its_twin_leaves_it_for_good(runs):
    stuck = [2.8] * 100
    twin = [2.8] * 40 + [2.2] * 3 + [2.8] * 7 + [1.5] * 50
    # the median of five is below from the third of the low ones on
    assert runs.failure_beside(stuck, twin) == 53
    assert runs.failure_beside(stuck, [2.8] * 100) is None
    assert runs.failure_beside(stuck, [1.0] * 100) == 1


def test_rates_warm_up_climb_and_fall(runs):
    run = runs.Run(name="", rate=1e-3, warmup=10, steps=100)
    assert runs.rate_at(run, 5) == pytest.approx(5e-4)
    assert runs.rate_at(run, 50) == pytest.approx(1e-3)
    climbing = runs.Run(name="", rate=1e-3, warmup=0, climb=(10, 30, 1e-1))
    assert runs.rate_at(climbing, 10) == pytest.approx(1e-3)
    assert runs.rate_at(climbing, 20) == pytest.approx(1e-2)
    assert runs.rate_at(climbing, 99) == pytest.approx(1e-1)
    falling_rate = runs.Run(name="", rate=1.0, warmup=0, steps=100, cosine=True)
    assert runs.rate_at(falling_rate, 100) == pytest.approx(0.1)
    late = runs.Run(name="", rate=1e-3, warmup=0, shift=50, shift_within=10, late_rate=1e-2)
    assert runs.rate_at(late, 49) == pytest.approx(1e-3)
    assert runs.rate_at(late, 54) == pytest.approx(5.5e-3)
    assert runs.rate_at(late, 60) == pytest.approx(1e-2)


def test_tuning_and_scoring_share_no_run(sets):
    for kind in sets.KINDS:
        tuning, scoring = (
            {str(run.recipe) + run.task for run in part if run.kind == kind}
            for part in (sets.TUNING, sets.SCORING)
        )
        assert not tuning & scoring
        assert len([run for run in sets.SCORING if run.kind == kind]) >= 5
    # Seeds 0 to 4 were scored once, with earlier alarms.
    assert {run.seed for run in sets.SCORING} == set(range(5, 10))
    assert min(run.seed for run in sets.TUNING) >= 100
    healthy = [run for run in sets.SCORING if not run.kind]
    assert len(healthy) == 10
    assert not {run.name for run in sets.TUNING} & {run.name for run in sets.SCORING}
