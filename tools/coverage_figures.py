"""Keep the figures of a coverage run that the page of the docs shows.

python tools/coverage_figures.py out/coverage.json docs/coverage.json

The first file is what coverage writes, with every line of every file; the second holds the sums per
folder and what they were measured with. `make coverage` runs this after tests that all passed.
"""

from __future__ import annotations

import argparse
import json
import platform
from collections import Counter
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path, PurePosixPath
from typing import Any

COUNTS = ("num_statements", "covered_lines", "num_branches", "covered_branches")
"""What is summed, by the names that coverage gives them."""


def sum_by_folder(files: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the sums of the whole package first, then of each of its folders by name."""
    sums: dict[str, Counter[str]] = {}
    for name, file in files.items():
        parts = PurePosixPath(name).parts
        inside = parts[parts.index("leadline") + 1 :]
        folders = ["leadline", *([f"leadline/{inside[0]}"] if len(inside) > 1 else [])]
        for folder in folders:
            counts = sums.setdefault(folder, Counter(dict.fromkeys(COUNTS, 0)))
            counts.update({count: file["summary"][count] for count in COUNTS})
    return [{"folder": folder, **sums[folder]} for folder in sorted(sums)]


def main() -> None:
    """Read the report of coverage and write the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("report", type=Path, help="what `coverage json` wrote")
    parser.add_argument("figures", type=Path, help="where the figures go")
    chosen = parser.parse_args()
    report = json.loads(chosen.report.read_text(encoding="utf-8"))
    libraries = {name: version(name) for name in ("leadline", "torch", "coverage")}
    figures = {
        "versions": {"python": platform.python_version(), **libraries},
        "folders": sum_by_folder(report["files"]),
    }
    chosen.figures.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
