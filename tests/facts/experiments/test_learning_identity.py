"""Learning the identity: the blocks and their starts, the training, the answer."""

from __future__ import annotations

import csv
import json
import math
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from leadline.cli.main import run
from leadline.errors import InputError
from leadline.experiments import EXPERIMENTS
from leadline.experiments.learning_identity import (
    JUDGED,
    READINGS,
    STARTS,
    SURE,
    UNLEARNED,
    IdentityCase,
    LearningIdentityOptions,
    _answer,
    _compared,
    _unlearned,
    advantage,
    drawn,
    learning_identity,
    mapped,
    standard_error,
    trained,
    verdict,
)
from leadline.experiments.outcome.outcome import Outcome

SMALL = LearningIdentityOptions(width=8, blocks=4, steps=60, batch=16, seeds=2)


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    return learning_identity(SMALL)


def case(
    *errors: float, skip: bool = False, blocks: int = 1, start: str = "small", share: float = 1.0
) -> IdentityCase:
    shares = np.full((blocks, len(errors)), share)
    return IdentityCase(
        blocks, skip, start, np.ones((3, len(errors))), np.array(errors), shares, shares
    )


def test_it_is_an_experiment_with_these_sizes_and_constants() -> None:
    assert EXPERIMENTS.get("learning-identity").function() is learning_identity
    full = LearningIdentityOptions()
    assert (full.width, full.blocks, full.steps, full.batch) == (32, 12, 400, 64)
    assert (full.rate, full.seeds, full.seed) == (1e-3, 5, 0)
    assert STARTS == {"small": (1 / 3, 1 / 3), "kept": (2.0, 1.0)}
    assert (READINGS, JUDGED, SURE, UNLEARNED) == (50, 1024, 2.0, 0.9)


@pytest.mark.parametrize(("start", "share"), [("small", 1 / 18), ("kept", 1.0)])
def test_a_start_has_the_mean_square_that_it_promises(start: str, share: float) -> None:
    setting = replace(SMALL, width=32, seeds=40)
    weights = drawn(setting, blocks=1, start=start)
    x = torch.randn(40, 64, 32, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        _, shares = mapped(x, weights, skip=False)
    assert float(shares[0].square().mean()) == pytest.approx(share, rel=0.05)


def test_the_small_start_has_the_variance_of_a_linear_layer_of_torch() -> None:
    torch.manual_seed(0)
    layer = torch.nn.Linear(64, 4096)
    assert float(layer.weight.detach().var() * 64) == pytest.approx(STARTS["small"][0], rel=0.02)


def test_a_block_is_two_matrices_with_relu_between_them_and_a_skip_adds_its_input() -> None:
    weights = drawn(SMALL, blocks=2, start="kept")
    for block in weights:
        block[1] += 0.3
        block[3] -= 0.2
    x = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(2))
    for skip in (False, True):
        y, shares = mapped(x, weights, skip=skip)
        for seed in (0, 1):
            z = x[seed]
            for block, share in zip(weights, shares, strict=True):
                up, lift, down, shift = (one[seed] for one in block)
                u = torch.relu(z @ up + lift) @ down + shift
                assert float(share[seed]) == pytest.approx(float(u.norm() / z.norm()), rel=1e-5)
                z = z + u if skip else u
            assert torch.allclose(y[seed], z, atol=1e-5)


def test_every_seed_is_trained_as_if_it_were_alone() -> None:
    setting = replace(SMALL, steps=12, seeds=3)
    together = trained(setting, blocks=2, skip=True, start="small")
    for seed in range(3):
        alone = trained(replace(setting, seeds=1, seed=seed), blocks=2, skip=True, start="small")
        assert alone.curve[:, 0] == pytest.approx(together.curve[:, seed], rel=1e-4)
        assert alone.error[0] == pytest.approx(together.error[seed], rel=1e-4)


