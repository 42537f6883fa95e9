"""A scan: the rows of each checkpoint are those of measuring it alone; broken ones are rows too."""

import os
import shutil
from collections import Counter
from dataclasses import replace

import pytest
import torch

import leadline as ll
from leadline.errors import InputError, LabError, LoadingError, RecordError
from leadline.instruments.visit.visit import VISIT_PROBES
from leadline.lab.cell import Paused
from leadline.lab.engines import News, Orders
from leadline.lab.engines.engine import Deaths
from leadline.lab.scan import examination
from leadline.lab.scan import scan as scanning
from leadline.lab.scan.examination import CheckpointWork, gigabytes
from leadline.lab.scan.scan import ScanBegun, ScanEnded, scan, workers_that_fit
from leadline.lab.scan.settings import ScanSettings
from leadline.lab.scan.sources import CheckpointSource
from leadline.models.inputs.choice import InputChoice
from leadline.record import Record
from tests.scanned import expected_rows, rows_of, train_run

NAMES = ["checkpoint-100", "checkpoint-200", "checkpoint-300", "checkpoint-1000"]


def work(place, **settings):
    return CheckpointWork("a", CheckpointSource("a", str(place)), "", ScanSettings(**settings))


def begun(*arguments, **options):
    """What a scan says that it begins."""
    said = []
    scan(*arguments, engine="here", progress=said.append, **options).close()
    return next(one for one in said if isinstance(one, ScanBegun))


def test_rows_equal_those_of_measuring_and_diagnosing_a_checkpoint_alone(run_once, scanned_once):
    with Record.open(scanned_once) as record:
        assert sorted(record.runs) == sorted(NAMES)
        for name in NAMES:
            assert rows_of(record, name) == expected_rows(run_once / name)
        loaded = ll.load(run_once / NAMES[0])
        measured = ll.measure(loaded, InputChoice().read(loaded), probes=VISIT_PROBES)
        assert rows_of(measured) <= rows_of(record, NAMES[0])
        assert len(measured) > 100


def test_every_row_has_the_step_of_its_checkpoint(scanned_once):
    with Record.open(scanned_once) as record:
        steps = {row.run: row.step for row in record.select()}
        assert steps == dict(zip(NAMES, (100, 200, 300, 1000), strict=True))
        assert record.provenance["instrument"]["stopped"] is None


def test_a_checkpoint_of_the_record_is_diagnosed_as_the_model_is(run_once, scanned_once):
    loaded = ll.load(run_once / NAMES[1])
    alone = ll.diagnose(loaded, InputChoice().read(loaded))
    with Record.open(scanned_once) as record:
        again = ll.diagnose(record.scan.checkpoint(NAMES[1]))
        assert again.to_json() == alone.to_json()
        entry = record.provenance[f"checkpoint:{NAMES[1]}"]
        assert entry["answer"] == alone.answer
        assert entry["healthy"] is alone.healthy
        assert entry["loss"] == alone.record.provenance["loss"]["value"]


def test_the_checkpoints_of_a_run_are_a_series(scanned_once):
    with Record.open(scanned_once) as record:
        (series,) = record.scan.series
        assert [one.step for one in series.checkpoints] == [100, 200, 300, 1000]
        assert list(series.history.by_layer("stream.norm")[0].steps) == [100, 200, 300, 1000]
        assert series.loss.last == record.provenance["checkpoint:checkpoint-1000"]["loss"]


def test_broken_checkpoints_are_rows_with_a_sentence_and_end_nothing(run_folder, here, tmp_path):
    weights = run_folder / "checkpoint-100" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:200])
    pickled = run_folder / "checkpoint-200"
    (pickled / "model.safetensors").unlink()
    (pickled / "recipe.json").unlink()
    (pickled / "optimizer.pt").unlink()
    (pickled / "config.json").write_text('{"model_type": "gpt2"}')
    torch.save({}, pickled / "pytorch_model.bin")
    with scan([run_folder, "./nowhere"], tmp_path / "s", engine="here") as record:
        rows = {one.name: one for one in record.scan.checkpoints}
        assert [name for name, one in rows.items() if one.measured] == NAMES[2:]
        refused = {name: one.reason for name, one in rows.items() if not one.measured}
        assert {rows[name].status for name in refused} == {"refused"}
        assert "model.safetensors" in refused["checkpoint-100"]
        assert "are a pickle (pytorch_model.bin)" in refused["checkpoint-200"]
        assert "There is no folder and no file nowhere" in refused["./nowhere"]
        assert record.runs == NAMES[2:]


