"""Sinks take a run's numbers to loggers, leave the loop's own run alone, and never raise."""

import csv
import math
import sys

import pytest

from leadline.catalog import Choice
from leadline.lab.watch.sinks import SINKS, Sink, open_sinks, warning_text
from leadline.lab.watch.sinks.mlflow import LONGEST_TAG
from leadline.lab.watch.sinks.sink import MOST_FAULTS
from leadline.record import Finding
from tests import loggers

WARNING = Finding(
    "The loss rose.",
    severity="warning",
    code="G02",
    name="loss-spike",
    details={
        "step": 60,
        "since": 55,
        "cause": "a rate that is too large.",
        "remedy": {"words": "Lower it."},
    },
)
SENTENCE = (
    "The loss rose. Since step 55. Likely cause: a rate that is too large. Now: Lower it. "
    "(leadline explain G02)"
)


@pytest.fixture
def fake(monkeypatch):
    def enter(name):
        module = getattr(loggers, name)()
        monkeypatch.setitem(sys.modules, name, module)
        return module

    return enter


def test_the_catalog_has_all_of_them():
    assert SINKS.names() == ["arrow", "csv", "mlflow", "tensorboard", "trackio", "wandb"]


def test_a_warning_says_what_since_when_why_and_what_to_do():
    assert warning_text(WARNING) == SENTENCE
    assert warning_text(Finding("Nan.", details={"step": 3, "since": 3})) == "Nan."


# --- opening ---------------------------------------------------------------------------------------


class Listener:
    """A sink of a user's own."""

    def __init__(self):
        self.heard = []

    def write(self, step, values):
        self.heard.append((step, dict(values)))

    def warn(self, finding):
        self.heard.append(finding.code)

    def close(self):
        self.heard.append("closed")


def opened(asked):
    notes = []
    return open_sinks(asked, note=notes.append), notes


def test_sinks_are_chosen_by_name_choice_mapping_and_object(tmp_path, fake):
    fake("wandb")
    one, two = tmp_path / "one.csv", tmp_path / "two.csv"
    listener = Listener()
    sinks, notes = opened(
        [f'wandb,csv(path="{one}")', {"name": "csv", "path": str(two)}, Choice("wandb"), listener]
    )
    assert (len(sinks), notes) == (5, [])
    assert all(isinstance(sink, Sink) for sink in sinks)
    for sink in sinks:
        sink.write(1, {"leadline/loss": 2.0})
        sink.warn(WARNING)
        sink.close()
    assert one.read_text() == two.read_text() != ""
    assert listener.heard == [(1, {"leadline/loss": 2.0}), "G02", "closed"]


@pytest.mark.parametrize(
    "spelling", ["csv(path={})", 'csv(path="{}")', "csv( path = {} )", "csv(path={}), wandb"]
)
def test_a_path_needs_no_quotes(tmp_path, fake, spelling):
    fake("wandb")
    path = tmp_path / "deep" / "run.csv"
    sinks, notes = opened(spelling.format(path))
    for sink in sinks:
        sink.close()
    assert notes == []
    assert path.exists()


@pytest.mark.parametrize("alone", ["wandb", {"name": "wandb"}, Choice("wandb"), Listener()])
def test_one_sink_needs_no_list(fake, alone):
    fake("wandb")
    assert len(opened(alone)[0]) == 1


@pytest.mark.parametrize(
    ("name", "extra"),
    [
        ("wandb", "wandb"),
        ("mlflow", "mlflow"),
        ("trackio", "trackio"),
        ("tensorboard", "tensorboard"),
        ("arrow(path=x.arrow)", "table"),
    ],
)
def test_a_missing_library_is_a_sentence_that_names_the_extra(monkeypatch, name, extra):
    library = "pyarrow" if extra == "table" else extra
    monkeypatch.setitem(sys.modules, library, None)
    sinks, (note,) = opened(name)
    assert sinks == []
    assert f"leadline[{extra}]" in note
    assert library in note


