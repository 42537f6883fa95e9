"""The harness of the benchmarks measures what it says."""

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def harness(monkeypatch):
    return load("_harness", monkeypatch)


@pytest.fixture
def runner(monkeypatch, harness):
    return load("run", monkeypatch)


def load(name, monkeypatch, folder=FOLDER):
    spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(sys, "path", [str(FOLDER), *sys.path])
    spec.loader.exec_module(module)
    return module


class Clock:
    """Time that passes only when a contender says so."""

    def __init__(self):
        self.now = 0.0
        self.calls = []

    def __call__(self):
        return self.now

    def work(self, name, *seconds):
        waits = iter(seconds * 100)

        def run():
            self.calls.append(name)
            self.now += next(waits)

        return run


@pytest.mark.slow
def test_every_round_runs_every_contender_and_starts_with_another(harness):
    clock = Clock()
    contenders = {name: clock.work(name, 1.0) for name in "abc"}
    harness.interleave(contenders, rounds=3, warmup=1, clock=clock)
    assert "".join(clock.calls) == "abc" + "abc" + "bca" + "cab"


@pytest.mark.slow
def test_a_contender_that_takes_half_again_as_long_has_ratio_one_and_a_half(harness):
    clock = Clock()
    # The machine grows slower from round to round; the ratio inside each round stays.
    contenders = {"plain": clock.work("p", 1, 2, 3), "probed": clock.work("q", 1.5, 3, 4.5)}
    times = harness.interleave(contenders, rounds=6, warmup=0, clock=clock)
    result = harness.ratio(times, "probed", "plain", name="cost", target=1.5)
    assert result.ratio == pytest.approx(1.5)
    assert result.spread == pytest.approx((1.5, 1.5))
    assert result.met is True
    assert result.repetitions == 6
    assert result.compared == "probed / plain"
    assert harness.ratio(times, "probed", "plain", name="cost", target=1.4).met is False
    assert harness.ratio(times, "probed", "plain", name="cost").met is None
    assert harness.ratio(times, "probed", "plain", name="x", target=1.4, at_least=True).met is True
    assert harness.ratio(times, "probed", "plain", name="x", target=1.6, at_least=True).met is False


def test_the_interval_covers_the_true_median_about_nineteen_times_in_twenty(harness):
    random = np.random.default_rng(0)
    covered = 0
    for _ in range(200):
        sample = random.normal(1.0, 0.1, size=25)
        _, low, high = harness.median_with_interval(sample, resamples=500)
        covered += low <= 1.0 <= high
    assert 0.88 < covered / 200 <= 1.0


def test_the_exponent_of_a_linear_growth_is_one_and_of_a_square_two(harness):
    sizes = [12, 24, 48, 96]
    assert harness.exponent(sizes, [5 * n for n in sizes]) == pytest.approx(1)
    assert harness.exponent(sizes, [n * n for n in sizes]) == pytest.approx(2)


def test_peak_memory_sees_what_the_work_adds_and_not_what_stood_before(harness, tmp_path):
    file = tmp_path / "work.py"
    file.write_text(
        "import numpy as np\n"
        "def prepare(megabytes):\n"
        "    print('noise of the preparation')\n"
        "    kept = np.ones(50_000_000 // 8)\n"
        "    def work():\n"
        "        assert kept.sum() + np.ones(int(megabytes) * 1_000_000 // 8).sum() > 0\n"
        "    return work\n"
    )
    small = harness.peak_memory(file, "prepare", "20")
    large = harness.peak_memory(file, "prepare", "80")
    assert small.before > 50e6
    assert large.added - small.added == pytest.approx(60e6, rel=0.2)


def test_the_harness_resets_the_high_water_mark_or_samples(harness, monkeypatch):
    monkeypatch.setattr(harness, "_forget_peak", lambda: False)
    peak = harness._measure_peak(lambda: np.ones(40_000_000 // 8).sum())
    assert peak.highest >= peak.before > 0


def test_new_results_take_the_place_of_the_old_ones_of_the_same_file(harness, runner):
    old = [{"file": "cost", "name": "a"}, {"file": "cost", "name": "b"}, {"file": "z", "name": "c"}]
    fresh = harness.Result("a", "x / y", 1.0, 1.03, 15, (0.9, 1.1))
    rows = runner.merge(old, {"cost": [fresh]})
    assert [(row["file"], row["name"]) for row in rows] == [("cost", "a"), ("z", "c")]
    assert rows[0]["met"] is True
    assert json.loads(json.dumps(rows)) == rows


def test_an_unknown_benchmark_is_answered_with_the_known_ones(runner):
    with pytest.raises(SystemExit, match=r"There is no benchmark 'nothing'.*throughput"):
        runner.BENCHMARKS.find("nothing")
    with pytest.raises(SystemExit, match=r"There is no score 'throughput'.*diagnosis, watch"):
        runner.SCORES.find("throughput")


@pytest.mark.parametrize("shelf", ["BENCHMARKS", "SCORES"])
def test_every_result_that_is_kept_belongs_to_a_file_that_is_there(runner, shelf):
    shelf = getattr(runner, shelf)
    rows = json.loads(shelf.results.read_text())["results"]
    assert {row["file"] for row in rows} <= set(shelf.find(None))
