"""`leadline sweep`: what it takes, what it prints, what it refuses."""

import io
import json
import math
import re
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from leadline.cli.screen.sweep_screen import _Screen, watching
from leadline.cli.screen.voice import Voice
from leadline.cli.sweep import _seconds
from leadline.errors import LabError
from leadline.lab.cell import Cell, run_cell
from leadline.lab.engines import ENGINES, Engine, News
from leadline.lab.estimate import CellCost
from leadline.lab.grid import Axis, Grid, Setting, Sweep
from leadline.lab.presets import PRESETS
from leadline.lab.sweep import Begun, Ended
from leadline.lab.trainer import Beat
from leadline.record import Record
from tests.processes import wait_for

TINY = [
    *("--set", "width=16", "--set", "heads=2", "--set", "batch=4", "--set", "examples=4"),
    *("--set", "log=2", "--set", "validate=3", "--set", "gauges=3", "--set", "task=copy(items=4)"),
]


class Here(Engine):
    """Cells in this process."""

    def run(self, jobs, orders):
        for job in jobs:
            yield run_cell(job.cell, folder=None)


class Interrupted(Engine):
    """Somebody presses Ctrl-C after the first cell."""

    def run(self, jobs, orders):
        yield run_cell(jobs[0].cell, folder=None)
        raise KeyboardInterrupt


@pytest.fixture(autouse=True)
def engines(monkeypatch):
    monkeypatch.setitem(ENGINES._entries, "here", Here)
    monkeypatch.setitem(ENGINES._entries, "interrupted", Interrupted)


@pytest.fixture
def preset(monkeypatch):
    def build(*, quick):
        design = Axis("design", (Setting("a", {"placement": "pre"}), Setting("no b", {})))
        depths = Axis.of("depth", 1, 2)
        fixed = {"width": 16, "heads": 2, "task": "copy(items=4)", "examples": 4}
        return Sweep(
            name="mine",
            grids=(Grid((design, depths)),),
            seeds=(0, 1),
            fixed={**fixed, "steps": 2 if quick else 4},
        )

    monkeypatch.setitem(PRESETS._entries, "mine", build)


def runs(path):
    with Record.open(path) as record:
        return [k.removeprefix("cell:") for k in record.provenance if k.startswith("cell:")]


def test_axes_are_arguments_or_options(leadline, tmp_path):
    path = tmp_path / "s.leadline"
    said = leadline(
        *("sweep", "--grid", "depth=1,2", "placement=pre,post", "--steps", 6, "--seeds", 1),
        *(*TINY, "--engine", "here", "-o", path),
    )
    assert said.code == 0, said.err
    assert sorted(runs(path)) == [
        f"depth={depth}, placement={placement}, seed=0"
        for depth in (1, 2)
        for placement in ("post", "pre")
    ]
    assert said.out.startswith("What trains")
    assert "4 of 4 cells have ended: 4 finished." in said.out
    assert (
        said.out.splitlines()[-1]
        == f"The record is in {path}; `leadline map {path}` draws it again."
    )
    lines = said.err.splitlines()
    assert len(lines) == 4
    assert lines[0].startswith("1 of 4  depth=2, placement=pre, seed=0: 2.")
    again = leadline(
        *("sweep", "--grid", "depth=1,2", "placement=pre,post", "--steps", 6, "--seeds", 1),
        *(*TINY, "--engine", "here", "-o", path),
    )
    assert again.err.splitlines() == ["4 of 4 cells have ended before."]


def test_json_stands_alone(leadline, tmp_path):
    path = tmp_path / "s"
    said = leadline(
        *("sweep", "depth=1", "--steps", 2, "--seeds", 2, *TINY, "--engine", "here", "-o", path),
        "--json",
    )
    data = json.loads(said.out)
    assert data["record"] == str(path)
    assert data["stopped"] is None
    assert set(data["cells"]) == {"depth=1, seed=0", "depth=1, seed=1"}
    assert data["map"]["depths"] == [1]


def test_quiet_prints_nothing(leadline, tmp_path):
    said = leadline(
        *("sweep", "depth=1", "--steps", 2, *TINY, "--engine", "here", "-o", tmp_path / "s", "-q")
    )
    assert (said.code, said.out, said.err) == (0, "", "")
    assert len(runs(tmp_path / "s")) == 3


