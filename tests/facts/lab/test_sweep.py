"""A sweep: what stands in its record, how it goes on, and what is refused before anything runs."""

import hashlib
from collections import Counter

import pytest

from leadline.errors import LabError, RecordError
from leadline.lab import sweep as sweep_module
from leadline.lab.cell import CellResult, facts_without_run, run_cell
from leadline.lab.engines import News
from leadline.lab.grid import Axis, Grid, Setting, Sweep
from leadline.lab.sweep import Begun, Ended, sweep
from leadline.lab.sweep_record import RUNNING
from leadline.lab.tasks import build_task
from leadline.lab.tasks._task import _build_once
from leadline.record import Record


def expected_rows(what):
    """The rows of every cell, each run alone in this process."""
    return Counter(
        reading for cell in what.cells() for reading in run_cell(cell, folder=None).readings
    )


def rows(record):
    return Counter(record.select())


def cells(record):
    return {k.removeprefix("cell:"): v for k, v in record.provenance.items() if "cell:" in k}


def test_the_record_of_a_sweep_says_what_was_swept(tiny, here, tmp_path):
    what = tiny("depth=1,2", "placement=pre,post", seeds=(0, 1))
    record = sweep(what, tmp_path / "s.leadline", engine="here")
    about = record.provenance["sweep"]
    assert about["name"] == "tiny"
    assert about["digest"] == what.digest
    assert about["axes"] == [
        {"name": "depth", "labels": [1, 2]},
        {"name": "placement", "labels": ["pre", "post"]},
    ]
    assert about["seeds"] == [0, 1]
    assert about["fixed"] == dict(what.fixed)
    assert about["cells"] == 8
    assert about["description"] == what.to_json()
    assert about["stopped"] is None
    entropies = build_task("copy(items=4)").entropies(4)
    task = record.provenance["tasks"]["copy(items=4)"]
    assert (task["unigram"], task["bigram"]) == (entropies.unigram, entropies.bigram)
    assert set(cells(record)) == {cell.run for cell in what.cells()}
    assert rows(record) == expected_rows(what)
    assert list(tmp_path.iterdir()) == [tmp_path / "s.leadline"]


def test_times_and_hosts_stand_in_the_entries_of_cells_alone(tiny, here, tmp_path):
    with sweep(tiny(), tmp_path / "a", engine="here") as one:
        first, said = rows(one), cells(one)
    with sweep(tiny(), tmp_path / "b", engine="here") as other:
        assert rows(other) == first
        times = {"seconds", "host", "attempts"}
        for run, facts in cells(other).items():
            assert {k: v for k, v in facts.items() if k not in times} == {
                k: v for k, v in said[run].items() if k not in times
            }


def test_a_whole_sweep_asked_for_again_runs_nothing(tiny, here, tmp_path):
    path = tmp_path / "s.leadline"
    sweep(tiny(), path, engine="here").close()
    here.ran.clear()
    said = []
    with sweep(tiny(), path, engine="here", progress=said.append) as again:
        assert rows(again) == expected_rows(tiny())
    assert here.ran == []
    assert [type(event) for event in said] == [Begun]
    assert set(said[0].ended) == {"depth=1, seed=0", "depth=2, seed=0"}


@pytest.mark.parametrize("ended", [0, 1, 3])
def test_an_interrupted_sweep_keeps_what_ended_and_goes_on(tiny, here, tmp_path, ended):
    what, path = tiny(seeds=(0, 1)), tmp_path / "s.leadline"
    here.stop = ended
    with pytest.raises(KeyboardInterrupt):
        sweep(what, path, engine="here")
    with Record.open(path) as cut:
        assert len(cells(cut)) == ended
        assert cut.provenance["sweep"]["stopped"] == RUNNING
    here.stop = None
    with sweep(what, path, engine="here") as record:
        assert rows(record) == expected_rows(what)
        assert record.provenance["sweep"]["stopped"] is None
    assert Counter(here.ran) == Counter(cell.run for cell in what.cells())


