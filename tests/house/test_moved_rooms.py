"""What pages told plug-ins to import still stands under its old name."""

import subprocess
import sys

import pytest

import leadline

OLD = [
    ("leadline.probes", "PROBES", "leadline.instruments.passes.probes"),
    ("leadline.reporting", "as_json", "leadline.reading.page"),
    ("leadline.reproduce", "EXPERIMENTS", "leadline.experiments"),
    ("leadline.analysis.claim", "Check", "leadline.claims.claim"),
]


@pytest.mark.parametrize(("old", "name", "new"), OLD)
def test_an_old_room_is_the_new_one_and_says_so(old, name, new):
    script = (
        f"import importlib\nold = importlib.import_module({old!r})\n"
        f"new = importlib.import_module({new!r})\n"
        f"assert old.{name} is new.{name}\nprint(new.__spec__.name)"
    )
    done = subprocess.run(
        [sys.executable, "-W", "always::DeprecationWarning", "-c", script],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == new
    assert f"{old} is now {new}." in done.stderr


def test_every_moved_room_is_tried():
    assert {old for old, _, _ in OLD} == set(leadline._MOVED)


def test_a_room_that_never_was_is_not_found():
    with pytest.raises(ModuleNotFoundError):
        __import__("leadline.probing")
