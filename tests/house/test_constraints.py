"""constraints.txt names the exact version of everything that the tests run with."""

import importlib.metadata
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LINES = [
    line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")
]
PINS = dict(line.split("==") for line in LINES)


def needed(requirement, seen=None):
    """Return the names of everything that installing a requirement brings along."""
    seen = {} if seen is None else seen
    name = canonicalize_name(requirement.name)
    wanted = frozenset(requirement.extras)
    if name in seen and wanted <= seen[name]:
        return seen
    seen[name] = seen.get(name, frozenset()) | wanted
    for text in importlib.metadata.requires(name) or []:
        inner = Requirement(text)
        environments = [{"extra": extra} for extra in wanted] or [{"extra": ""}]
        if inner.marker is None or any(inner.marker.evaluate(e) for e in environments):
            needed(inner, seen=seen)
    return seen


def test_every_line_is_an_exact_version():
    assert all(re.fullmatch(r"[a-z0-9-]+==[\w.]+", line) for line in LINES)
    assert sorted(PINS) == list(PINS)
    assert len(PINS) == len(LINES)


def test_everything_that_development_needs_is_pinned_to_what_is_installed():
    for name in needed(Requirement("leadline[dev]")):
        if name in {"leadline", "triton"} or name.startswith(("nvidia-", "cuda-")):
            continue  # torch names its CUDA libraries itself
        installed = Version(importlib.metadata.version(name)).public
        assert PINS.get(name) == installed, name


EVERY = [
    *PROJECT["dependencies"],
    *(text for extra in PROJECT["optional-dependencies"].values() for text in extra),
]


@pytest.mark.parametrize("text", sorted({text for text in EVERY if "leadline[" not in text}))
def test_every_declared_range_contains_the_pinned_version(text):
    requirement = Requirement(text)
    pinned = PINS[canonicalize_name(requirement.name)]
    assert requirement.specifier.contains(pinned, prereleases=True)


USED_AS = {
    "import-linter": "lint-imports",
    "mlflow-skinny": "mlflow",
    "pytest-cov": "--cov",
    "pytest-timeout": "timeout = ",
    "pytest-xdist": "--numprocesses",
    "sentencepiece": "gguf",  # transformers reads the tokenizers of GGUF files by it
}
"""Dependencies that are used under another name."""


def test_every_declared_dependency_is_used():
    folders = ("src", "tests", "benchmarks", "docs", "tools")
    files = [file for folder in folders for file in (ROOT / folder).rglob("*.py")]
    files += [ROOT / "Makefile", ROOT / ".pre-commit-config.yaml", ROOT / "setup.py"]
    texts = [file.read_text(encoding="utf-8") for file in files if file != Path(__file__)]
    texts.append((ROOT / "pyproject.toml").read_text().partition("[tool.")[2])
    words = "\n".join(texts)
    for text in EVERY:
        name = Requirement(text).name
        used = USED_AS.get(name, name)
        assert used in words or used.replace("-", "_") in words or name == "leadline", name