def test_a_cell_that_was_cut_off_goes_on_from_its_checkpoint(tiny, here, tmp_path, monkeypatch):
    what, path = tiny("depth=1"), tmp_path / "s.leadline"
    steps = []

    def half(cell, *, folder):
        def stop(beat):
            if beat.step == 3:
                raise KeyboardInterrupt

        return run_cell(cell, folder=folder, beat=stop)

    def rest(cell, *, folder):
        return run_cell(cell, folder=folder, beat=lambda beat: steps.append(beat.step))

    monkeypatch.setattr("leadline.lab.trainer.BEAT", 0.0)
    monkeypatch.setitem(here.run.__globals__, "run_cell", half)
    with pytest.raises(KeyboardInterrupt):
        sweep(what, path, engine="here")
    monkeypatch.setitem(here.run.__globals__, "run_cell", rest)
    with sweep(what, path, engine="here") as record:
        assert rows(record) == expected_rows(what)
    assert steps == [4, 5, 6]


def test_the_largest_cells_begin_first(tiny, here, tmp_path):
    what = tiny("depth=1,3,2", "steps=2,4", task="copy(items=4)")
    sweep(what, tmp_path / "s", engine="here").close()
    sizes = [int(r[6]) * int(r.partition("steps=")[2][0]) for r in here.ran]
    assert sizes == sorted(sizes, reverse=True) == [12, 8, 6, 4, 4, 2]


def test_what_cannot_be_built_is_recorded_and_the_rest_go_on(tiny, here, tmp_path):
    what = tiny("heads=2,3")
    with sweep(what, tmp_path / "s", engine="here") as record:
        entry = cells(record)["heads=3, seed=0"]
        assert entry["status"] == "impossible"
        assert "cannot be divided among 3 heads" in entry["reason"]
        assert cells(record)["heads=2, seed=0"]["status"] == "finished"
    assert here.ran == ["heads=2, seed=0"]


@pytest.mark.parametrize(
    ("axes", "said"),
    [
        (["heads=3,5"], "No cell of the sweep 'tiny' can be built. The first one, heads=3, seed=0"),
        (["placement=pre,pots"], "No placement is called 'pots'. Did you mean 'post'"),
        (["task=copi"], "No task is called 'copi'"),
    ],
)
def test_a_sweep_that_cannot_be_is_refused_before_anything_is_written(
    tiny, here, tmp_path, axes, said
):
    with pytest.raises(LabError) as error:
        sweep(tiny(*axes), tmp_path / "s", engine="here")
    assert said in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_a_record_of_another_sweep_is_refused_and_the_differences_are_named(tiny, here, tmp_path):
    path = tmp_path / "s"
    sweep(tiny(), path, engine="here").close()
    with pytest.raises(LabError) as error:
        sweep(tiny("depth=1,3", seeds=(0, 1), steps=7), path, engine="here")
    assert str(error.value) == (
        f"{path} holds another sweep: the axis depth is 1,2 there and 1,3 here; seeds is 0 there "
        "and 0,1 here; steps is 6 there and 7 here. Ask for the same one to go on with it, or "
        "choose another file."
    )
    with pytest.raises(LabError, match=r"steps is 6 there and 7 here\. Ask"):
        sweep(tiny(steps=7), path, engine="here")


def test_a_text_that_has_changed_is_another_task(tiny, here, tmp_path):
    path, text = tmp_path / "s", tmp_path / "text"
    first = bytes(range(256)) * 40
    text.write_bytes(first)
    what = tiny("depth=1,2", task=f'text(path="{text}", length=16)')
    (spelling,) = {str(cell.training().task_choice) for cell in what.cells()}

    def go_on():
        _build_once.cache_clear()  # as in a new process
        return sweep(what, path, engine="here")

    here.stop = 1
    with pytest.raises(KeyboardInterrupt):
        go_on()
    here.stop = None
    assert here.orders.texts == {spelling: hashlib.sha256(first).hexdigest()}
    text.write_bytes(first + b"more")
    with pytest.raises(LabError) as error:
        go_on()
    assert str(error.value) == (
        f"The task {spelling} is not what it was when the sweep in {path} began: its text has "
        "changed. Bring it back to go on, or choose another file to begin anew."
    )
    assert len(here.ran) == 1
    text.write_bytes(first)
    with go_on() as record:
        assert {facts["status"] for facts in cells(record).values()} == {"finished"}