@pytest.mark.parametrize(
    ("asked", "part"),
    [
        ("wandbb", "No sink is called 'wandbb'. Did you mean 'wandb'?"),
        ("csv", "needs the option 'path'"),
        ("csv(file=x)", "has no option 'file'"),
        ("tensorboard(folder=a b)", "found 'b)'"),
        (3, "a sink is a name such as 'wandb'"),
        (Listener, "a sink is a name such as 'wandb'"),
        (None, "a sink is a name such as 'wandb'"),
    ],
)
def test_what_is_no_sink_is_a_sentence(asked, part):
    sinks, (note,) = opened([asked])
    assert sinks == []
    assert part in note
    assert note.startswith("Nothing goes to ")


class Broken(Listener):
    """Fails as a logger without a network does."""

    fails = True
    tried = 0

    def write(self, step, values):
        self.tried += 1
        if self.fails:
            raise ConnectionError("no route\nto host")
        super().write(step, values)


def test_a_sink_that_fails_is_said_and_in_the_end_left_alone():
    broken = Broken()
    (sink,), notes = opened([broken])
    sink.write(0, {})
    assert len(notes) == 1
    for step in range(1, 10):
        sink.write(step, {})
    assert broken.tried == MOST_FAULTS == 3
    assert notes == [
        "The sink a Broken failed, the run goes on: ConnectionError: no route.",
        "The sink a Broken failed, it gets nothing more: ConnectionError: no route.",
    ]
    broken.fails = False
    sink.write(11, {})
    sink.warn(WARNING)
    assert broken.heard == []
    sink.close()
    assert broken.heard == ["closed"]


def test_a_sink_that_recovers_has_all_its_chances_again():
    broken = Broken()
    (sink,), _ = opened([broken])
    for step, fails in enumerate([True, True, False, True, True, False], start=1):
        broken.fails = fails
        sink.write(step, {})
    assert [step for step, _ in broken.heard] == [3, 6]


# --- W&B -------------------------------------------------------------------------------------------


def written(sink, steps=range(1, 26), *, meanwhile=lambda step: None):
    for step in steps:
        sink.write(step, {"leadline/loss": float(step)})
        meanwhile(step)


def samples(run):
    return [row["leadline/step"] for row in run.rows.values() if "leadline/step" in row]


def test_wandb_logs_every_sample_into_a_run_of_its_own_where_there_is_none(fake):
    module = fake("wandb")
    sink = SINKS.build("wandb(project=deep, run=first)")
    assert module.runs == []  # the loop may still start its own
    written(sink)
    sink.warn(WARNING)
    sink.close()
    (run,) = module.runs
    assert module.run is None
    assert run.asked == {"project": "deep", "name": "first"}
    assert samples(run) == list(range(1, 26))
    assert run.axes == {"leadline/step": None, "leadline/*": "leadline/step"}
    assert run.alerts == [("leadline G02 loss-spike", SENTENCE, "WARN")]
    assert run.finished


@pytest.mark.parametrize("every", [1, 10])
@pytest.mark.parametrize("explicit", [True, False])
def test_wandb_costs_a_loop_none_of_its_rows(fake, every, explicit):
    """The loop logs after the update, with a step from 0, or without a step."""
    module = fake("wandb")
    run = module.init(project="mine")

    def log(step):
        if (step - 1) % every == 0:
            run.log({"mine": step}, step=step - 1 if explicit else None)

    sink = SINKS.build("wandb")
    written(sink, meanwhile=log)
    sink.close()
    assert run.dropped == []
    assert [row["mine"] for row in run.rows.values() if "mine" in row] == [
        step for step in range(1, 26) if (step - 1) % every == 0
    ]
    assert samples(run) == list(range(1, 26))
    assert not run.finished


def test_wandb_takes_losses_that_come_in_one_go_without_costing_a_row(fake):
    """A watch hands over the losses of all updates since the last sample."""
    run = fake("wandb").init(project="mine")
    sink = SINKS.build("wandb")
    for sample in (1, 50, 100):
        written(sink, range(max(1, sample - 49), sample + 1))
        run.log({"mine": sample}, step=sample - 1)
    assert run.dropped == []
    assert samples(run)[-1] == 100