def test_somebody_elses_code_that_raises_is_a_row_too(here, tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text("def make():\n    raise RuntimeError('no weights today')\n")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "list.txt").write_text("mine.py:make\nmine.py:make2\n")
    monkeypatch.setattr(
        examination, "load_model", lambda *_, **__: (_ for _ in ()).throw(KeyError("odd\nmore"))
    )
    with scan("list.txt", tmp_path / "s", engine="here") as record:
        assert {one.status for one in record.scan.checkpoints} == {"failed"}
        assert record.scan.checkpoints[0].reason == "KeyError: 'odd\\nmore'."


def test_what_has_ended_is_not_measured_again(run_once, scanned_once, here, tmp_path):
    path = tmp_path / "s.leadline"
    path.write_bytes(scanned_once.read_bytes())
    said = begun(run_once, path)
    assert (said.waiting, said.changed, said.gone, here.ran) == ((), (), (), [])
    assert said.checkpoints == tuple(NAMES)
    with Record.open(path) as after, Record.open(scanned_once) as before:
        assert Counter(map(repr, after.select())) == Counter(map(repr, before.select()))


def test_an_interrupted_scan_goes_on(run_once, scanned_once, here, tmp_path):
    path = tmp_path / "s.leadline"
    here.stop = 2
    with pytest.raises(KeyboardInterrupt):
        scan(run_once, path, engine="here")
    with Record.open(path) as record:
        assert len(record.runs) == 2
        assert "the same scan on this file goes on" in record.scan.stopped
    here.stop = None
    scan(run_once, path, engine="here").close()
    assert here.ran == NAMES
    with Record.open(path) as after, Record.open(scanned_once) as before:
        assert Counter(map(repr, after.select())) == Counter(map(repr, before.select()))
        assert after.scan.stopped == ""
    assert list(tmp_path.iterdir()) == [path]


def test_changed_new_and_removed_checkpoints(run_folder, here, tmp_path):
    path = tmp_path / "s.leadline"
    last = run_folder / "checkpoint-1000"
    last.rename(tmp_path / "later")
    scan(run_folder, path, engine="here").close()
    (tmp_path / "later").rename(last)
    (run_folder / "checkpoint-100").rename(tmp_path / "removed")
    changed = run_folder / "checkpoint-200"
    (changed / "model.safetensors").write_bytes((last / "model.safetensors").read_bytes())
    here.ran.clear()
    said = begun(run_folder, path)
    assert said.waiting == ("checkpoint-200", "checkpoint-1000")
    assert said.changed == ("checkpoint-200",)
    assert said.gone == ("checkpoint-100",)
    assert here.ran == ["checkpoint-200 (2)", "checkpoint-1000"]
    with Record.open(path) as record:
        assert [one.name for one in record.scan.checkpoints] == NAMES
        assert rows_of(record, "checkpoint-200 (2)") == expected_rows(changed)
        assert rows_of(record.scan.checkpoint("checkpoint-200")) == expected_rows(changed)
        assert rows_of(record, "checkpoint-200") != expected_rows(changed)


def test_a_name_with_a_slip_leaves_the_record_once_it_is_not_named_any_more(
    run_folder, here, tmp_path
):
    path = tmp_path / "s.leadline"
    right, wrong = run_folder / "checkpoint-100", tmp_path / "chekpoint-100"
    scan([right, wrong], path, engine="here").close()
    with Record.open(path) as record:
        assert [one.status for one in record.scan.checkpoints].count("refused") == 1
        (slip,) = (one.name for one in record.scan.unmeasured)
    said = begun(right, path)
    assert (said.waiting, said.gone, said.dropped) == ((), (), (slip,))
    with Record.open(path) as record:
        assert [one.name for one in record.scan.checkpoints] == ["checkpoint-100"]
        assert rows_of(record, "checkpoint-100") == expected_rows(right)


