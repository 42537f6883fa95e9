"""The browser: the one that CHROMIUM names, an installed chromium, or the one of playwright."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.visited_lab import VisitedLab


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api")
    found = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    with api.sync_playwright() as playwright:
        try:
            started = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        except api.Error as error:
            pytest.skip(f"no browser could be started: {error.message.splitlines()[0]}")
        yield started
        started.close()


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core, which npm fetches once into a cache outside the repository."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = home / "leadline-tests" / "axe-core"
    script = folder / "package" / "axe.min.js"
    if not script.exists():
        npm = shutil.which("npm")
        if npm is None:
            pytest.skip("npm, which fetches axe-core, is not installed")
        folder.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            [npm, "pack", "axe-core@4"],
            cwd=folder,
            capture_output=True,
            check=False,
            text=True,
            timeout=120,
        )
        if done.returncode:
            pytest.skip(f"npm could not fetch axe-core: {done.stderr.strip()[-200:]}")
        with tarfile.open(folder / done.stdout.split()[-1]) as archive:
            archive.extract("package/axe.min.js", folder, filter="data")
    return script.read_text(encoding="utf-8")


@pytest.fixture
def lab(tmp_path: Path, browser: Any, start: Callable[..., Any]) -> Iterator[VisitedLab]:
    """A lab of an empty folder; in the end its pages must have had nothing to complain of."""
    folder = tmp_path / "folder"
    folder.mkdir()
    one = VisitedLab(folder, browser, start)
    yield one
    one.close()
    assert one.problems == []
