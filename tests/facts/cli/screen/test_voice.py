import io
import json
import os
import threading

import pytest

from leadline.cli.screen import voice as _voice
from leadline.cli.screen.voice import (
    Voice,
    check_page,
    check_writable,
    pause_between_stages,
    pause_without_news,
)
from leadline.errors import RecordError
from leadline.record.words.screen import Screen, Sentence
from leadline.record.words.table import Row, TableColumn, TextTable
from tests.processes import wait_for


def test_with_json_standard_output_holds_the_json_alone(capsys):
    with Voice(as_json=True) as voice:
        print("a model that talks")
        voice.say("for people")
        voice.show(lambda console: console.print("for people"))
        voice.emit(lambda: {"value": 1})
    printed = capsys.readouterr()
    assert json.loads(printed.out) == {"value": 1}
    assert "a model that talks" in printed.err


def test_without_json_nothing_is_made_into_json(capsys):
    with Voice() as voice:
        voice.say("for people")
        voice.emit(lambda: pytest.fail("not asked for"))
    assert capsys.readouterr().out == "for people\n"


def test_quiet_prints_nothing(capsys):
    with Voice(quiet=True) as voice:
        voice.say("for people")
        voice.note("a remark")
        voice.show(lambda console: console.print("for people"))
    assert capsys.readouterr() == ("", "")


def test_quiet_with_json_prints_the_json(capsys):
    with Voice(as_json=True, quiet=True) as voice:
        voice.emit(lambda: [1])
    assert json.loads(capsys.readouterr().out) == [1]


def test_json_that_is_not_strict_is_refused():
    with Voice(as_json=True) as voice, pytest.raises(ValueError, match="JSON compliant"):
        voice.emit(lambda: float("nan"))


class Terminal(io.StringIO):
    def isatty(self):
        return True


def opened_terminal(monkeypatch, *, patience):
    """In the test itself: pytest sets its own standard error after the fixtures."""
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr(_voice, "PATIENCE", patience)
    return terminal


def test_progress_is_worth_showing_after_two_seconds():
    assert _voice.PATIENCE == 2.0


def test_progress_appears_on_a_terminal_when_it_takes_long(monkeypatch):
    terminal = opened_terminal(monkeypatch, patience=0.0)
    with Voice().progress("Ablating") as gauge:
        gauge("Ablating", 1, 4)
        wait_for(lambda: "1/4" in terminal.getvalue())
        gauge("Ablating", 3, 4)
        wait_for(lambda: "3/4" in terminal.getvalue())
    assert "Ablating" in terminal.getvalue()


@pytest.mark.parametrize(("patience", "quiet"), [(1e6, False), (0.0, True)])
def test_progress_does_not_appear_when_it_is_quick_or_quiet(monkeypatch, patience, quiet):
    terminal = opened_terminal(monkeypatch, patience=patience)
    with Voice(quiet=quiet).progress("Ablating") as gauge:
        gauge("Ablating", 3, 4)
    assert terminal.getvalue() == ""