def test_a_run_that_was_moved_is_known_by_its_files(run_folder, here, tmp_path):
    path = tmp_path / "s.leadline"
    for name in NAMES[1:]:
        shutil.rmtree(run_folder / name)
    scan(run_folder, path, engine="here").close()
    moved = run_folder.rename(tmp_path / "moved")
    assert begun(moved, path).waiting == ()


def test_what_could_not_be_measured_is_tried_again_only_where_asked(run_folder, here, tmp_path):
    path = tmp_path / "s.leadline"
    for name in NAMES[2:]:
        shutil.rmtree(run_folder / name)
    weights = run_folder / "checkpoint-100" / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(b"broken")
    scan(run_folder, path, engine="here").close()
    assert begun(run_folder, path).waiting == ()
    assert begun(run_folder, path, retry=True).waiting == ("checkpoint-100",)
    weights.write_bytes(whole)
    assert begun(run_folder, path).changed == ("checkpoint-100",)
    with Record.open(path) as record:
        assert all(one.measured for one in record.scan.checkpoints)
        assert record.provenance["checkpoint:checkpoint-100"]["run"] == "checkpoint-100"


def test_a_record_of_another_scan_or_of_something_else_is_refused(
    run_once, scanned_once, here, tmp_path
):
    path = tmp_path / "s.leadline"
    path.write_bytes(scanned_once.read_bytes())
    with pytest.raises(LabError, match="other settings: seed is 0 there and 1 here"):
        scan(run_once, path, engine="here", settings=ScanSettings(seed=1))
    with pytest.raises(LabError, match=r"random is not set there and \[2, 8\] here"):
        scan(run_once, path, engine="here", settings=ScanSettings(random=(2, 8)))
    with Record() as record:
        record.save(path)
    with pytest.raises(RecordError, match="holds a record that is no scan"):
        scan(run_once, path, engine="here")
    assert here.ran == []


def test_settings_that_make_no_sense_are_refused_before_anything_is_written(run_once, tmp_path):
    for settings, error, words in (
        (ScanSettings(text="a", random=(1, 2)), InputError, "one kind of input"),
        (ScanSettings(windows=(1, 2)), InputError, "windows cuts a text file"),
        (ScanSettings(dtype="int3"), LoadingError, "No number type"),
        (ScanSettings(text_file=tmp_path / "no.txt"), LabError, "cannot be read"),
    ):
        with pytest.raises(error, match=words):
            scan(run_once, tmp_path / "s", settings=settings)
    with pytest.raises(LabError, match="workers is a whole number"):
        scan(run_once, tmp_path / "s", workers=0)
    assert list(tmp_path.iterdir()) == []


def test_a_text_goes_through_the_tokenizer_of_each_checkpoint(here, tmp_path):
    folder = train_run(tmp_path / "bytes", [1, 2], tokenizer="bytes")
    settings = ScanSettings(text="Down to the sea.", twin=False)
    with scan(folder, tmp_path / "s", engine="here", settings=settings) as record:
        single = record.scan.checkpoint("checkpoint-2")
        assert single.provenance["input"]["kind"] == "text"
        loaded = ll.load(folder / "checkpoint-2")
        alone = ll.diagnose(
            loaded, InputChoice(text=("Down to the sea.",)).read(loaded), twin=False
        )
        assert rows_of(single) == rows_of(alone.record)
    (tmp_path / "t.txt").write_text("Down to the sea in ships. " * 9)
    described = ScanSettings(text_file=tmp_path / "t.txt").to_json()["text_file"]
    (tmp_path / "t.txt").write_text("Down to the sea in boats. " * 9)
    assert described.startswith("t.txt (")
    assert described != ScanSettings(text_file=tmp_path / "t.txt").to_json()["text_file"]


