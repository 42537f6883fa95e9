"""`leadline watch`: one screen into a pipe, a live one on a terminal, sentences for everything odd."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import struct
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from leadline.cli import watch as command
from leadline.record.file import following
from tests.processes import wait_for
from tests.synthetic import gpt2_record
from tests.synthetic_sweep import sweep_record, training_record
from tests.synthetic_watch import Course, growing_file, watch_record, write_sample

ROOT = Path(__file__).parents[3]
SMALL = Course(layers=6, samples=30, every=10)
PIPES = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "cwd": ROOT}


@pytest.fixture
def file(tmp_path):
    return watch_record(SMALL).save(tmp_path / "run.leadline")


def test_a_pipe_gets_one_screen_that_begins_with_the_answer(leadline, file):
    said = leadline("watch", file)
    assert (said.code, said.err) == (0, "")
    first, second = said.out.split("\n")[:2]
    assert first.startswith("The run of gpt2 has ended at step 290, loss ")
    assert first.endswith("1 serious warning and 1 warning.")
    assert second.startswith("serious: G91: ")
    assert "attention.logit_std[attention]" in said.out
    assert "\x1b" not in said.out


def test_once_is_the_same(leadline, file):
    assert leadline("watch", file, "--once").out == leadline("watch", file).out


def test_json_is_printed_alone(leadline, file):
    said = leadline("watch", file, "--json")
    found = json.loads(said.out)
    assert said.err == ""
    assert (found["file"], found["state"], found["step"]) == ("run.leadline", "closed", 290)
    assert [one["code"] for one in found["warnings"]] == ["G91", "G90"]


def test_quiet_prints_nothing(leadline, file):
    said = leadline("watch", file, "--quiet")
    assert (said.code, said.out, said.err) == (0, "", "")


def test_the_quantity_of_the_map_is_chosen(leadline, file):
    said = leadline("watch", file, "--quantity", "update.ratio[mlp]", "--relative")
    assert "Update over stream, mlp  update.ratio[mlp]" in said.out
    assert "against each layer's median" in said.out


def test_an_unknown_quantity_is_a_sentence(leadline, file):
    said = leadline("watch", file, "--quantity", "update.ration[mlp]")
    assert said.code == 2
    assert "update.ratio[mlp]" in said.err
    assert len(said.err.strip().split("\n")) == 1


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "86401"])
def test_an_interval_that_is_none_is_refused(leadline, file, seconds):
    said = leadline("watch", file, "--interval", seconds)
    assert (said.code, f"--interval is {seconds}" in said.err) == (2, True)


def test_what_is_no_regular_file_is_refused(leadline, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    said = leadline("watch", tmp_path / "pipe")
    assert (said.code, "is no regular file" in said.err) == (2, True)


def test_an_empty_file_that_nobody_writes_is_told_as_such(leadline, tmp_path):
    (tmp_path / "run.leadline").touch()
    said = leadline("watch", tmp_path / "run.leadline")
    assert "nobody has it open for writing" in said.out


def test_one_look_at_a_file_that_is_not_there_is_a_sentence(leadline, tmp_path):
    said = leadline("watch", tmp_path / "none.leadline")
    assert said.code == 2
    assert f"There is no record at {tmp_path / 'none.leadline'}" in said.err


@pytest.mark.parametrize(
    ("make", "words"),
    [(gpt2_record, "holds no training run"), (sweep_record, "the record of a sweep")],
)
def test_a_record_that_is_no_run_is_a_sentence(leadline, tmp_path, make, words):
    path = make().save(tmp_path / "other.leadline")
    said = leadline("watch", path)
    assert said.code == 2
    assert words in said.err


def test_what_is_no_record_is_a_sentence(leadline, tmp_path):
    path = tmp_path / "text.leadline"
    path.write_text("no record at all\n" * 20)
    said = leadline("watch", path)
    assert (said.code, "is not a Leadline record" in said.err) == (2, True)


def test_a_run_of_train_is_shown_too(leadline, tmp_path):
    path = training_record(layers=True).save(tmp_path / "train.leadline")
    said = leadline("watch", path)
    assert said.code == 0
    assert "Norm of the stream  stream.norm" in said.out


def test_a_file_that_is_locked_is_looked_at_again(leadline, file, monkeypatch):
    import sqlite3

    assert command.TRIES == 20
    monkeypatch.setattr(following, "TIMEOUT", 0.0)
    looks = []
    opened = following.open_to_follow
    with closing(sqlite3.connect(file)) as other:
        other.execute("BEGIN EXCLUSIVE")

        def look(*arguments, **options):
            looks.append(1)
            if len(looks) == 3:
                other.rollback()
            return opened(*arguments, **options)

        monkeypatch.setattr(following, "open_to_follow", look)
        said = leadline("watch", file)
    assert (said.code, len(looks)) == (0, 3)
    assert said.out.startswith("The run of gpt2 has ended")


def test_a_growing_file_is_shown_as_it_is(leadline, tmp_path):
    path = tmp_path / "run.leadline"
    with growing_file(path, SMALL) as record:
        for sample in range(5):
            write_sample(record, SMALL, sample)
        said = leadline("watch", path)
    assert said.out.startswith("Step 40 of gpt2, loss ")
    assert f"run.leadline: process {os.getpid()} is writing" in said.out
    assert said.err == ""


class Terminal:
    """A command on a terminal of its own, and what it has drawn there."""

    def __init__(self, start, arguments, *, columns=90, lines=30) -> None:
        pty, fcntl, termios = map(pytest.importorskip, ("pty", "fcntl", "termios"))
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": ""}
        for name in ("COLUMNS", "LINES", "NO_COLOR"):
            environment.pop(name, None)
        self.process = start(
            [sys.executable, "-m", "leadline", "watch", *arguments],
            cwd=ROOT, stdin=slave, stdout=slave, stderr=slave, env=environment,
            preexec_fn=os.setsid,
        )  # fmt: skip
        os.close(slave)
        self.drawn = ""

    def read(self) -> str:
        """Take what has been drawn since."""
        while select.select([self._master], [], [], 0)[0]:
            try:
                piece = os.read(self._master, 65536)
            except OSError:  # the command has left
                break
            if not piece:
                break
            self.drawn += piece.decode(errors="replace")
        return self.drawn

    def wait_for(self, words: str) -> None:
        """Wait until words are drawn behind all that was drawn before."""
        begin = len(self.drawn)
        wait_for(lambda: words in plain(self.read()[begin:]), of=self.process)

    def close(self) -> None:
        os.close(self._master)


def plain(drawn: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", drawn)


@pytest.fixture
def live(start):
    terminals = []

    def open_terminal(*arguments, **options):
        terminals.append(Terminal(start, [str(one) for one in arguments], **options))
        return terminals[-1]

    yield open_terminal
    for terminal in terminals:
        terminal.close()


def test_a_terminal_waits_follows_and_leaves_when_the_run_is_closed(live, start, tmp_path):
    path = tmp_path / "run.leadline"
    terminal = live(path, "--interval", "0.05", lines=20)
    terminal.wait_for("There is no file run.leadline yet: waiting for it")
    arguments = ["--layers", "4", "--samples", "6", "--every", "10", "--healthy", "--ask"]
    writer = start([sys.executable, "-m", "tests.synthetic_watch", str(path), *arguments], **PIPES)
    assert writer.stdout.readline() == "ready\n"
    terminal.wait_for("run.leadline is there, and no sample has come yet.")
    for step in (1, 10, 20, 30, 40):
        writer.stdin.write("\n")
        writer.stdin.flush()
        terminal.wait_for(f"Step {step} of gpt2, loss ")
    writer.stdin.write("\n")  # the last sample, after which it closes the file
    writer.stdin.close()
    wait_for(lambda: terminal.read() is not None and terminal.process.poll() is not None)
    assert terminal.process.returncode == 0
    drawn = terminal.read()
    assert "\x1b[?1049h" in drawn  # drawn over the terminal, which then comes back
    kept = plain(drawn.rpartition("\x1b[?1049l")[2])
    assert len(kept.strip().split("\n")) < 20  # the answer is still in sight above the prompt
    assert kept.lstrip().startswith("The run of gpt2 has ended at step 50, loss ")
    assert "run.leadline: closed." in kept
    assert "\x1b[?25h" in drawn  # the cursor, too


def test_one_look_on_a_terminal_fits_it_too(live, file):
    terminal = live(file, "--once", lines=20)
    wait_for(lambda: terminal.read() is not None and terminal.process.poll() is not None)
    shown = plain(terminal.read()).strip().split("\n")
    assert shown[0].startswith("The run of gpt2 has ended at step 290")
    assert len(shown) < 20


def test_ctrl_c_leaves_with_the_last_screen_and_without_a_word_of_error(live, tmp_path):
    path = tmp_path / "run.leadline"
    with growing_file(path, SMALL) as record:
        for sample in range(8):
            write_sample(record, SMALL, sample)
        terminal = live(path, "--interval", "0.05")
        terminal.wait_for("Step 70 of gpt2, loss ")
        terminal.process.send_signal(signal.SIGINT)
        wait_for(lambda: terminal.read() is not None and terminal.process.poll() is not None)
    assert terminal.process.returncode == 0
    kept = plain(terminal.read().rpartition("\x1b[?1049l")[2])
    assert kept.lstrip().startswith("Step 70 of gpt2, loss ")
    assert "Traceback" not in kept


def test_a_writer_that_is_killed_is_told_and_one_that_goes_on_is_followed(live, start, tmp_path):
    path = tmp_path / "run.leadline"
    arguments = ["--layers", "4", "--samples", "9", "--every", "10", "--healthy", "--ask"]
    writer = start([sys.executable, "-m", "tests.synthetic_watch", str(path), *arguments], **PIPES)
    writer.stdin.write("\n\n\n")
    writer.stdin.flush()
    for _ in range(4):
        writer.stdout.readline()
    terminal = live(path, "--interval", "0.05")
    terminal.wait_for("Step 20 of gpt2, loss ")
    writer.kill()
    writer.wait()
    terminal.wait_for("The run of gpt2 was cut off at step 20, loss ")
    terminal.wait_for("is gone; nothing has come since ")
    from leadline.record import Record

    course = Course(layers=4, samples=9, every=10, trouble=False)
    with Record.reopen(path, journal="delete") as record:
        write_sample(record, course, 3)
        terminal.wait_for("Step 30 of gpt2, loss ")
    terminal.process.send_signal(signal.SIGINT)
    wait_for(lambda: terminal.read() is not None and terminal.process.poll() is not None)
    assert terminal.process.returncode == 0


def test_a_record_that_turns_out_to_be_no_run_ends_in_a_sentence(live, tmp_path):
    path = tmp_path / "run.leadline"
    terminal = live(path, "--interval", "0.05")
    terminal.wait_for("waiting for it")
    gpt2_record().save(path)
    wait_for(lambda: terminal.read() is not None and terminal.process.poll() is not None)
    assert terminal.process.returncode == 2
    assert "holds no training run" in " ".join(plain(terminal.read()).split())