def test_every_fact_of_a_task_counts_but_not_the_last_digits_of_an_entropy(tiny, here, tmp_path):
    def known(path, **changes):
        sweep(tiny("depth=1"), path, engine="here").close()
        with Record.reopen(path) as record:
            ((spelling, facts),) = record.provenance["tasks"].items()
            record.note("tasks", {spelling: {**facts, **changes}})
            return facts

    unigram = known(tmp_path / "a")["unigram"]
    known(tmp_path / "b", unigram=unigram * (1 + 1e-12))
    sweep(tiny("depth=1"), tmp_path / "b", engine="here").close()
    known(tmp_path / "c", unigram=unigram * 1.01)
    with pytest.raises(LabError, match=r"its unigram is \d.* there and \d.* here\. Bring"):
        sweep(tiny("depth=1"), tmp_path / "c", engine="here")
    known(tmp_path / "d", length=99)
    with pytest.raises(LabError, match="its length is 99 there and"):
        sweep(tiny("depth=1"), tmp_path / "d", engine="here")


def test_a_task_that_cannot_be_read_any_more_is_refused(tiny, here, tmp_path):
    text = tmp_path / "text"
    text.write_bytes(bytes(range(256)) * 40)
    axes = (f'task=copy(items=4),text(path="{text}", length=16)', "depth=1")
    sweep(tiny(*axes), tmp_path / "s", engine="here").close()
    text.unlink()
    _build_once.cache_clear()
    with pytest.raises(LabError, match=r"The task text\(.*began: it cannot be read now\."):
        sweep(tiny(*axes), tmp_path / "s", engine="here")


def test_an_engine_that_cannot_be_ready_begins_no_record(tiny, here, tmp_path, monkeypatch):
    def ready(self, orders):
        raise LabError("nobody is there")

    monkeypatch.setattr(here, "ready", ready)
    with pytest.raises(LabError, match="nobody is there"):
        sweep(tiny(), tmp_path / "s", engine="here")
    assert list(tmp_path.iterdir()) == []


def test_three_differences_are_named_and_the_rest_counted(tiny, here, tmp_path):
    path = tmp_path / "s"
    sweep(tiny("depth=1"), path, engine="here").close()
    with pytest.raises(LabError, match=r"log is 2 there and 1 here; and 2 more\. Ask"):
        sweep(tiny("depth=1", steps=7, batch=5, log=1, validate=1, gauges=1), path, engine="here")


def test_a_change_inside_a_setting_is_named(here, tmp_path):
    def design(warmup):
        axis = Axis("design", (Setting("post", {"placement": "post", "warmup": warmup}),))
        fixed = {"width": 16, "task": "copy(items=4)", "steps": 2, "depth": 1}
        return Sweep(name="s", grids=(Grid((axis,)),), seeds=(0,), fixed=fixed)

    sweep(design(1), tmp_path / "s", engine="here").close()
    with pytest.raises(LabError, match="warmup at design=post is 1 there and 2 here"):
        sweep(design(2), tmp_path / "s", engine="here")


def test_a_record_that_is_no_sweep_and_a_file_that_is_no_record_are_refused(tiny, here, tmp_path):
    Record().save(tmp_path / "plain")
    with pytest.raises(LabError, match="holds a record that is not a sweep"):
        sweep(tiny(), tmp_path / "plain", engine="here")
    (tmp_path / "text").write_text("words")
    with pytest.raises(RecordError, match="not a Leadline record"):
        sweep(tiny(), tmp_path / "text", engine="here")
    with pytest.raises(LabError, match="cannot be written"):
        sweep(tiny(), tmp_path / "text" / "below", engine="here")


def test_a_second_sweep_on_the_same_record_is_refused_while_the_first_runs(tiny, here, tmp_path):
    path, refused = tmp_path / "s", []

    def second(event):
        if isinstance(event, News):
            with pytest.raises(LabError, match="Another sweep is working on"):
                sweep(tiny(), path, engine="here")
            refused.append(event.run)

    sweep(tiny(), path, engine="here", progress=second).close()
    assert len(refused) == 2


