import io
import json
import os
import threading

import pytest

from leadline.cli import _voice
from leadline.cli._voice import Voice, check_page, check_writable
from leadline.errors import RecordError
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

    @classmethod
    def instead_of_stderr(cls, monkeypatch):
        """In the test itself: pytest sets its own standard error after the fixtures."""
        monkeypatch.setattr("sys.stderr", terminal := cls())
        return terminal


@pytest.fixture
def timers(monkeypatch):
    """The timers that were started; none of them goes off by itself."""
    waiting = []

    class Timer(threading.Timer):
        def start(self):
            waiting.append(self)

    monkeypatch.setattr(_voice.threading, "Timer", Timer)
    return waiting


def test_progress_appears_on_a_terminal_when_two_seconds_are_over(monkeypatch, timers):
    terminal = Terminal.instead_of_stderr(monkeypatch)
    with Voice().progress("Ablating") as gauge:
        gauge("Ablating", 1, 4)
        (timer,) = timers
        assert timer.interval == 2.0
        assert terminal.getvalue() == ""
        timer.function()
        wait_for(lambda: "1/4" in terminal.getvalue())
        gauge("Ablating", 3, 4)
        wait_for(lambda: "3/4" in terminal.getvalue())
    assert "Ablating" in terminal.getvalue()


def test_progress_does_not_appear_when_it_is_quick(monkeypatch, timers):
    terminal = Terminal.instead_of_stderr(monkeypatch)
    with Voice().progress("Ablating") as gauge:
        gauge("Ablating", 3, 4)
    (timer,) = timers
    assert timer.finished.is_set()
    timer.function()  # its time may come in the moment in which the work ends
    assert terminal.getvalue() == ""


def test_progress_does_not_appear_when_it_is_quiet(monkeypatch, timers):
    terminal = Terminal.instead_of_stderr(monkeypatch)
    with Voice(quiet=True).progress("Ablating"):
        assert timers == []
    assert terminal.getvalue() == ""


def test_progress_does_not_appear_in_a_pipe(timers, capsys):
    with Voice().progress("Ablating"):
        assert timers == []
    assert capsys.readouterr() == ("", "")


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
