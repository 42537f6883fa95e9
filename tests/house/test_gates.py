"""What is checked before a change is taken: continuous integration, hooks, workflow, coverage."""

import importlib.util
import json
import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = SETTINGS["project"]
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)[1].split())
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def recipe(target):
    """The commands of a target, without what stands before them on the line."""
    body = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)[1]
    return [line.strip().removeprefix("@").removeprefix("$(BIN)/") for line in body.splitlines()]


def test_continuous_integration_checks_and_then_tests():
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    commands = [line for line in script.read_text().splitlines() if line and line[0] != "#"]
    assert commands[0] == "set -euo pipefail"  # so that a failing check ends it
    assert commands[-2:] == ["make check", "make test"]


def test_a_failing_check_ends_continuous_integration_before_the_tests(tmp_path):
    (tmp_path / ".ci").mkdir()
    script = tmp_path / ".ci" / "run"
    script.write_text((ROOT / ".ci" / "run").read_text())
    (tmp_path / "Makefile").write_text("check:\n\t@echo checked; false\ntest:\n\t@echo tested\n")
    done = subprocess.run(["bash", script], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "checked" in done.stdout and "tested" not in done.stdout


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_runs_nothing_but_targets(workflow):
    jobs = yaml.safe_load(workflow.read_text())["jobs"].values()
    commands = [step["run"] for job in jobs for step in job["steps"] if "run" in step]
    assert commands
    for command in commands:
        assert re.fullmatch(r"make [a-z-]+", command), command
        assert command.removeprefix("make ") in TARGETS


def test_the_workflow_checks_and_tests_on_every_supported_python():
    (workflow,) = WORKFLOWS
    jobs = yaml.safe_load(workflow.read_text())["jobs"]
    told = "Programming Language :: Python :: "
    supported = [c.removeprefix(told) for c in PROJECT["classifiers"] if c.startswith(told)]
    matrix = jobs["test"]["strategy"]["matrix"]["python"]
    assert matrix == [version for version in supported if "." in version]
    assert PROJECT["requires-python"] == f">={matrix[0]}"
    assert {"make check", "make test"} <= {step.get("run") for step in jobs["test"]["steps"]}
    every = {step.get("run") for job in jobs.values() for step in job["steps"]}
    assert {"make coverage", "make package"} <= every


def test_the_hooks_are_the_tools_of_make_check_and_no_others():
    settings = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    (repository,) = settings["repos"]
    assert repository["repo"] == "local"
    hooks = [hook["entry"] for hook in repository["hooks"]]
    assert all(entry.startswith(".venv/bin/") for entry in hooks)
    words = [entry.removeprefix(".venv/bin/").split() for entry in hooks]
    # ruff is two tools, by its first argument.
    assert {tuple(w[: 1 + (w[0] == "ruff")]) for w in words} == {
        tuple(command.split()[: 1 + command.startswith("ruff")]) for command in recipe("check")
    }


def test_every_tool_of_the_gates_is_a_dependency_of_development():
    declared = {re.split(r"[<>=\[]", text)[0] for text in PROJECT["optional-dependencies"]["dev"]}
    tools = {command.split()[0] for command in recipe("check")} - {"lint-imports"}
    tools |= {"import-linter", "pytest-cov", "coverage", "build", "twine", "pre-commit"}
    assert tools <= declared


def report(**files):
    """What coverage writes, with four counts per file."""
    names = ("num_statements", "covered_lines", "num_branches", "covered_branches")
    return {
        f"src/leadline/{name}": {"summary": dict(zip(names, counts, strict=True))}
        for name, counts in files.items()
    }


def test_coverage_is_summed_by_folder_and_in_all():
    figures = load(ROOT / "tools" / "coverage_figures.py")
    files = report(**{"errors.py": (10, 9, 4, 2), "a/b.py": (5, 5, 0, 0), "a/c/d.py": (5, 1, 2, 1)})
    everything, folder = figures.sum_by_folder(files)
    assert everything == {
        "folder": "leadline",
        "num_statements": 20,
        "covered_lines": 15,
        "num_branches": 6,
        "covered_branches": 3,
    }
    assert folder == {
        "folder": "leadline/a",
        "num_statements": 10,
        "covered_lines": 6,
        "num_branches": 2,
        "covered_branches": 1,
    }


def test_the_page_shows_shares_that_are_rounded_down(tmp_path, monkeypatch):
    sums = {"num_statements": 2000, "covered_lines": 1999, "num_branches": 3, "covered_branches": 2}
    figures = {"versions": {"python": "3.11"}, "folders": [{"folder": "leadline", **sums}]}
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "coverage.json").write_text(json.dumps(figures))
    (tmp_path / "pyproject.toml").write_text("[tool.coverage.report]\nfail_under = 7\n")
    generator = load(ROOT / "docs" / "generate.py")
    monkeypatch.setattr(generator, "HERE", tmp_path / "docs")
    page = generator.coverage_page()
    assert "| `leadline` | 99.9 % of 2,000 | 66.6 % of 3 | 99.9 % of 2,003 |" in page
    assert "The floor is 7 % of lines and branches together." in page
    assert "| python | 3.11 |" in page


def test_the_floor_of_coverage_is_the_whole_number_below_the_figure():
    assert SETTINGS["tool"]["coverage"]["run"]["branch"] is True
    floor = SETTINGS["tool"]["coverage"]["report"]["fail_under"]
    assert 0 < floor <= 100
    folders = json.loads((ROOT / "docs" / "coverage.json").read_text())["folders"]
    for sums in folders[:1]:
        there = sums["num_statements"] + sums["num_branches"]
        share = 100 * (sums["covered_lines"] + sums["covered_branches"]) / there
        assert floor == int(share), "set fail_under in pyproject.toml to the figure, rounded down"