class Clock:
    """A clock that the test turns."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now


def opened_pipe(monkeypatch):
    """What stands on a standard error that is no terminal, by a clock that the test turns."""
    file, clock = io.StringIO(), Clock()
    monkeypatch.setattr("sys.stderr", file)
    monkeypatch.setattr(_voice, "PATIENCE", 0.01)
    monkeypatch.setattr(_voice.time, "monotonic", clock.monotonic)
    file.clock = clock
    return file


def test_in_a_pipe_progress_is_lines_with_an_estimate(monkeypatch, capsys):
    pipe = opened_pipe(monkeypatch)
    with Voice().progress("Loading the model") as gauge:
        wait_for(pipe.getvalue)
        assert pipe.getvalue() == "Loading the model, 0:00 so far\n"
        for second, step in ((3, 0), (4, 1), (11, 2), (19, 3), (27, 4)):
            pipe.clock.now = second
            gauge(f"block {step}", step, 6)
    # At second 4 the line before is one second old, and at second 11 two blocks are too few to tell.
    # Blocks 2 and 3 took 15 seconds, three are left; 3 and 4 took 16, and two are left.
    assert pipe.getvalue().splitlines()[1:] == [
        "Block 0, 0/6, 0:03 so far",
        "Block 2, 2/6, 0:11 so far",
        "Block 3, 3/6, about 0:22 left, 0:19 so far",
        "Block 4, 4/6, about 0:16 left, 0:27 so far",
    ]
    assert capsys.readouterr().out == ""


def test_a_heavy_first_step_says_nothing_of_the_others(monkeypatch):
    pipe = opened_pipe(monkeypatch)
    with Voice().progress("Loading the model") as gauge:
        wait_for(pipe.getvalue)
        for second, step in ((0, 0), (9, 1), (10, 2), (11, 3), (12, 4)):
            pipe.clock.now = second
            gauge(f"check {step}", step, 21)
    # By all four steps it would be 51 seconds: the later ones take a second each, 17 are left.
    assert pipe.getvalue().splitlines()[-1] == "Check 4, 4/21, about 0:17 left, 0:12 so far"
    assert "1/21, 0:09 so far" in pipe.getvalue()


def test_where_steps_are_long_one_of_them_is_enough(monkeypatch):
    pipe = opened_pipe(monkeypatch)
    with Voice().progress("Preparing the sweep") as gauge:
        wait_for(pipe.getvalue)
        for second, step in ((0, 0), (600, 1)):
            pipe.clock.now = second
            gauge(f"cell {step}", step, 4)
    assert pipe.getvalue().splitlines()[-1] == "Cell 1, 1/4, about 30:00 left, 10:00 so far"


def test_in_a_pipe_a_long_stage_is_told_again(monkeypatch):
    pipe = opened_pipe(monkeypatch)
    with Voice().progress("Training"):
        wait_for(pipe.getvalue)
        pipe.clock.now = 11
        wait_for(lambda: pipe.getvalue().count("\n") == 2)
    assert pipe.getvalue().splitlines() == ["Training, 0:00 so far", "Training, 0:11 so far"]


def test_lines_become_rarer_the_longer_it_takes():
    # Ten thousand updates in two hours make some hundred lines, not ten thousand.
    stages = [pause_between_stages(seconds) for seconds in (0, 20, 3600)]
    waits = [pause_without_news(seconds) for seconds in (0, 200, 3600)]
    assert stages == [2, 4, 10]
    assert waits == [10, 20, 60]


def test_results_come_with_the_progress_and_not_without(monkeypatch):
    pipe = opened_pipe(monkeypatch)
    with Voice().progress("Measuring") as gauge:
        gauge.tell("gpt2: 1.2")
        wait_for(lambda: "gpt2: 1.2\nMeasuring" in pipe.getvalue())
        gauge.tell("bert: 1.3")
        assert pipe.getvalue().endswith("bert: 1.3\n")
    before = pipe.getvalue()
    with Voice(quiet=True).progress("Measuring") as gauge:
        gauge.tell("gpt2: 1.2")
    monkeypatch.setattr(_voice, "PATIENCE", 1e6)
    with Voice().progress("Measuring") as gauge:
        gauge.tell("gpt2: 1.2")
    assert pipe.getvalue() == before


@pytest.mark.parametrize("patience", [0.0, 1e6])
def test_nothing_of_the_progress_is_left_running(monkeypatch, capsys, patience):
    monkeypatch.setattr(_voice, "PATIENCE", patience)
    before = set(threading.enumerate())
    with Voice().progress("Measuring"):
        ours = set(threading.enumerate()) - before
    for thread in ours:
        thread.join(120)
    assert not any(thread.is_alive() for thread in ours)


SENTENCE = "The quick brown fox jumps over the lazy dog and runs away into the dark forest again."


def drawn(monkeypatch, capsys, columns):
    """The lines that a table and a sentence are in a pipe, and those of a remark."""
    if columns is None:
        monkeypatch.delenv("COLUMNS", raising=False)
    else:
        monkeypatch.setenv("COLUMNS", columns)
    words = SENTENCE.split()
    columns_of_words = [
        TableColumn(word, gives_way=(1,) if at > 2 else ()) for at, word in enumerate(words)
    ]
    rows = (Row(tuple(words)), Row(("x" * 9,) * len(words)))
    with Voice() as voice:
        table = TextTable(tuple(columns_of_words), rows)
        voice.show(Screen((table, Sentence(SENTENCE, "bold red"))).show)
        voice.note(SENTENCE)
    printed = capsys.readouterr()
    assert "\x1b" not in printed.out + printed.err
    return printed.out.splitlines(), printed.err.splitlines()


@pytest.mark.parametrize("columns", ["60", "72"])
def test_a_pipe_is_as_wide_as_columns_says(monkeypatch, capsys, columns):
    out, err = drawn(monkeypatch, capsys, columns)
    assert len(out[0].split()) == 3  # the others give way
    assert " ".join(line.strip() for line in out[-2:]) == SENTENCE
    assert " ".join(err) == SENTENCE
    assert max(map(len, out + err)) <= int(columns)


@pytest.mark.parametrize("columns", [None, "", "0", "5", "-80", "wide"])
def test_a_pipe_without_a_sane_width_gets_every_column_and_whole_lines(
    monkeypatch, capsys, columns
):
    out, err = drawn(monkeypatch, capsys, columns)
    assert len(out[0].split()) == len(SENTENCE.split())
    assert out[-1] == SENTENCE
    assert err == [SENTENCE]


def test_an_error_is_one_line_in_a_pipe_and_fits_the_columns_that_were_asked_for(
    monkeypatch, leadline
):
    arguments = ("measure", "--recipe", "nothing-of-this-name")
    (whole,) = leadline(*arguments).err.splitlines()
    assert len(whole) > 60
    monkeypatch.setenv("COLUMNS", "60")
    lines = leadline(*arguments).err.splitlines()
    assert max(map(len, lines)) <= 60
    assert " ".join(lines) == whole


def test_checking_a_path_leaves_nothing_behind(tmp_path):
    check_writable(tmp_path / "a.leadline", "record")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_no_file_to_write(tmp_path):
    with pytest.raises(RecordError, match="it is a folder"):
        check_writable(tmp_path, "record")


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(RecordError, match=r"the folder .*missing does not exist"):
        check_writable(tmp_path / "missing" / "a.leadline", "record")


def test_a_folder_that_takes_no_files_is_refused(tmp_path, monkeypatch):
    def refuse(**_):
        raise OSError(30, os.strerror(30))

    monkeypatch.setattr(_voice.tempfile, "TemporaryFile", refuse)
    with pytest.raises(RecordError, match="Read-only file system"):
        check_writable(tmp_path / "a.leadline", "record")


def test_a_report_is_a_page(tmp_path):
    check_page(tmp_path / "a.html")
    with pytest.raises(RecordError, match=r"must end in \.html"):
        check_page(tmp_path / "weights.safetensors")


def test_remarks_and_progress_cannot_command_a_terminal(monkeypatch):
    pipe = opened_pipe(monkeypatch)
    with Voice() as voice:
        voice.note("gpt2\x1b[2J\u202e is\nhere")
        with voice.progress("Loading \x07\u2066evil"):
            wait_for(lambda: "so far" in pipe.getvalue())
    assert pipe.getvalue() == (
        "gpt2\\x1b[2J\\u202e is\nhere\nLoading \\x07\\u2066evil, 0:00 so far\n"
    )
