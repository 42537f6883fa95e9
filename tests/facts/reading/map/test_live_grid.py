"""The grid that fills: what a place shows, and the line of a cell that has ended."""

import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from leadline.reading.map.live_grid import GridCell, LiveGrid, clock


@pytest.fixture(autouse=True)
def stopped_clock(monkeypatch):
    monkeypatch.setattr(
        "leadline.reading.map.live_grid.time", SimpleNamespace(monotonic=lambda: 1000.0)
    )


def grid(*, depths=(6, 12), designs=("pre", "post"), seeds=3):
    return LiveGrid(
        [
            GridCell(f"{design} {depth} {seed}", {"design": design, "depth": depth}, 2.5)
            for design in designs
            for depth in depths
            for seed in range(seeds)
        ]
    )


def drawn(shown, *, color=None, width=80, height=25):
    file = io.StringIO()
    console = Console(
        file=file,
        width=width,
        height=height,
        force_terminal=True,
        color_system=color,
        _environ={},
        legacy_windows=False,
    )
    console.print(shown)
    return file.getvalue()


def test_rows_are_designs_and_columns_depths_in_order():
    lines = drawn(grid(depths=(12, 6))).splitlines()
    assert lines[0].split() == ["design", "depth", "6", "depth", "12"]
    assert lines[1].split() == ["pre", "0/3", "0/3"]
    assert lines[2].split() == ["post", "0/3", "0/3"]
    assert lines[3].startswith("0 of 12 cells have ended, starting workers, 0:00")


def test_a_place_shows_the_mean_loss_of_what_ended_and_how_far_the_rest_are():
    shown = grid()
    shown.ended("pre 6 0", status="finished", loss=2.0)
    shown.ended("pre 6 1", status="finished", loss=2.5)
    shown.running("pre 6 2", step=45, steps=100, loss=3.0)
    shown.running("post 6 0")
    lines = drawn(shown).splitlines()
    assert lines[1].split() == ["pre", "2/3", "2.25", "45%", "0/3"]
    assert lines[2].split() == ["post", "0/3", "0%", "0/3"]
    assert lines[3].startswith("2 of 12 cells have ended, 2 running")
    assert shown.count == 2


def test_what_trains_is_green_and_what_does_not_is_red():
    def colour(*losses):
        shown = grid(depths=(6,), designs=("pre",))
        for seed, loss in enumerate(losses):
            shown.ended(f"pre 6 {seed}", status="finished", loss=loss)
        text = drawn(shown, color="standard")
        return {name for name, code in (("green", "[32m"), ("red", "[31m")) if code in text}

    assert colour(2.5) == {"green"}
    assert colour(2.51) == {"red"}
    assert colour(2.0, 2.0, 3.0) == {"green"}
    assert colour(2.0, 3.0, 3.0) == {"red"}


def test_cells_that_diverged_failed_or_cannot_be_are_named():
    shown = grid(seeds=1)
    shown.ended("pre 6 0", status="diverged", loss=None)
    shown.ended("pre 12 0", status="failed", loss=None)
    shown.ended("post 6 0", status="impossible", loss=None)
    text = drawn(shown)
    assert text.splitlines()[1].split() == ["pre", "1/1", "diverged", "1/1", "failed"]
    assert text.splitlines()[2].split()[:3] == ["post", "1/1", "impossible"]


def test_without_a_depth_the_last_axis_makes_the_columns():
    shown = LiveGrid([GridCell(str(rate), {"norm": "rms", "rate": rate}, 1.0) for rate in (0.1, 1)])
    assert drawn(shown).splitlines()[0].split() == ["norm", "rate", "0.1", "rate", "1"]


def test_a_place_that_is_in_no_grid_stays_empty():
    shown = LiveGrid(
        [
            GridCell("a", {"design": "pre", "depth": 6}, 1.0),
            GridCell("b", {"design": "post", "depth": 12}, 1.0),
        ]
    )
    lines = drawn(shown).splitlines()
    assert lines[1].split() == ["pre", "0/1"]
    assert lines[2].split() == ["post", "0/1"]


def test_the_line_of_a_cell_says_how_it_ended():
    shown = grid()
    shown.ended("pre 6 0", status="finished", loss=2.25)
    assert shown.line("pre 6 0", seconds=14.2) == "1 of 12  pre 6 0: 2.250, trains, 14 s"
    shown.ended("pre 6 1", status="plateau", loss=3.1)
    assert shown.line("pre 6 1", seconds=3.21) == (
        "2 of 12  pre 6 1: plateau, 3.100, does not train, 3.2 s"
    )
    shown.ended("pre 6 2", status="failed", loss=None)
    assert shown.line("pre 6 2", seconds=0.0) == "3 of 12  pre 6 2: failed"


def test_a_narrow_terminal_keeps_the_names_and_the_columns_that_began_last():
    shown = grid(depths=(6, 12, 24, 48), designs=("layerscale", "post"))
    shown.running("post 24 0", step=1, steps=2)
    wide = drawn(shown, width=60).splitlines()
    assert wide[0].split() == ["design", "depth", "6", "depth", "12", "depth", "24", "depth", "48"]
    assert len(wide) == 4
    lines = drawn(shown, width=30).splitlines()
    assert all(len(line) <= 30 for line in lines)
    assert lines[0].split() == ["design", "depth", "6", "depth", "24"]
    assert lines[1].split() == ["layerscale", "0/3", "0/3"]
    assert lines[2].split() == ["post", "0/3", "0/3", "50%"]
    assert lines[3] == "2 columns more than the termi…"
    assert lines[4].startswith("0/24, 1 running, 0:00")
    lines = drawn(shown, width=19).splitlines()
    assert lines[0].split() == ["design", "depth", "24"]
    assert lines[1].split() == ["layersca…", "0/3"]


def test_a_low_terminal_keeps_the_rows_that_began_last_and_the_count():
    shown = grid(designs=[f"design {n}" for n in range(30)])
    shown.running("design 20 6 0")
    shown.running("design 9 6 0")
    lines = drawn(shown, height=7).splitlines()
    assert len(lines) == 7 - 1  # the cursor needs a line, or the first one scrolls away
    assert [line[:9].strip() for line in lines[1:4]] == ["design 0", "design 9", "design 20"]
    assert lines[4] == "27 rows more than the terminal has room for"
    assert lines[5].startswith("0 of 180 cells have ended, 2 running")
    lines = drawn(shown, height=5, width=24).splitlines()
    assert lines[1].split() == ["design", "9", "0/3", "0%"]
    assert lines[2].startswith("29 rows and 1 column")


def test_workers_are_said_to_start_until_a_cell_begins():
    def said(workers):
        shown = LiveGrid([GridCell(str(n), {"depth": n}, 1.0) for n in range(2)], workers=workers)
        shown.ended("0", status="finished", loss=1.0)
        return shown, drawn(shown).splitlines()[-1]

    assert said(2)[1].startswith("1 of 2 cells have ended, starting 1 worker, 0:00")
    assert said(None)[1].startswith("1 of 2 cells have ended, starting workers, 0:00")
    shown, _ = said(2)
    shown.running("1")
    assert drawn(shown).splitlines()[-1].startswith("1 of 2 cells have ended, 1 running, 0:00")


def test_the_clock_counts_minutes_and_seconds():
    assert clock(1000.0 - 125.5) == "2:05"
