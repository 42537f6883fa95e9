import subprocess
import sys

import pytest

import leadline.cli.report as report_command
from leadline import __version__
from leadline.errors import RecordError

COMMANDS = ["measure", "compare", "report", "anatomy", "list", "explain", "check"]


def test_the_help_names_every_command(leadline):
    said = leadline("--help")
    assert said.code == 0
    assert all(f"\n  {command} " in said.out for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_takes_json_quiet_and_debug(leadline, command):
    said = leadline(command, "--help")
    assert all(option in said.out for option in ("--json", "--quiet", "--debug"))
    assert "…" not in said.out


def test_the_version_is_printed(leadline):
    assert leadline("--version").out == f"leadline {__version__}\n"


def test_an_unknown_command_is_answered_with_the_nearest(leadline):
    said = leadline("mesure")
    assert said.code == 2
    assert "Did you mean 'measure'?" in said.err


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (RecordError("The file is odd; measure again."), 2, "The file is odd; measure again."),
        (RecordError("No \x1b[2J \u202e here."), 2, r"No \x1b[2J \u202e here."),
        (MemoryError(), 2, "The memory did not suffice."),
        (OSError(28, "No space left on device", "out.leadline"), 2, "out.leadline: No space left"),
        (ZeroDivisionError("by nothing"), 1, "Unexpected ZeroDivisionError: by nothing"),
    ],
)
def test_an_error_is_one_sentence_and_with_debug_a_traceback(
    leadline, monkeypatch, error, code, sentence
):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(report_command, "open_records", fail)
    said = leadline("report", "x.leadline")
    assert said.code == code
    assert said.out == ""
    assert said.err.startswith(f"leadline: {sentence}")
    assert "Traceback" not in said.err
    assert "Traceback" in leadline("report", "x.leadline", "--debug").err


def test_a_reader_that_leaves_is_not_taken_for_a_finding(start):
    command = [sys.executable, "-m", "leadline", "list", "rules"]
    process = start(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    assert process.wait() == 141  # as of any program that SIGPIPE ends; 1 is --fail-on
    assert process.stderr.read() == b""