def test_the_inputs_of_a_choice_are_those_of_the_functions(run_once, tmp_path):
    loaded = ll.load(run_once / NAMES[0])
    drawn = InputChoice(random=(2, 5), seed=3).read(loaded).main
    assert torch.equal(drawn, ll.random_inputs(loaded.model, examples=2, length=5, seed=3).main)
    assert InputChoice().read(loaded).main.shape == (4, 16)  # 4x128, cut to the context of 16
    (tmp_path / "ids.txt").write_text("1 2 3\n4 5 6\n")
    assert InputChoice(tokens_file=tmp_path / "ids.txt").read(loaded).main.tolist() == [
        [1, 2, 3],
        [4, 5, 6],
    ]


def test_a_model_that_would_not_fit_is_refused_with_what_it_needs(run_once, monkeypatch):
    monkeypatch.setattr(examination, "free_memory", lambda: 5 * 10**8)
    monkeypatch.setattr(examination, "memory_needed", lambda *_, **__: 12 * 10**9)
    done = work(run_once / NAMES[0]).perform(None, Orders(), lambda _: None)
    assert done.facts["status"] == "refused"
    assert done.facts["reason"].startswith(
        "Measuring it needs about 12.0 GB of memory and 0.5 GB are free on "
    )
    assert done.readings == ()


def test_memory_that_ran_out_is_said_with_what_is_needed(run_once, monkeypatch):
    def full(*_, **__):
        raise MemoryError

    monkeypatch.setattr(examination, "load_model", full)
    done = work(run_once / NAMES[0]).perform(None, Orders(), lambda _: None)
    assert done.facts["reason"].startswith("The memory did not suffice: it needs about ")


def test_as_many_workers_as_fit_with_the_largest_models(monkeypatch):
    needs = {"a": 4, "b": 3, "c": 2}
    monkeypatch.setattr(scanning, "memory_needed", lambda one, dtype: needs[one.name])
    works = [replace(work("x"), checkpoint=CheckpointSource(name, "x")) for name in needs]
    for free, count in ((1, 1), (6, 1), (7, 2), (8, 2), (9, 3), (100, 3), (None, 3)):
        monkeypatch.setattr(scanning, "free_memory", lambda free=free: free)
        assert workers_that_fit(works, 3) == count
    monkeypatch.setattr(scanning, "free_memory", lambda: 1)
    on_gpu = [replace(one, settings=ScanSettings(device="cuda")) for one in works]
    assert workers_that_fit(on_gpu, 3) == 3
    assert workers_that_fit([], 3) == 3


def test_a_worker_that_died_is_a_failed_row_with_its_reason(run_once):
    deaths = Deaths()
    deaths.count(-1)
    lost = work(run_once / NAMES[0]).lost(deaths, worker="the worker", how="signal 9", memory=True)
    assert lost.facts["status"] == "failed"
    assert lost.facts["attempts"] == 1
    assert lost.facts["reason"].startswith(
        "The worker died 1 times (signal 9), often because memory ran out (it needs about "
    )
    calm = work(run_once / NAMES[0]).lost(deaths, worker="the worker", how="signal 4", memory=False)
    assert calm.facts["reason"] == "The worker died 1 times (signal 4)."


def test_a_pause_goes_through(run_once):
    def pause(_):
        raise Paused

    with pytest.raises(Paused):
        work(run_once / NAMES[0]).perform(None, Orders(), pause)


def test_a_listener_hears_what_begins_and_what_ends(run_once, here, tmp_path):
    said = []
    scan(run_once / NAMES[0], tmp_path / "s", engine="here", progress=said.append).close()
    assert [type(one) for one in said] == [ScanBegun, News, ScanEnded]
    assert said[2].name == NAMES[0]
    assert said[2].entry["status"] == "measured"


def test_gigabytes():
    assert [gigabytes(n) for n in (12e9, 1.5e8, 2e6)] == ["12.0 GB", "0.1 GB", "2 MB"]


def test_a_worker_process_gives_the_same_rows(run_once, scanned_once, tmp_path):
    variables = {name for name in os.environ if name.endswith("_NUM_THREADS")}
    with scan(run_once / NAMES[0], tmp_path / "s", workers=1) as record:
        with Record.open(scanned_once) as alone:
            assert rows_of(record) == rows_of(alone, NAMES[0])
        assert [one.status for one in record.scan.checkpoints] == ["measured"]
    assert {name for name in os.environ if name.endswith("_NUM_THREADS")} == variables
