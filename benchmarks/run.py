"""Run the benchmarks, print a table, write results.json.

    python benchmarks/run.py              every bench_*.py: how fast
    python benchmarks/run.py --scores     every score_*.py of scores/: how often right
    python benchmarks/run.py --only NAME  one of them alone; the other results are kept

Scores stand apart from benchmarks: a share of right verdicts is the same on every processor, takes an hour,
and belongs to the rules of its day, which are scored once. Every row names the processor and the
commit that it was measured on. A missed target is said in the table. A benchmark that fails is said
too, and ends with exit code 1.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from _harness import Result, load_file  # noqa: E402  (the folder is no package)


@dataclass(frozen=True)
class Shelf:
    """A folder of files that measure, and the results beside them."""

    folder: Path
    prefix: str
    kind: str

    @property
    def results(self) -> Path:
        return self.folder / "results.json"

    def find(self, only: str | None) -> dict[str, Path]:
        """Return the files by name, or the one that was asked for."""
        paths = sorted(self.folder.glob(f"{self.prefix}_*.py"))
        files = {path.stem.removeprefix(f"{self.prefix}_"): path for path in paths}
        if only is None:
            return files
        if only not in files:
            sys.exit(f"There is no {self.kind} {only!r}. Known: {', '.join(files) or 'none'}.")
        return {only: files[only]}


BENCHMARKS = Shelf(HERE, "bench", "benchmark")
SCORES = Shelf(HERE / "scores", "score", "score")


def table_of(results: Iterable[dict[str, Any]]) -> Table:
    """Draw the results."""
    table = Table("benchmark", "compared", "ratio", "95 % interval", "target", "", "rounds")
    for row in results:
        sign = "≥" if row.get("at_least") else "≤"
        target = "" if row["target"] is None else f"{sign} {row['target']:g}"
        low, high = row["spread"]
        verdict = {True: "met", False: "MISSED", None: ""}[row["met"]]
        if row["target"] is not None and low <= row["target"] <= high:
            verdict += ", inside the interval"
        table.add_row(
            row["name"],
            row["compared"],
            f"{row['ratio']:.3f}",
            f"{low:.3f} to {high:.3f}",
            target,
            verdict,
            str(row["repetitions"]),
        )
    return table


def merge(old: list[dict[str, Any]], new: dict[str, list[Result]]) -> list[dict[str, Any]]:
    """Put new results in the place of the old ones of the same files."""
    kept = [row for row in old if row["file"] not in new]
    # Rows of one file may come from several machines and commits.
    where = {"processor": processor(), "commit": commit()}
    fresh = [{"file": file} | where | r.to_json() for file, results in new.items() for r in results]
    return sorted(kept + fresh, key=lambda row: (row["file"], row["name"]))


def keep(shelf: Shelf, new: dict[str, list[Result]], only: str | None) -> list[dict[str, Any]]:
    """Write the results: those of one file beside the others, those of a whole run alone."""
    old = []
    if only is not None and shelf.results.exists():
        old = json.loads(shelf.results.read_text())["results"]
    results = merge(old, new)
    kept = {"machine": machine(), "results": results}
    shelf.results.write_text(json.dumps(kept, indent=2) + "\n")
    return results


def processor() -> str:
    """Return the processor's name, where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def commit() -> str:
    """Return the commit of the code, and whether the code has changed since."""
    name = _git("rev-parse", "--short=7", "HEAD")
    changed = _git("status", "--porcelain", "--", ":/src", ":/benchmarks", ":(exclude)*.json")
    return f"{name or 'unknown'}{'-dirty' if changed else ''}"


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=HERE, capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def machine() -> dict[str, Any]:
    """Say what the numbers were measured on."""
    versions = {name: importlib.metadata.version(name) for name in ("torch", "leadline")}
    return {
        "processor": processor(),
        "system": platform.system(),
        "processors": os.cpu_count(),
        "python": platform.python_version(),
        **versions,
    }


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", metavar="NAME", help="bench_NAME.py or score_NAME.py alone")
    parser.add_argument("--scores", action="store_true", help="how often right, not how fast")
    request = parser.parse_args()
    shelf = SCORES if request.scores else BENCHMARKS
    sys.path.insert(0, str(shelf.folder))
    files = shelf.find(request.only)
    console = Console()
    new: dict[str, list[Result]] = {}
    failed: list[str] = []
    for name, path in files.items():
        try:
            module = load_file(path)
            console.print(f"{name}: {(module.__doc__ or '').strip().partition(chr(10))[0]}")
            found: list[Result] = []
            for result in module.run():
                found.append(result)
                console.print(f"  {result.name}: {result.ratio:.3f}", highlight=False)
            new[name] = found
            keep(shelf, new, request.only)  # after each file: a run that is cut off is kept
        except Exception:
            traceback.print_exc()
            failed.append(name)
    results = keep(shelf, new, request.only)
    console.print(table_of(row for row in results if row["file"] in new))
    console.print(f"Written to {os.path.relpath(shelf.results)}")
    if failed:
        sys.exit(f"Failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
