"""`assert_healthy` passes what is healthy and fails with the findings in words; so does the fixture."""

import subprocess
import sys

import pytest

from leadline.errors import InputError
from leadline.testing import assert_healthy
from tests.synthetic_diagnosis import record_of, trial_rules

__all__ = ["trial_rules"]


@pytest.mark.usefixtures("trial_rules")
def test_a_healthy_record_is_returned_as_a_diagnosis():
    assert assert_healthy(record_of(1, 1)).healthy


@pytest.mark.usefixtures("trial_rules")
def test_a_sick_one_raises_with_verdict_remedy_and_how_to_accept_it():
    with pytest.raises(AssertionError) as failed:
        assert_healthy(record_of(1, 0, 60))
    text = str(failed.value)
    assert text.startswith("tiny: 1 serious finding.")
    assert "The mlp of decoder layer 2 writes nothing." in text
    assert "Load the weights again." in text and 'ignore=["Z01"]' in text
    assert "Z02" not in text


@pytest.mark.usefixtures("trial_rules")
def test_severity_and_ignored_rules_decide():
    assert_healthy(record_of(1, 0, 60), ignore=["Z01"])
    with pytest.raises(AssertionError, match="Z02 trial-odd"):
        assert_healthy(record_of(1, 0, 60), fail_on="warning", ignore=["Z01"])
    assert_healthy(record_of(1, 60), fail_on="warning", select=["Y01"])
    with pytest.raises(InputError, match="give one of serious, warning, note"):
        assert_healthy(record_of(1), fail_on="bad")


TEST_FILE = """
from tests.synthetic_diagnosis import record_of, trial_rules

def test_well(trial_rules, assert_healthy):
    assert assert_healthy(record_of(1, 1)).healthy

def test_ill(trial_rules, assert_healthy):
    assert_healthy(record_of(1, 0, 1))
"""


def test_the_plug_in_hands_over_the_fixture(tmp_path, pytestconfig):
    (tmp_path / "test_it.py").write_text(TEST_FILE)
    # An installed package enters the plug-in by itself; twice is refused.
    known = pytestconfig.pluginmanager.has_plugin("leadline")
    plug_in = () if known else ("-p", "leadline.testing.pytest_plugin")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plug_in, "--rootdir", tmp_path, tmp_path],
        cwd=pytestconfig.rootpath, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "The mlp of decoder layer 2 writes nothing." in done.stdout


def test_the_plug_in_imports_nothing_heavy():
    code = (
        "import sys, leadline.testing.pytest_plugin as p;"
        "print([m for m in ('torch', 'numpy', 'rich', 'transformers') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
