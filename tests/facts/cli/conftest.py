from dataclasses import dataclass

import pytest

from leadline.cli.main import run
from leadline.cli.screen import voice as _voice


@dataclass(frozen=True)
class Said:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str


@pytest.fixture
def leadline(capsys, monkeypatch):
    """Run the command line in this process; however slow the machine is, it shows no progress."""
    monkeypatch.setattr(_voice, "PATIENCE", 1e6)

    def call(*arguments):
        with pytest.raises(SystemExit) as left:
            run([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return Said(left.value.code or 0, printed.out, printed.err)

    return call
