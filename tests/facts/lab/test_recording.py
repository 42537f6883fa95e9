"""train(): one run, its record, and going on after a kill."""

import itertools
import random
import signal
import subprocess
import sys
import textwrap
from types import SimpleNamespace

import pytest
import torch

from leadline.errors import LabError, RecipeError
from leadline.lab.checkpoint import work_folder
from leadline.lab.recording import train
from leadline.parts import Recipe, Transformer
from leadline.record import Record

TINY = {"depth": 2, "width": 16, "heads": 2}
FAST = {"task": "copy", "steps": 20, "batch": 4, "log": 5, "validate": 10, "examples": 8}


def rows(record):
    return record.select()


def test_a_record_says_what_was_trained_and_how_it_ended():
    trained = train(TINY, training=FAST, seed=3)
    known = trained.record.provenance
    assert known["recipe"]["depth"] == 2
    assert known["training"]["steps"] == 20
    assert known["seed"] == 3
    assert known["task"]["unigram"] >= known["task"]["bigram"] - 0.05
    assert known["outcome"]["status"] == "finished"
    assert known["outcome"]["loss"] == trained.ending.loss
    assert known["precision"] == "float32"
    losses = trained.record.select("validation.loss")
    assert [r.step for r in losses] == [0, 10, 20]
    assert losses[-1].value == trained.ending.loss
    assert not trained.model.training


def test_a_given_model_is_trained_in_place():
    task_sizes = train(TINY, training=FAST).model.recipe
    model = Transformer(task_sizes, seed=0)
    before = model.head.projection.weight.clone()
    trained = train(model, training=FAST)
    assert trained.model is model
    assert not torch.equal(model.head.projection.weight, before)


def test_a_file_holds_the_rows_of_the_run_in_memory(tmp_path):
    path = tmp_path / "run.leadline"
    in_file = train(TINY, path, training=FAST).record
    in_memory = train(TINY, training=FAST).record
    assert rows(in_file) == rows(in_memory)
    in_file.close()
    assert [p.name for p in tmp_path.iterdir()] == ["run.leadline"]


def test_a_finished_run_is_not_trained_again(tmp_path):
    path = tmp_path / "run.leadline"
    train(TINY, path, training=FAST).record.close()
    with pytest.raises(LabError, match="holds a run that has ended"):
        train(TINY, path, training=FAST)


class Cut(Exception):
    """Somebody pulls the plug."""


def test_a_run_that_was_cut_goes_on_in_its_record(tmp_path, monkeypatch):
    monkeypatch.setattr("leadline.lab.trainer.BEAT", 0.0)
    path = tmp_path / "run.leadline"

    def cut(now):
        if now.step >= 12:
            raise Cut

    with pytest.raises(Cut):
        train(TINY, path, training=FAST, beat=cut)
    assert work_folder(path).is_dir()
    with Record.open(path) as begun:
        assert len(begun) > 0
        assert "outcome" not in begun.provenance
    whole = train(TINY, training=FAST).record
    assert rows(train(TINY, path, training=FAST).record) == rows(whole)


def test_another_run_is_refused_with_what_differs(tmp_path, monkeypatch):
    monkeypatch.setattr("leadline.lab.trainer.BEAT", 0.0)
    path = tmp_path / "run.leadline"

    def cut(now):
        raise Cut

    with pytest.raises(Cut):
        train(TINY, path, training=FAST, beat=cut)
    with pytest.raises(LabError, match="its seed differs"):
        train(TINY, path, training=FAST, seed=1)
    with pytest.raises(LabError, match="its recipe differs"):
        train({**TINY, "depth": 3}, path, training=FAST)


def test_a_run_that_cannot_begin_leaves_no_file(tmp_path):
    path = tmp_path / "run.leadline"
    with pytest.raises(LabError, match="One step costs"):
        train(TINY, path, training={**FAST, "flops": 1.0})
    assert list(tmp_path.iterdir()) == []


