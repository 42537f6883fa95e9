"""The map in the terminal: fits, reads without colour, plain in a pipe."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from leadline.reading.compare.compare import compare
from leadline.reading.map.trainability import trainability
from leadline.reading.page import screen_of
from tests.synthetic_sweep import LOST, sweep_record, training_record

ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
HOLES = {
    f"design=plain, depth=48, warmup=0, seed={seed}": {
        "status": "impossible",
        "loss": None,
        "reason": f"because {seed}",
    }
    for seed in range(3)
}


def terminal(width: int, *, colour: bool = False) -> Console:
    return Console(
        file=io.StringIO(),
        width=width,
        force_terminal=True,
        color_system="standard" if colour else None,
        _environ={},
    )


def printed(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def large():
    return sweep_record(
        depths=(6, 12, 24, 48, 96),
        axes={"warmup": [300, 0]},
        changes=HOLES,
        missing=["design=post, depth=96, warmup=0, seed=0"],
    )


def test_designs_of_which_none_trains_are_the_subject_of_a_sentence() -> None:
    strict = trainability(sweep_record(limits={"pre": 6, "post": 6}), margin=9.0)
    assert strict.to_json()["answer"] == [
        "Neither pre nor post trains within 200 steps, even at depth 6."
    ]


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 160])
def test_the_map_fits_the_terminal_and_nothing_is_cut_off(width: int) -> None:
    console = terminal(width)
    trainability(large()).screen().show(console)
    lines = printed(console).splitlines()
    assert max(len(line.rstrip()) for line in lines) <= width
    text = "".join(lines)
    assert "…" not in text
    for words in ("✓ 2.30", "✗ 3.13", "impossible", "96 or more", "12, not 24"):
        assert words in text


def test_every_row_stands_on_one_line_at_eighty_columns() -> None:
    console = terminal(80)
    trainability(large()).screen().show(console)
    lines = printed(console).splitlines()
    (line,) = [line for line in lines if line.startswith("post, warmup 300 ") and "✓" in line]
    assert line.split()[3:] == [
        "12,",
        "not",
        "24",
        *(["✓", "2.30", "✓", "2.30", "✗", "3.13", "✗", "3.13", "✗", "3.13"]),
    ]


def test_a_wide_map_tells_seeds_and_their_spread() -> None:
    console = terminal(140)
    trainability(large()).screen().show(console)
    text = " ".join(printed(console).split())
    assert "✓ 2.30 3/3" in text
    assert "96 96 96" in text
    assert "by seed: usable depth of the worst, the middle and the best seed" in text


def test_green_trains_red_does_not_and_grey_was_not_measured() -> None:
    console = terminal(140, colour=True)
    trainability(large()).screen().show(console)
    text = printed(console)
    assert "\x1b[32m✓ 2.30 3/3" in text
    assert "\x1b[31m✗ 3.13 0/3" in text
    assert "\x1b[90m· impossible" in text


def test_a_pipe_gets_plain_text_and_unbroken_lines() -> None:
    console = Console(file=io.StringIO(), _environ={})
    trainability(large()).screen().show(console)
    text = printed(console)
    assert "\x1b" not in text
    (line,) = [
        line for line in text.splitlines() if line.startswith("plain, warmup 0 ") and "✗" in line
    ]
    assert line.count("✗ 3.13 0/3") == 4
    assert "· impossible" in line


def test_output_without_marks_gets_letters() -> None:
    file = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    trainability(large()).screen().show(Console(file=file, _environ={}))
    file.flush()
    assert isinstance(file.buffer, io.BytesIO)
    text = file.buffer.getvalue().decode("latin-1")
    assert "+ 2.30 3/3" in text
    assert "x 3.13 0/3" in text


def test_the_reasons_of_cells_that_were_not_measured_are_told() -> None:
    console = terminal(140)
    trainability(large()).screen().show(console)
    assert "impossible: design=plain, depth=48, warmup=0, seed=1: because 1" in printed(console)


def failed(reason: str, *, seeds: int, everything: bool = False) -> str:
    changes = {
        f"design=plain, depth={depth}, seed={seed}": {
            "status": "failed",
            "loss": None,
            "reason": reason.format(depth, seed),
        }
        for depth in (6, 12, 24, 48)
        for seed in range(seeds)
    }
    console = terminal(140)
    record = sweep_record(changes=changes, seeds=range(seeds))
    trainability(record).screen(everything=everything).show(console)
    return printed(console)


def test_equal_reasons_are_told_once() -> None:
    text = failed("no memory", seeds=4)
    assert text.count("no memory") == 1
    assert "failed: design=plain, depth=6, seed=0 and 15 more: no memory" in text


def test_many_reasons_are_cut_short_and_counted() -> None:
    text = failed("at {} and {}", seeds=4, everything=True)
    assert text.count("failed: design=plain") == 12
    assert "... and 4 more reasons; --json gives all of them." in text


def test_a_record_of_a_sweep_is_shown_as_its_map() -> None:
    console = terminal(100)
    screen_of(sweep_record()).show(console)
    text = printed(console)
    assert text.startswith("Sweep made: design (3) x depth (4)")
    assert "12, not 24" in text


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_training_record_shows_its_curves(width: int) -> None:
    console = terminal(width)
    screen_of(training_record(layers=True)).show(console)
    lines = printed(console).splitlines()
    assert max(len(line.rstrip()) for line in lines) <= width
    (line,) = [line for line in lines if line.startswith("validation.loss ")]
    assert line.split()[1:3] == ["5.5", "2.26"]
    assert any(line.startswith("stream.norm ") for line in lines)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_two_training_records_are_compared_over_steps(width: int) -> None:
    console = terminal(width)
    compare(training_record(), training_record(end=2.5, name="other")).screen().show(console)
    lines = printed(console).splitlines()
    (line,) = [line for line in lines if line.startswith("validation.loss")]
    assert "2.26" in line.split()
    assert "2.56" in line.split()
    assert line.split()[-1] == "+0.3"
    assert "change: to small at the last step" in " ".join(lines)


def test_the_terminal_says_how_a_run_ended() -> None:
    console = terminal(100)
    screen_of(training_record(outcome=LOST)).show(console)
    text = printed(console)
    assert "The run diverged: the loss was not finite at step 407." in text
    (line,) = [line for line in text.splitlines() if line.startswith("validation.loss")]
    assert line.split()[1:3] == ["5.5", "diverged"]


def test_a_comparison_in_the_terminal_says_what_diverged_and_which_steps_differ() -> None:
    console = terminal(120)
    other = training_record(name="other", steps=300)
    compare(training_record(outcome=LOST), other).screen().show(console)
    text = printed(console)
    assert "small: The run diverged: the loss was not finite at step 407." in text
    assert "The last steps differ: small at step 407, other at step 300." in text
    (line,) = [line for line in text.splitlines() if line.startswith("validation.loss")]
    assert "diverged" in line
    assert line.split()[-1] == "-"


def test_the_legend_of_two_seeds_names_two() -> None:
    console = terminal(300)
    trainability(sweep_record(seeds=(0, 1), name="sweep")).screen().show(console)
    text = printed(console)
    assert "by seed: usable depth of the worst and the best seed" in text
    assert text.splitlines()[0] == "What trains"