def test_a_dry_run_lists_the_cells_and_writes_nothing(leadline, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = leadline(
        "sweep",
        "depth=1,2",
        "heads=2,3",
        "--steps",
        6,
        "--seeds",
        1,
        *TINY[4:],
        "--set",
        "width=16",
        "--dry-run",
        "--workers",
        2,
    )
    assert said.code == 0, said.err
    lines = said.out.splitlines()
    assert lines[0].split() == ["cell", "steps", "FLOPs", "about"]
    assert lines[1].startswith("depth=1, heads=2, seed=0      6  ")
    assert "impossible: The width 16 cannot be divided among 3 heads" in lines[2]
    assert lines[-1].startswith("2 cells, ") and lines[-1].endswith(
        "with 2 workers on this machine."
    )
    assert list(tmp_path.iterdir()) == []


def test_a_preset_is_cut_down_by_axes_and_changed_by_set(leadline, tmp_path, preset, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = leadline(
        *("sweep", "--preset", "mine", "--quick", "depth=2", "--seeds", 1, "--set", "width=8"),
        *("--engine", "here"),
    )
    assert said.code == 0, said.err
    path = tmp_path / "mine-quick.leadline"
    assert runs(path) == ["design=a, depth=2, seed=0", "design=no b, depth=2, seed=0"]
    with Record.open(path) as record:
        about = record.provenance["sweep"]
        assert about["name"] == "mine"
        assert (about["fixed"]["width"], about["fixed"]["steps"]) == (8, 2)
    said = leadline("sweep", "--preset", "mine", 'design="no b"', "--engine", "here", "-q")
    assert said.code == 0, said.err
    assert len(runs(tmp_path / "mine.leadline")) == 4


def test_ctrl_c_keeps_what_ended_and_says_how_to_go_on(leadline, tmp_path):
    path = tmp_path / "s"
    arguments = ("sweep", "depth=1,2", "--steps", 2, "--seeds", 1, *TINY, "-o", path, "--engine")
    said = leadline(*arguments, "interrupted")
    assert said.code == 2
    assert said.err.splitlines()[-1] == (
        f"leadline: The sweep was interrupted; the finished cells are in {path} and the "
        "checkpoints of the others beside it. The same command goes on from there."
    )
    assert runs(path) == ["depth=2, seed=0"]
    assert leadline(*arguments, "here").code == 0
    assert runs(path) == ["depth=2, seed=0", "depth=1, seed=0"]


def test_a_sweep_without_a_depth_is_told_in_words(leadline, tmp_path):
    said = leadline(
        *("sweep", "rate=0.1,0.01", "--steps", 2, "--seeds", 1, *TINY, "--set", "depth=1"),
        *("--engine", "here", "-o", tmp_path / "s"),
    )
    assert said.code == 0, said.err
    assert "2 of 2 cells have ended: 2 finished." in said.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "Give the axes of the sweep"),
        (["--quick"], "--quick is about a preset"),
        (["--preset", "dpth-limits"], "Did you mean 'depth-limits'"),
        (["--preset", "mine", "deph=1"], "has no axis 'deph'. Did you mean 'depth'"),
        (["--preset", "mine", "--set", "depth=3"], "sets depth itself"),
        (["depht=1"], "Did you mean 'depth'"),
        (["depth=1", "--seeds", "0"], "--seeds 0 asks for no seed"),
        (["depth=1", "--budget", "soon"], "--budget 'soon' is no time; write for example 90s"),
        (["depth=1", "--address", "auto"], "give --engine ray too"),
        (["depth=1", "--engine", "slurm"], "No engine is called 'slurm'"),
        (["depth=1", "--workers", "0"], "workers is a whole number from 1 on"),
        (["depth=1", "--workers", "-1", "--dry-run"], "workers is a whole number from 1 on"),
        (["depth=1", "--threads", "0", "--dry-run"], "threads is a whole number from 1 on"),
        (["steps=5,6", "--steps", "5"], "The axis 'steps' of this sweep sets steps itself"),
        (["task=copy", "--task", "recall"], "The axis 'task' of this sweep sets task itself"),
        (["depth=1", "--set", "steps=5", "--steps", "6"], "steps is given twice: 5 and 6"),
        (["depth=1", "-o", "nowhere/s"], "does not exist"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_sentence(
    leadline, tmp_path, monkeypatch, preset, arguments, said
):
    monkeypatch.chdir(tmp_path)
    answer = leadline("sweep", *arguments)
    assert answer.code == 2
    assert said in answer.err
    assert len(answer.err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_counts_what_needs_numbers_and_names_what_the_budget_does_not_allow(leadline):
    arguments = ("sweep", "depth=1,3", "connection=identity,hyper,manifold_hyper", "--steps", 6)
    arguments = (*arguments, "--seeds", 1, *TINY, "--dry-run", "--set", "flops=1e6")
    said = leadline(*arguments, "--workers", 2)
    assert said.code == 0, said.err
    lines = said.out.splitlines()
    assert len(lines) == 1 + 6 + 1
    possible = [line for line in lines[1:7] if "impossible" not in line]
    assert "impossible: One step costs " in lines[6]
    assert "FLOPs and the budget is 1e+06; raise it, or choose a smaller model" in lines[6]
    assert lines[7].startswith(f"{len(possible)} cells, ")
    data = json.loads(leadline(*arguments, "--json").out)
    assert [bool(cell["reason"]) for cell in data["cells"]] == [
        "impossible" in line for line in lines[1:7]
    ]
    assert data["cells"][5]["flops"] is None and data["cells"][5]["steps"] == 0


def test_a_dry_run_of_one_cell_is_no_faster_with_two_workers(leadline, monkeypatch):
    shown = []
    monkeypatch.setattr("leadline.lab.estimate.estimate", lambda *_, **__: shown)

    def last():
        return leadline("sweep", "depth=1", "--dry-run", "--workers", 2).out.splitlines()[-1]

    shown.append(CellCost("a", 1, 600.0, 10.0))
    assert last() == "1 cell, 600 FLOPs, about 10.0 s with 1 worker on this machine."
    shown.append(CellCost("b", 1, math.nan, math.nan))
    assert last() == (
        "2 cells, 600 FLOPs, about 10.0 s with 2 workers on this machine, and 1 that cannot be "
        "counted."
    )
    shown[:] = [CellCost("a", 0, math.nan, math.nan, "it is too large")]
    assert last() == "No cell can be built."


def test_the_values_of_a_preset_may_have_spaces(leadline, preset, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = leadline("sweep", "--preset", "mine", "design=a,no b", "depth=1", "--engine", "here")
    assert said.code == 0, said.err
    assert runs(tmp_path / "mine.leadline") == [
        f"design={design}, depth=1, seed={seed}" for seed in (0, 1) for design in ("a", "no b")
    ]


def test_the_grid_follows_all_that_is_heard():
    screen = _Screen(Voice(), 2, live=True)
    cells = tuple(Cell(f"seed={n}", {"depth": 1}, n, {"task": "copy"}) for n in (0, 1))
    facts = {"status": "finished", "loss": 1.99, "seconds": 1.0}
    screen.started -= 65
    seen = [str(screen.shown)]
    for event in (
        Begun(cells, {"seed=1": facts}, {"copy": {"unigram": 2.3}}),
        News("seed=0"),
        News("seed=0", Beat(5, 10, 2.5, 1.0, {})),
        Ended("seed=0", {**facts, "loss": 2.01}),
    ):
        screen(event)
        seen.append(screen.shown._count_line(80))
        if isinstance(event, News) and event.beat is not None:
            assert "50%" in str(screen.grid._place(["seed=0"]))
    assert [line.rpartition(",")[0] for line in seen] == [
        "Preparing the sweep",
        "1 of 2 cells have ended, starting 1 worker",
        "1 of 2 cells have ended, 1 running",
        "1 of 2 cells have ended, 1 running",
        "2 of 2 cells have ended, 0 running",
    ]
    assert {line.rpartition(", ")[2] for line in seen} <= {"1:05", "1:06"}
    # The unigram entropy less 0.3 nats is where a cell begins to train.
    assert [screen.grid._trains(cell.run) for cell in cells] == [False, True]


class Terminal(io.StringIO):
    """Lines as a terminal shows them, by the few controls that are used here."""

    def isatty(self):
        return True

    def screens(self):
        """What stood there before every erasure, and in the end."""
        lines, row, column, found = [""], 0, 0, []
        for text, code in re.findall(r"([^\x1b])|\x1b\[([^A-Za-z]*[A-Za-z])", self.getvalue()):
            if text == "\n":
                row, column = row + 1, 0
                lines += [""] * (row + 1 - len(lines))
            elif text == "\r":
                column = 0
            elif text:
                lines[row] = lines[row][:column].ljust(column) + text + lines[row][column + 1 :]
                column += 1
            elif code == "1A":
                row -= 1
                assert row >= 0, "above the terminal"
            elif code == "2K":
                found.append([line.rstrip() for line in lines])
                lines[row] = ""
        return [*found, [line.rstrip() for line in lines]]


@pytest.mark.parametrize("error", [None, KeyboardInterrupt])
def test_the_clock_moves_without_news_and_nothing_is_left_of_the_grid(monkeypatch, error):
    for name, value in {"COLUMNS": "30", "LINES": "8", "TERM": "xterm"}.items():
        monkeypatch.setenv(name, value)
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr("leadline.cli.screen.sweep_screen.PER_SECOND", 100)
    clock = SimpleNamespace(now=1000.0, monotonic=lambda: clock.now)
    monkeypatch.setattr("leadline.cli.screen.sweep_screen.time", clock)
    monkeypatch.setattr("leadline.reading.map.live_grid.time", clock)
    cells = tuple(
        Cell(f"{design} {depth}", {"design": design, "depth": depth}, 0, {"task": "copy"})
        for design in map("design {}".format, range(20))
        for depth in (6, 12, 24)
    )
    with pytest.raises(error) if error else nullcontext(), watching(Voice(), 2) as screen:
        wait_for(lambda: "Preparing the sweep, 0:00" in terminal.getvalue())
        screen(Begun(cells, {}, {"copy": {"unigram": 2.3}}))
        wait_for(lambda: "starting 2 workers" in terminal.getvalue())
        screen(News("design 7 12"))
        clock.now += 61  # a minute in which nobody says anything
        wait_for(lambda: "1:01" in terminal.getvalue())
        if error:
            raise error
    *before, last = terminal.screens()
    assert not "".join(last).strip()
    assert max(len(lines) for lines in before) == 8  # none has scrolled away
    assert any("design 7" in line and "0/1 0%" in line for lines in before for line in lines)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("30m", 1800), ("1.5h", 5400), ("2 d", 172800)]
)
def test_a_budget_is_a_time(text, seconds):
    assert _seconds(text) == seconds


def test_a_budget_of_nothing_is_refused():
    with pytest.raises(LabError, match="is no time"):
        _seconds("0s")
