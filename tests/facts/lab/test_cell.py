"""One cell: its rows are those of its trainer, and what it does wrong is one of its facts."""

import itertools
import math

import pytest
import torch

from leadline.errors import LabError
from leadline.lab import trainer as trainer_module
from leadline.lab.cell import FIELDS, Cell, Paused, refuse_changed, run_cell
from leadline.lab.checkpoint import FILE
from leadline.lab.cost import flops_of
from leadline.lab.tasks import build_task
from leadline.lab.tasks._task import _build_once
from leadline.lab.trainer import Trainer, model_for
from leadline.parts import Recipe


def cell(tiny, **changes):
    return tiny("depth=2", **changes).cells()[0]


def test_the_rows_of_a_cell_are_those_of_its_trainer(tiny):
    one = cell(tiny, seeds=(3,))
    task = build_task("copy(items=4)")
    model = model_for(Recipe(depth=2, width=16, heads=2), task, seed=3)
    trainer = Trainer(model, task, one.training(), seed=3, run=one.run)
    ending = trainer.run()
    found = run_cell(one, folder=None)
    assert list(found.readings) == trainer.readings
    assert {reading.run for reading in found.readings} == {"depth=2, seed=3"}
    assert {reading.seed for reading in found.readings} == {3}
    assert found.quantities == trainer.quantities
    assert found.facts["loss"] == ending.loss


def test_the_facts_of_a_cell_that_finished(tiny):
    facts = run_cell(cell(tiny), folder=None).facts
    task = build_task("copy(items=4)")
    recipe = Recipe(depth=2, width=16, heads=2, vocabulary=task.vocabulary, context=task.length)
    assert facts["flops"] == 6 * flops_of(recipe, examples=4, length=task.length)
    assert facts["parameters"] == sum(
        p.numel() for p in model_for(recipe, task, seed=0).parameters()
    )
    assert facts["seconds"] > 0
    assert facts["host"]
    expected = {
        "labels": {"depth": 2},
        "seed": 0,
        "depth": 2,
        "task": "copy(items=4)",
        "status": "finished",
        "reason": "",
        "steps": 6,
        "attempts": 1,
    }
    assert {key: facts[key] for key in expected} == expected


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"width": 10, "heads": 4}, "The width 10 cannot be divided among 4 heads"),
        ({"steps": 0}, "steps is 0; give a whole number of at least 1"),
        ({"task": "copy(items=0)"}, "items"),
        ({"attention": "multihead(causal=false)"}, "asks for the next token"),
    ],
)
def test_a_cell_that_cannot_be_built_is_impossible_and_says_why(tiny, changes, said):
    found = run_cell(cell(tiny, **changes), folder=None)
    assert found.facts["status"] == "impossible"
    assert said in found.facts["reason"]
    assert found.readings == ()


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("boom\nand more"), "ValueError: boom"),
        (ZeroDivisionError(), "ZeroDivisionError"),
        (MemoryError(), "memory ran out at step 0; choose a smaller"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "memory ran out"),
    ],
)
def test_a_cell_that_raises_has_failed_and_says_why(tiny, monkeypatch, error, reason):
    def run(self, *, beat=None):
        raise error

    monkeypatch.setattr(Trainer, "run", run)
    found = run_cell(cell(tiny), folder=None)
    assert found.facts["status"] == "failed"
    assert found.facts["reason"].startswith(reason)
    assert found.facts["loss"] is None
    assert found.readings == ()


def test_a_cell_that_diverges_has_ended_without_a_loss(tiny):
    found = run_cell(cell(tiny, rate=1e30), folder=None)
    assert found.facts["status"] == "diverged"
    assert found.facts["loss"] is None
    assert any(math.isnan(reading.value) for reading in found.readings)


def test_a_paused_cell_goes_on_where_it_was(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr("leadline.lab.trainer.BEAT", 0.0)
    one = cell(tiny)
    whole = run_cell(one, folder=None)

    def pause(beat):
        if beat.step == 4:
            raise Paused

    with pytest.raises(Paused):
        run_cell(one, folder=tmp_path, beat=pause)
    beats = []
    rest = run_cell(one, folder=tmp_path, beat=beats.append)
    assert [beat.step for beat in beats] == [5, 6]
    assert rest.readings == whole.readings


def test_a_checkpoint_that_cannot_be_written_is_not_the_fault_of_the_cell(tiny, tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(LabError, match="cannot be written"):
        run_cell(cell(tiny), folder=file / "below")


def test_a_checkpoint_that_cannot_be_read_is_left_and_the_cell_begins_anew(tiny, tmp_path):
    (tmp_path / FILE).write_bytes(b"nothing of the kind")
    one = cell(tiny)
    assert run_cell(one, folder=tmp_path).readings == run_cell(one, folder=None).readings


def test_the_threads_of_torch_are_as_before(tiny):
    before = torch.get_num_threads()
    seen = []
    run_cell(
        cell(tiny), folder=None, threads=2, beat=lambda _: seen.append(torch.get_num_threads())
    )
    assert seen[-1] == 2
    assert torch.get_num_threads() == before


def test_what_follows_from_the_task_is_no_field_of_a_cell():
    assert "vocabulary" not in FIELDS and "context" not in FIELDS
    assert {"depth", "connection", "steps", "task"} <= set(FIELDS)


def test_a_cell_knows_its_recipe_and_its_training():
    one = Cell("x", {}, 0, {"depth": 3, "placement": "post", "warmup": 7})
    assert one.recipe() == Recipe(depth=3, placement="post")
    assert one.training().warmup == 7


def test_the_first_checkpoint_comes_with_the_first_beat_whatever_is_asked(
    tiny, tmp_path, monkeypatch
):
    written, heard = [], []

    def write(folder, checkpoint):
        written.append(checkpoint.state["step"])

    def beat(now):
        heard.append((now.step, list(written)))

    now = itertools.count(step=0.05)  # seconds, one look at the clock after the other
    monkeypatch.setattr(trainer_module.time, "perf_counter", lambda: next(now))
    monkeypatch.setattr(trainer_module, "write_checkpoint", write)
    run_cell(cell(tiny, steps=60), folder=tmp_path, every=1000.0, beat=beat)
    (step, before), *_, (_, after) = heard
    assert before == [step]
    assert after == [step, 60]
    assert len(heard) > 3


def test_a_text_that_is_not_what_it_was_is_refused(tmp_path):
    text = tmp_path / "text"
    text.write_bytes(bytes(range(256)) * 40)
    spelling = f'text(path="{text}")'
    of_text = Cell("c", {}, 0, {"task": spelling})
    name = str(of_text.training().task_choice)
    digest = build_task(name).facts()["digest"]
    refuse_changed(of_text, {})
    refuse_changed(of_text, {name: digest})
    with pytest.raises(LabError, match=r"has changed while the sweep ran; the finished cells"):
        refuse_changed(of_text, {name: "0" * 64})
    text.unlink()
    _build_once.cache_clear()
    with pytest.raises(LabError, match=r"cannot be read any more: There is no file"):
        refuse_changed(of_text, {name: digest})
