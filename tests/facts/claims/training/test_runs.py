"""The training runs that the claims share, and how they are read."""

import json
import math
from typing import Any

import numpy as np
import pytest
import torch

from leadline.claims import CLAIMS
from leadline.claims.measure.training_runs import (
    LOOKED_AT,
    SMALL,
    cell,
    curve_of,
    fields_of,
    gain_of,
    profile_of,
    ratios_of,
    slowdown,
    tower,
    train,
    updates_until,
)
from leadline.lab.tasks import build_task
from leadline.reading.map.trainability import MARGIN


@pytest.fixture(scope="module")
def run():
    return cell("pre", 2, steps=10).run(0)


def test_a_run_follows_from_its_seed(run):
    again = dict(cell("pre", 2, steps=10).run(0))
    # The least squares of the readout depend on where a matrix lies in memory, in the last digits.
    assert again.pop("recall") == pytest.approx(run["recall"], rel=1e-9)
    assert again == {name: value for name, value in run.items() if name != "recall"}
    assert cell("pre", 2, steps=10).run(1)["loss"] != run["loss"]


def test_a_run_is_strict_json_and_leaves_the_number_of_threads(run):
    threads = torch.get_num_threads()
    found = tower("plain", 3, steps=5).run(0)
    assert torch.get_num_threads() == threads
    for one in (run, found):
        assert json.loads(json.dumps(one, allow_nan=False)) == one


def test_the_same_run_is_one_trial_and_another_has_another_name():
    assert cell("pre", 12) is cell("pre", 12)
    names = [
        cell("pre", 12).name,
        cell("pre", 24).name,
        cell("post", 12).name,
        cell("pre", 12, steps=200).name,
        cell("pre", 12, warmup=100).name,
        cell("pre", 12, rate=3e-2).name,
        tower("pre", 12, steps=300).name,
        tower("pre", 12, steps=300, rate=2e-3).name,
    ]
    assert len(set(names)) == len(names)


def test_the_gain_is_what_the_loss_is_below_the_cost_of_the_frequencies(run):
    task = build_task(SMALL["task"])
    counts = np.zeros(task.vocabulary)
    for batch in task.evidence():
        counts += np.bincount(batch.targets.numpy().ravel(), minlength=task.vocabulary)
    share = (counts + 0.01) / (counts.sum() + 0.01 * task.vocabulary)
    asked = task.validation(SMALL["examples"]).targets.numpy().ravel()
    unigram = -np.log(share[asked]).mean()
    assert gain_of(run) == pytest.approx(unigram - run["loss"], abs=1e-6)


def test_trains_is_the_margin_of_the_map_and_stuck_is_well_below_it():
    def check(name, number):
        checks = CLAIMS.get(name).claim.checks
        return next(one for one in checks if one.number == number and one.part == "claim")

    trains = check("pre-norm-needs-no-warmup", "cold")
    stuck = check("post-norm-needs-warmup", "cold")
    assert trains.limit == MARGIN == 0.3
    assert 0.0 < stuck.limit < MARGIN / 2
    assert trains.allows(0.3)
    assert not trains.allows(0.29)
    assert stuck.allows(-math.inf)
    assert not stuck.allows(0.11)


def test_a_run_that_overflows_has_no_gain_and_does_not_train():
    # The mean square grows 2.5-fold per layer: 96 layers leave float32 before any update, while at
    # 24 rounding decides, which differs from processor to processor.
    found = cell("no norm", 96, steps=5).run(0)
    assert found["status"] == "diverged"
    assert gain_of(found) == -math.inf


def test_the_gradient_ratio_is_that_of_the_ends_of_the_profile(run):
    values = profile_of(run)
    assert len(values) == 3
    assert ratios_of(run)[1] == pytest.approx(values[0] / values[-1], rel=1e-5)


def test_a_model_trains_from_the_first_reading_below_the_margin_on():
    found = {
        "unigram": 3.1,
        "steps": 60,
        "held_out": [[20.0, 3.0], [40.0, 2.81], [60.0, 2.79]],
        "curve": [[5, 4.0], [10, 2.0], [15, None], [20, 3.5]],
    }
    assert updates_until(found) == 60.0
    assert updates_until(found, 0.1) == 20.0
    assert updates_until({**found, "held_out": [[20.0, 2.8], [40.0, 3.0]]}) == 20.0
    assert updates_until({**found, "held_out": [[20.0, None]]}) == math.inf
    assert curve_of(found) == ((5.0, 10.0, 20.0), (4.0, 2.0, 3.5))


def test_a_run_that_never_trains_counts_with_all_its_updates():
    def one(step, steps=600):
        return {"unigram": 3.1, "steps": steps, "held_out": [] if step is None else [[step, 2.0]]}

    assert slowdown(one(300.0), one(100.0)) == 3.0
    assert slowdown(one(None), one(100.0)) == 6.0
    assert slowdown(one(300.0), one(None)) == 0.0


def test_the_held_out_loss_is_read_on_the_way_where_it_is_asked_for(run):
    assert [step for step, _ in run["held_out"]] == [0.0, 10.0]
    assert run["held_out"][-1][1] == run["loss"]


def test_what_is_seen_inside_is_one_number_per_layer(run):
    assert run["recall"][0] == pytest.approx(1.0, abs=1e-3)
    assert len(run["recall"]) == 3
    assert len(run["without"]) == len(run["updates"]) == 2
    assert "recall" not in cell("pre", 13, steps=1).run(0)


def test_leaving_a_layer_out_is_the_loss_without_its_block():
    fields = fields_of("pre", 2, steps=3)
    trainer, _ = train(fields, seed=0)
    model: Any = trainer.model.eval()
    ids = trainer.task.validation(LOOKED_AT).ids

    def loss():
        with torch.no_grad():
            logits = model(ids)[:, :-1].double()
        return float(torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()))

    whole, blocks = loss(), model.blocks
    expected = []
    for left_out in (0, 1):
        model.blocks = torch.nn.ModuleList([b for n, b in enumerate(blocks) if n != left_out])
        expected.append(loss() - whole)
    found = cell("pre", 2, steps=3).run(0)
    assert found["without"] == pytest.approx(expected, abs=1e-5)
