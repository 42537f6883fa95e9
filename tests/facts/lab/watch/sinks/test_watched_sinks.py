"""What a watched run sends to its sinks is what its record holds."""

import csv
import sys

import pytest
import torch

import leadline
from leadline.lab.watch.sinks import scalars
from leadline.record import Record
from tests.watched import examples, tiny_gpt2


class Failing:
    """A logger whose server is gone."""

    def write(self, step, values):
        raise ConnectionError("no route to host")

    def warn(self, finding):
        raise ConnectionError("no route to host")

    def close(self):
        raise ConnectionError("no route to host")


class Warned:
    """A logger that keeps warnings."""

    def __init__(self):
        self.codes = []

    def write(self, step, values):
        pass

    def warn(self, finding):
        self.codes.append(finding.code)

    def close(self):
        pass


def trained(folder, sinks, *, updates=6, broken_at=None):
    model = tiny_gpt2()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with leadline.watch(
        model, optimizer, folder / "run.leadline", every=2, sinks=sinks, quiet=True
    ) as watch:
        for step, row in enumerate(examples(updates), start=1):
            if step == broken_at:
                with torch.no_grad():
                    model.transformer.h[1].mlp.c_fc.weight[0, 0] = float("nan")
            batch = {name: value.unsqueeze(0) for name, value in row.items()}
            model(**batch).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    return watch


def test_every_scalar_of_the_record_reaches_the_sinks(tmp_path):
    path = tmp_path / "run.csv"
    watch = trained(tmp_path, f"csv(path={path})", updates=7)  # one after the last sample
    assert watch.notes == []
    with path.open(newline="") as lines:
        rows = {(int(row["step"]), row["name"]): row["value"] for row in csv.DictReader(lines)}
    by_step = {}
    with Record.open(tmp_path / "run.leadline") as record:
        for reading in record.select():
            by_step.setdefault(reading.step, []).append(reading)
    expected = {
        (step, name): repr(value)
        for step, readings in by_step.items()
        for name, value in scalars(readings).items()
    }
    assert rows == expected
    assert [step for step, name in rows if name == "leadline/loss"] == [1, 2, 3, 4, 5, 6, 7]
    for name in (
        "leadline/layer_02/stream_norm",
        "leadline/layer_02/attention/update_ratio",
        "leadline/layer_01/mlp/weights_update_ratio",
        "leadline/model/transformer.wte.weight/weights_update_ratio",
        "leadline/gradient_norm",
    ):
        assert [step for step, other in rows if other == name] == [1, 2, 4, 6], name


def test_warnings_reach_the_sinks(tmp_path):
    warned = Warned()
    trained(tmp_path, [warned], broken_at=4)
    assert warned.codes[0] == "G01"


def test_sinks_that_fail_or_are_missing_cost_the_record_nothing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    watch = trained(tmp_path, ["wandb", Failing(), "nothing"])
    assert [note.partition(":")[0] for note in watch.notes] == [
        "Nothing goes to wandb",
        "Nothing goes to nothing",
        "The sink a Failing failed, the run goes on",
        "The sink a Failing failed, it gets nothing more",
    ]
    with Record.open(tmp_path / "run.leadline") as record:
        assert {reading.step for reading in record.select("stream.norm")} == {1, 2, 4, 6}


def test_tensorboard_gets_a_watched_run(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    trained(tmp_path, f"tensorboard(folder={tmp_path}/events)")
    events = EventAccumulator(str(tmp_path / "events"))
    events.Reload()
    norms = events.Scalars("leadline/layer_02/stream_norm")
    assert [one.step for one in norms] == [1, 2, 4, 6]
    with Record.open(tmp_path / "run.leadline") as record:
        expected = [
            one.value
            for one in record.select("stream.norm")
            if (one.site.layer, one.step) == (2, 6)
        ]
    assert norms[-1].value == pytest.approx(expected[0])