def test_the_training_is_that_of_plain_modules_with_adam() -> None:
    setting = replace(SMALL, steps=9, seeds=1, rate=3e-3)
    found = trained(setting, blocks=1, skip=False, start="kept")
    ((up, _, down, _),) = drawn(setting, blocks=1, start="kept")
    first, second = torch.nn.Linear(8, 32), torch.nn.Linear(32, 8)
    with torch.no_grad():
        first.weight.copy_(up[0].T)
        second.weight.copy_(down[0].T)
        first.bias.zero_()
        second.bias.zero_()
    net = torch.nn.Sequential(first, torch.nn.ReLU(), second)
    adam = torch.optim.Adam(net.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(1)
    judged = torch.randn(JUDGED, 8, generator=generator)
    losses: list[float] = []
    for _ in range(9):
        x = torch.randn(16, 8, generator=generator)
        loss = torch.nn.functional.mse_loss(net(x), x)
        losses.append(loss.item())
        adam.zero_grad()
        loss.backward()
        adam.step()
    assert found.curve[:-1, 0] == pytest.approx(losses, rel=1e-4)
    with torch.no_grad():
        assert found.error[0] == pytest.approx(
            float((net(judged) - judged).square().mean()), rel=1e-4
        )


def test_the_readings_are_spread_over_the_steps() -> None:
    assert SMALL.readings[0] == 0 and SMALL.readings[-1] == 60
    assert len(LearningIdentityOptions().readings) == READINGS + 1
    assert replace(SMALL, steps=3).readings == (0, 1, 2, 3)


def test_one_block_learns_nothing_sooner_than_the_identity() -> None:
    for start in STARTS:
        plain, skip = (trained(SMALL, blocks=1, skip=s, start=start) for s in (False, True))
        assert np.all(skip.error < plain.error)
        assert verdict(plain, skip) == "F = 0"


def test_a_row_from_a_small_start_learns_with_a_skip_alone() -> None:
    setting = replace(SMALL, blocks=12)
    plain, skip = (trained(setting, blocks=12, skip=s, start="small") for s in (False, True))
    assert np.all(plain.error > UNLEARNED) and np.all(skip.error < 0.5)


def test_with_a_skip_and_the_kept_start_a_row_begins_exploded() -> None:
    setting = replace(SMALL, blocks=12, steps=1, seeds=4, width=32)
    plain, skip = (trained(setting, blocks=12, skip=s, start="kept") for s in (False, True))
    # The mean square of the stream doubles in every block: 2^12 at the end.
    assert 1024 < skip.curve[0].mean() < 16384
    assert plain.curve[0].mean() < 10


def test_the_margin_is_the_mean_of_the_logarithms_in_standard_errors() -> None:
    plain, skip = case(1.0, 1.0), case(0.1, 0.001, skip=True)
    # The differences of log10 are 1 and 3: mean 2, standard error sqrt(2) / sqrt(2) = 1.
    assert advantage(plain, skip) == pytest.approx((2.0, 1.0))
    assert verdict(plain, skip) == ""  # two standard errors are not more than two
    assert verdict(plain, case(0.1, 0.002, skip=True)) == "F = 0"
    assert verdict(case(0.1, 0.002), case(1.0, 1.0, skip=True)) == "F = x"
    assert verdict(case(1.0), case(1e-9, skip=True)) == ""  # one seed shows no spread
    assert math.isnan(standard_error(np.array([1.0])))


def test_the_answer_says_on_what_it_depends() -> None:
    assert _answer({"a": "F = 0", "b": "F = 0"}, SMALL) == (
        "F = 0 is learned better in every case after 60 steps."
    )
    assert _answer({"a": "", "b": ""}, SMALL).startswith("No case shows a difference")
    mixed = _answer({"a": "F = 0", "b": "F = x", "c": ""}, SMALL)
    assert mixed == (
        "The answer depends on the start after 60 steps: F = 0 is learned better with a, "
        "but F = x is learned better with b; undecided: c."
    )


def test_one_seed_has_no_spread_and_gets_numbers_without_a_verdict() -> None:
    plain, skip = case(1.0), case(0.01, skip=True, share=0.5)
    told = _compared(plain, skip, verdict(plain, skip))
    assert "the error is 1 without skip and 0.01 with it, 100 times as large" in told
    assert "in this one seed, which has no spread to judge that by" in told
    assert "spread of the seeds" not in told and "smaller" not in told
    assert "spread of the seeds" in _compared(case(1.0, 1.0), case(1.1, 0.9, skip=True), "")
    one = replace(SMALL, steps=3, seeds=1)
    remarks = learning_identity(one).remarks
    assert sum("this one seed" in remark for remark in remarks) == 4
    assert remarks[4] == (
        "One seed has no spread, so nothing is said about which is learned better after 3 steps: "
        "ask for two seeds or more."
    )


def test_what_learned_nearly_nothing_is_named() -> None:
    assert list(_unlearned([case(0.89, 0.95)])) == []
    (told,) = _unlearned([case(0.91, 0.95), case(0.1, 0.1)])
    assert told.endswith("whose error is 1: 1 block, no skip, F = x, small start.")


def test_the_outcome_has_two_panels_of_four_lines_and_their_errors(outcome: Outcome) -> None:
    assert len(outcome.panels) == 2 and len(outcome.lines) == 8
    for line in outcome.lines:
        assert len(line.values) == len(line.errors) == len(SMALL.readings)
        assert outcome.places[line.panel].at == SMALL.readings
    assert [len(table.rows) for table in outcome.tables] == [4, 4]
    for table in outcome.tables:
        for mean, error, low, high, *_ in table.rows:
            assert low <= mean <= high and error >= 0


@pytest.mark.parametrize("field", ["width", "blocks", "steps", "batch", "seeds"])
def test_what_cannot_be_trained_is_refused(field: str) -> None:
    least = 2 if field == "blocks" else 1
    with pytest.raises(InputError) as caught:
        learning_identity(replace(SMALL, **{field: least - 1}))
    assert str(caught.value) == f"{field} is {least - 1}; give a whole number from {least} on."


def test_a_rate_of_nothing_is_refused() -> None:
    with pytest.raises(InputError, match=r"rate is 0.0; give a learning rate above 0"):
        learning_identity(replace(SMALL, rate=0.0))


def test_the_command_writes_picture_and_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = ["--blocks", "2", "--width", "8", "--steps", "6", "--seeds", "2"]
    with pytest.raises(SystemExit) as left:
        run(["reproduce", "learning-identity", *small, "-o", str(tmp_path), "--json"])
    assert not left.value.code
    told = json.loads(capsys.readouterr().out)
    assert told["experiment"] == "learning-identity"
    assert next(iter(told["places"].values())) == {"axis": "step", "at": [0, 1, 2, 3, 4, 5, 6]}
    assert len(told["lines"][0]["errors"]) == 7
    with (tmp_path / "table.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["step"] for row in rows} == {"", "0", "1", "2", "3", "4", "5", "6"}
    words = " ".join(ET.parse(tmp_path / "picture.svg").getroot().itertext())
    assert "2 blocks: log₁₀ of the mean squared error" in words and "step" in words