def test_wandb_without_commits_keeps_the_last_sample_of_each_row(fake):
    """Three epochs of five updates, logged with the number of the epoch as the step."""
    run = fake("wandb").init(project="mine")

    def log(step):
        if step % 5 == 0:
            run.log({"epoch": step // 5 - 1}, step=step // 5 - 1)

    written(SINKS.build("wandb(commit=false)"), range(1, 16), meanwhile=log)
    assert run.dropped == []
    assert [row["epoch"] for row in run.rows.values()] == [0, 1, 2]
    # A row stays open until the next one begins, so it holds the samples of the epoch after it.
    assert samples(run) == [10, 15]


def test_a_serious_warning_is_an_error_of_wandb_and_trackio(fake):
    serious = Finding("Not finite.", severity="serious", code="G01", name="not-finite")
    for name, level in (("wandb", "ERROR"), ("trackio", "error")):
        module = fake(name)
        sink = SINKS.build(name)
        sink.warn(serious)
        assert module.runs[0].alerts[0][0] == "leadline G01 not-finite"
        assert module.runs[0].alerts[0][2] == level


# --- MLflow ----------------------------------------------------------------------------------------


def test_mlflow_logs_into_a_run_of_its_own_and_leaves_none_active(fake):
    module = fake("mlflow")
    sink = SINKS.build("mlflow(run=first)")
    assert module.runs == {}
    sink.write(1, {"leadline/loss": 2.0})
    module.start_run()  # the loop may still start its own
    sink.write(2, {"leadline/loss": math.nan})
    sink.warn(WARNING)
    sink.close()
    run = module.runs["run0"]
    assert (run["name"], run["status"]) == ("first", "FINISHED")
    assert [step for step, _ in run["metrics"]] == [1, 2]
    assert run["tags"] == {"leadline.warning.G02.60": SENTENCE}
    assert module.runs["run1"] == {"name": None, "status": "RUNNING", "metrics": [], "tags": {}}


def test_mlflow_logs_into_the_run_of_the_loop_and_does_not_end_it(fake):
    module = fake("mlflow")
    sink = SINKS.build("mlflow")
    module.start_run()
    sink.write(7, {"leadline/loss": 2.0})
    sink.close()
    sink.close()
    assert list(module.runs) == ["run0"]
    assert module.runs["run0"]["metrics"] == [(7, {"leadline/loss": 2.0})]
    assert module.runs["run0"]["status"] == "RUNNING"


def test_mlflow_gets_no_longer_tag_than_it_takes(fake):
    module = fake("mlflow")
    sink = SINKS.build("mlflow")
    sink.warn(Finding("x" * 9000, code="G09"))
    ((name, tag),) = module.runs["run0"]["tags"].items()
    assert name == "leadline.warning.G09.0"
    assert len(tag) == LONGEST_TAG == 5000


# --- Trackio ---------------------------------------------------------------------------------------


def test_trackio_logs_at_the_step_of_the_update(fake):
    module = fake("trackio")
    sink = SINKS.build("trackio")
    written(sink, [1, 50, 20])
    sink.warn(WARNING)
    sink.close()
    (run,) = module.runs
    assert run.asked == {"project": "leadline", "name": None, "resume": "allow"}
    assert [step for step, _ in run.rows] == [1, 50, 20]
    assert run.alerts == [("leadline G02 loss-spike", SENTENCE, "warn")]
    assert run.finished and module.context_vars.current_run.get() is None


def test_trackio_logs_into_the_run_of_the_loop_and_does_not_end_it(fake):
    module = fake("trackio")
    sink = SINKS.build("trackio")
    mine = module.init("mine")
    written(sink, [1])
    sink.close()
    assert module.runs == [mine]
    assert not mine.finished and module.context_vars.current_run.get() is mine


def test_trackio_ends_its_run_where_the_loop_has_started_another_one(fake):
    module = fake("trackio")
    sink = SINKS.build("trackio")
    written(sink, [1])
    mine = module.init("mine")
    sink.close()
    assert module.runs[0].finished and not mine.finished
    assert module.context_vars.current_run.get() is mine


# --- files -----------------------------------------------------------------------------------------


def test_csv_holds_one_row_per_number_and_goes_on_in_the_same_file(tmp_path):
    path = tmp_path / "deep" / "run.csv"
    for step in (1, 50):
        sink = SINKS.build(Choice("csv", path=str(path)))
        sink.write(step, {"leadline/loss": 0.1 + 0.2, "leadline/layer_01/stream_norm": math.inf})
        assert len(path.read_text().splitlines()) == 1 + 2 * (1 + (step == 50))  # written out
        sink.close()
    sink = SINKS.build(Choice("csv", path=str(path)))
    sink.warn(WARNING)
    sink.close()
    with path.open(newline="") as lines:
        rows = list(csv.reader(lines))
    assert rows == [
        ["step", "name", "value", "text"],
        ["1", "leadline/loss", "0.30000000000000004", ""],
        ["1", "leadline/layer_01/stream_norm", "inf", ""],
        ["50", "leadline/loss", "0.30000000000000004", ""],
        ["50", "leadline/layer_01/stream_norm", "inf", ""],
        ["60", "leadline/warning/G02", "", SENTENCE],
    ]


@pytest.mark.parametrize("kind", ["csv", "arrow"])
def test_an_empty_file_is_taken(tmp_path, kind):
    path, new = tmp_path / "empty", tmp_path / "new"
    path.touch()
    for file in (path, new):
        (sink,), _ = opened(Choice(kind, path=str(file)))
        sink.warn(Finding("Without a step."))
        sink.close()
    assert path.read_bytes() == new.read_bytes()
    if kind == "csv":
        assert path.read_text().splitlines()[1] == "0,leadline/warning/,,Without a step."


@pytest.mark.parametrize("kind", ["csv", "arrow"])
def test_a_file_of_somebody_else_stays_what_it_is(tmp_path, kind):
    path = tmp_path / "mine"
    path.write_text("year,sales\n2026,3\n")
    sinks, (note,) = opened(Choice(kind, path=str(path)))
    assert sinks == []
    assert "give another path" in note
    assert path.read_text() == "year,sales\n2026,3\n"


def test_arrow_can_be_read_while_it_grows_and_goes_on_in_the_same_file(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    path = tmp_path / "deep" / "run.arrow"

    def table():
        with arrow.ipc.open_stream(path.read_bytes()) as stream:
            return stream.read_all().to_pylist()

    first = SINKS.build(Choice("arrow", path=str(path)))
    assert table() == []
    first.write(1, {"leadline/loss": 0.1 + 0.2, "leadline/layer_01/stream_norm": math.inf})
    first.write(2, {})
    row = {"step": 1, "name": "leadline/loss", "value": 0.1 + 0.2, "text": None}
    assert table()[0] == row
    first.close()
    second = SINKS.build(Choice("arrow", path=str(path)))
    second.write(50, {"leadline/loss": 1.0})
    second.warn(WARNING)
    second.close()
    assert [one["step"] for one in table()] == [1, 1, 50, 60]
    assert table()[-1] == {
        "step": 60,
        "name": "leadline/warning/G02",
        "value": None,
        "text": SENTENCE,
    }


def test_arrow_goes_on_behind_a_sample_that_was_cut_off(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    path = tmp_path / "run.arrow"
    sink = SINKS.build(Choice("arrow", path=str(path)))
    lengths = []
    for step in (1, 2):
        sink.write(step, {"leadline/loss": 1.0})
        lengths.append(path.stat().st_size)
    sink.close()
    for cut in (lengths[0] + 1, lengths[0] + 5, lengths[1] - 1):
        whole = path.read_bytes()
        path.write_bytes(whole[:cut])
        again = SINKS.build(Choice("arrow", path=str(path)))
        again.write(3, {"leadline/loss": 1.0})
        again.close()
        with arrow.ipc.open_stream(path.read_bytes()) as stream:
            assert stream.read_all()["step"].to_pylist() == [1, 3]


def test_tensorboard_holds_scalars_by_step_and_warnings_as_texts(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    sink = SINKS.build(Choice("tensorboard", folder=str(tmp_path)))
    written(sink, [1, 50])
    sink.write(51, {"leadline/loss": math.nan})
    sink.warn(WARNING)
    sink.close()
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    assert events.Tags()["scalars"] == ["leadline/loss"]
    loss = events.Scalars("leadline/loss")
    assert [(one.step, one.value) for one in loss[:2]] == [(1, 1.0), (50, 50.0)]
    assert math.isnan(loss[2].value)
    (text,) = events.Tensors("leadline/warning/G02/text_summary")
    assert text.step == 60
    assert text.tensor_proto.string_val == [SENTENCE.encode()]
