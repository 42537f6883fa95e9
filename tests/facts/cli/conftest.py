from dataclasses import dataclass

import pytest

from leadline.cli.main import run


@dataclass(frozen=True)
class Said:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str


@pytest.fixture
def leadline(capsys):
    """Run the command line in this process."""

    def call(*arguments):
        with pytest.raises(SystemExit) as left:
            run([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return Said(left.value.code or 0, printed.out, printed.err)

    return call