def test_a_clock_and_a_kill_leave_a_record_that_agrees_with_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr("leadline.lab.trainer.BEAT", 0.0)
    path = tmp_path / "run.leadline"
    training = FAST | {"log": 1, "steps": 10**6, "seconds": 1.0}
    now = itertools.count(step=0.005)  # seconds, one look at the clock after the other
    clock = SimpleNamespace(perf_counter=lambda: next(now))
    monkeypatch.setattr("leadline.lab.trainer.time", clock)

    def cut(now):
        if now.step >= 12:
            raise Cut

    with pytest.raises(Cut):
        train(TINY, path, training=training, beat=cut)
    # As if the run had been killed: what came after the checkpoint is known to nobody.
    trained = train(TINY, path, training=training)
    last = trained.record.select("train.loss")[-1].step
    assert trained.ending.status == "seconds"
    assert last == trained.ending.steps == trained.record.select("validation.loss")[-1].step


def test_the_record_never_knows_more_than_the_checkpoint(tmp_path, monkeypatch):
    monkeypatch.setattr("leadline.lab.trainer.BEAT", 0.0)
    path = tmp_path / "run.leadline"
    seen = []

    def look(now):
        with Record.open(path) as begun:
            seen.append(len(begun))

    train(TINY, path, training=FAST, beat=look, every=1e9)
    assert set(seen[:-1]) == {0}


def test_a_folder_that_cannot_be_saved_into_is_refused_before_training(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RecipeError, match="is a file"):
        train(TINY, training=FAST, save=tmp_path / "file" / "below")
    train(TINY, training=FAST, save=tmp_path / "model")
    with pytest.raises(RecipeError, match="another recipe"):
        train({**TINY, "depth": 3}, training=FAST, save=tmp_path / "model")
    assert Transformer.load(tmp_path / "model").recipe.depth == 2


def test_a_second_run_on_the_same_file_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("leadline.lab.trainer.BEAT", 0.0)
    path = tmp_path / "run.leadline"

    def again(now):
        with pytest.raises(LabError, match="Another run is working"):
            train(TINY, path, training=FAST)
        raise Cut

    with pytest.raises(Cut):
        train(TINY, path, training=FAST, beat=again)


@pytest.mark.parametrize("seed", [-1, 1.0, True, "x"])
def test_a_seed_is_a_whole_number(seed):
    with pytest.raises(LabError, match="whole number from 0 on"):
        train(TINY, training=FAST, seed=seed)


def test_a_measurement_is_no_run_to_go_on_with(tmp_path):
    path = tmp_path / "other.leadline"
    Record().save(path)
    with pytest.raises(LabError, match="does not hold the beginning of this run"):
        train(TINY, path, training=FAST)


def test_a_model_that_is_too_small_for_the_task_is_refused():
    model = Transformer(Recipe(depth=1, width=16, heads=2, vocabulary=3, context=4))
    with pytest.raises(LabError, match="build it with that vocabulary"):
        train(model, training=FAST)


def test_a_bidirectional_model_cannot_be_asked_for_the_next_token():
    with pytest.raises(LabError, match="bidirectional"):
        train({**TINY, "attention": "multihead(causal=false)"}, training=FAST)


@pytest.mark.slow
def test_a_run_killed_at_any_moment_leaves_the_rows_of_a_whole_one(tmp_path):
    script = tmp_path / "run.py"
    path = tmp_path / "run.leadline"
    script.write_text(
        textwrap.dedent(
            f"""
            import os, signal, sys
            import torch
            from leadline.lab import recording, trainer

            calls, moment = 0, int(sys.argv[1])

            def count(*_):
                global calls
                calls += 1
                if calls == moment:
                    os.kill(os.getpid(), signal.SIGKILL)

            torch.set_num_threads(1)
            trainer.BEAT = 0.0
            recording.train(
                {TINY}, {str(path)!r}, training={FAST | {"steps": 40}}, every=0.0,
                beat=lambda _: sys.setprofile(count if moment else None),
            )
            """
        )
    )
    # A moment is the call of a function, not a time: the 40 steps make some 400,000 calls.
    chance = random.Random(0)
    for _ in range(2):
        moment = chance.randrange(1, 150_000)
        killed = subprocess.run([sys.executable, str(script), str(moment)], check=False)
        assert killed.returncode == -signal.SIGKILL
        with Record.open(path) as begun:
            assert "outcome" not in begun.provenance
    subprocess.run([sys.executable, str(script), "0"], check=True)
    whole = train(TINY, training=FAST | {"steps": 40}).record
    with Record.open(path) as found:
        assert rows(found) == rows(whole)
