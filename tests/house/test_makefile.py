"""The targets explain themselves, and a machine that lacks something is told what."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)[1].split()


def make(*arguments, python=sys.executable):
    return subprocess.run(
        ["make", "--no-print-directory", f"PYTHON={python}", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_promised_targets_are_there():
    promised = "demo test test-all check coverage package docs bench models clean"
    assert set(promised.split()) <= set(TARGETS)


@pytest.mark.parametrize("target", TARGETS)
def test_every_target_has_a_line_of_help(target):
    assert re.search(rf"^  make {target} +\w", make("help").stdout, re.MULTILINE)


def test_make_alone_prints_the_help():
    assert make().stdout == make("help").stdout


def test_every_install_obeys_the_constraints():
    installs = re.findall(r".*\bpip\b.* install .*|.*\$\(PIP\) install .*", MAKEFILE)
    assert len(installs) >= 3
    assert all("--constraint constraints.txt" in line for line in installs)


def pretend_python(folder, *, without, version="3.9.7"):
    """Write a Python that fails whenever its code mentions a word, and tells a version."""
    fake = folder / "python"
    fake.write_text(
        "#!/bin/sh\n"
        f'case "$*" in *{without}*) exit 1;; *platform*) echo {version}; exit 0;; esac\n'
        f'exec "{sys.executable}" "$@"\n'
    )
    fake.chmod(0o755)
    return fake


def set_up_with(python, tmp_path):
    return make(f"VENV={tmp_path / 'venv'}", f"{tmp_path / 'venv'}/.created", python=python)


def test_an_old_python_is_answered_with_one_sentence(tmp_path):
    fake = pretend_python(tmp_path, without="version_info")
    done = set_up_with(fake, tmp_path)
    assert done.returncode != 0
    assert f"Leadline needs Python 3.11 or newer and {fake} is 3.9.7" in done.stderr
    assert not (tmp_path / "venv").exists()


def test_a_python_without_venv_is_answered_with_the_package_to_install(tmp_path):
    done = set_up_with(pretend_python(tmp_path, without="ensurepip"), tmp_path)
    assert done.returncode != 0
    assert "install the package python3-venv" in done.stderr
    assert not (tmp_path / "venv").exists()


def test_a_python_that_is_not_there_is_answered_with_one_sentence(tmp_path):
    done = set_up_with("/nowhere/python3", tmp_path)
    assert done.returncode != 0
    assert "There is no /nowhere/python3 here" in done.stderr