def test_failed_cells_are_tried_again_when_asked(tiny, here, tmp_path, monkeypatch):
    what, path = tiny(), tmp_path / "s"

    def fail(cell, *, folder):
        if cell.labels["depth"] == 2:
            return CellResult(cell.run, (), facts_without_run(cell, "failed", "no luck"))
        return run_cell(cell, folder=folder)

    monkeypatch.setitem(here.run.__globals__, "run_cell", fail)
    with sweep(what, path, engine="here") as record:
        assert cells(record)["depth=2, seed=0"]["status"] == "failed"
    monkeypatch.setitem(here.run.__globals__, "run_cell", run_cell)
    here.ran.clear()
    sweep(what, path, engine="here").close()
    assert here.ran == []
    with sweep(what, path, engine="here", retry=True) as record:
        assert rows(record) == expected_rows(what)
        assert cells(record)["depth=2, seed=0"]["status"] == "finished"
    assert here.ran == ["depth=2, seed=0"]


def test_a_sweep_whose_time_is_up_says_so_and_goes_on_later(tiny, here, tmp_path):
    what, path = tiny(), tmp_path / "s"
    with sweep(what, path, engine="here", budget=1e-9) as record:
        assert record.provenance["sweep"]["stopped"] == (
            "the budget of 1e-09 seconds was over with 0 of 2 cells ended"
        )
    with sweep(what, path, engine="here") as record:
        assert record.provenance["sweep"]["stopped"] is None
        assert rows(record) == expected_rows(what)


def test_a_full_disk_stops_the_sweep_and_the_finished_cells_are_kept(
    tiny, here, tmp_path, monkeypatch
):
    what, path = tiny(seeds=(0, 1)), tmp_path / "s"
    add, calls = sweep_module.add_cells, []

    def add_until_full(record, results):
        if len(calls) == 2:  # SQLite's own limit stands for the disk's
            pages = record._connection.execute("PRAGMA page_count").fetchone()[0]
            record._connection.execute(f"PRAGMA max_page_count = {pages}")
        calls.append(results)
        add(record, results)

    monkeypatch.setattr(sweep_module, "add_cells", add_until_full)
    with pytest.raises(RecordError, match=r"disk is full.*What it held before is kept; free some"):
        sweep(what, path, engine="here")
    monkeypatch.setattr(sweep_module, "add_cells", add)
    with Record.open(path) as cut:
        kept = len(cells(cut))
        assert 0 < kept < 4
        assert len({reading.run for reading in cut.select()}) == kept
    with sweep(what, path, engine="here") as record:
        assert rows(record) == expected_rows(what)


def test_progress_tells_of_the_beginning_and_of_every_end(tiny, here, tmp_path):
    said = []
    sweep(tiny(), tmp_path / "s", engine="here", progress=said.append).close()
    assert [type(event) for event in said] == [Begun, News, Ended, News, Ended]
    assert said[0].ended == {}
    assert said[2].run == said[1].run == "depth=2, seed=0"
    assert said[2].facts["status"] == "finished"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"workers": 0}, "workers is a whole number from 1 on, not 0"),
        ({"threads": 0}, "threads is a whole number from 1 on, not 0"),
        ({"budget": 0}, "budget is a number of seconds above 0, not 0"),
        ({"every": -1}, "every is a number of seconds above 0, not -1"),
        ({"workers": 1.5}, "workers is a whole number from 1 on, not 1.5"),
        ({"threads": 1.5}, "threads is a whole number from 1 on, not 1.5"),
        ({"threads": True}, "threads is a whole number from 1 on, not True"),
        ({"threads": None}, "threads is a whole number from 1 on, not None"),
        ({"budget": "8h"}, "budget is a number of seconds above 0, not '8h'"),
        ({"budget": float("nan")}, "budget is a number of seconds above 0, not nan"),
        ({"every": None}, "every is a number of seconds above 0, not None"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(tiny, here, tmp_path, options, said):
    with pytest.raises(LabError, match=said):
        sweep(tiny(), tmp_path / "s", engine="here", **options)
    assert list(tmp_path.iterdir()) == []
