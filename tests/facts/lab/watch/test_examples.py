"""The examples of watched trainings run, and leave a record that holds what they say."""

from pathlib import Path

import pytest

from leadline.reading.watch.history import History
from leadline.record import Record
from tests.watched import run_python

EXAMPLES = Path(__file__).parents[4] / "examples"
NEEDS = {
    "plain_loop": (),
    "trainer": ("transformers", "accelerate"),
    "lightning": ("transformers", "lightning"),
    "accelerate": ("transformers", "accelerate"),
}


def test_every_example_of_a_watch_is_run_here():
    assert {file.stem for file in EXAMPLES.glob("watch_*.py")} == {
        f"watch_{name}" for name in NEEDS
    }


@pytest.mark.parametrize("name", NEEDS)
def test_an_example_runs_and_its_record_shows_every_layer(tmp_path, name):
    for library in NEEDS[name]:
        pytest.importorskip(library)
    path = tmp_path / "run.leadline"
    ended = run_python(EXAMPLES / f"watch_{name}.py", path, folder=tmp_path)
    assert f"60 updates are in {path}" in ended.stdout
    assert "Watched 60 updates, 7 of them sampled" in ended.stderr
    with Record.open(path) as record:
        history = History.of(record)
        watched = record.provenance["watch"]
    assert watched["closed"] and watched["notes"] == []
    loss = history.of_run("train.loss")
    assert loss.steps.tolist() == list(range(1, 61))
    assert loss.values[-10:].mean() < loss.values[:10].mean()
    stream = history.by_layer("stream.norm")
    assert [series.site.layer for series in stream] == [0, 1, 2, 3, 4]
    assert all(series.steps.tolist() == [1, 10, 20, 30, 40, 50, 60] for series in stream)
    assert len(history.by_layer("update.ratio")) == 8  # attention and MLP of four blocks
    assert history.of_run("train.clipping").values.max() <= 1.0
