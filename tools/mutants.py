"""Change one thing in a file, run its tests, see whether they notice.

    python tools/mutants.py src/leadline/parts/connections src/leadline/parts/placements \
        --tests tests/facts/parts tests/contracts/test_parts.py tests/contracts/test_pairs.py

A mutant is the file with one number, operator, comparison, truth value or sign changed; texts and
annotations are left alone. Every mutant gets a process of its own, forked from one that has torch
loaded, in which the changed source takes the place of the file; nothing is written to the tree.
Test files that name the mutated module or the part it registers run first, the others after. A mutant that no test
notices is alive: printed, and listed in the JSON file given by --output. Linux and macOS only.
"""

from __future__ import annotations

import argparse
import ast
import copy
import importlib.abc
import importlib.util
import json
import os
import random
import re
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = Path(__file__).parents[1]
SECONDS = 180
"""A mutant that runs longer than this counts as noticed: it hangs."""

OPERATORS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
}


@dataclass(frozen=True)
class Mutant:
    """One changed place of one file."""

    file: str
    line: int
    change: str
    source: str


def mutants_of(path: Path) -> Iterator[Mutant]:
    """Every mutant of a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    spared = _spared(tree)
    nodes = [n for n in ast.walk(tree) if n not in spared]
    for index, node in enumerate(nodes):
        for change, replace in _changes(node):
            changed = copy.deepcopy(tree)
            twin_spared = _spared(changed)
            twin = [n for n in ast.walk(changed) if n not in twin_spared][index]
            replace(twin)
            line = getattr(node, "lineno", 0)
            source = ast.unparse(ast.fix_missing_locations(changed))
            yield Mutant(str(path.relative_to(ROOT)), line, change, source)


def _spared(tree: ast.AST) -> set[ast.AST]:
    """Docstrings, annotations, formatted texts, `raise`, `__all__`, imports."""
    found: set[ast.AST] = set()
    for node in ast.walk(tree):
        roots: list[ast.AST | None] = []
        if isinstance(node, ast.AnnAssign | ast.arg):
            roots.append(node.annotation)
        if isinstance(node, ast.FunctionDef):
            roots.append(node.returns)
        if isinstance(node, ast.JoinedStr | ast.Raise | ast.ImportFrom | ast.Import):
            roots.append(node)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            roots.append(node)
        if isinstance(node, ast.Assert):
            roots.append(node)  # they narrow types
        for root in roots:
            found |= set(ast.walk(root)) if root is not None else set()
    return found


def _changes(node: ast.AST) -> Iterator[tuple[str, object]]:
    if isinstance(node, ast.Constant):
        value = node.value
        if isinstance(value, bool):
            yield f"{value} -> {not value}", _setter("value", not value)
        elif isinstance(value, int | float):
            for new in {value + 1, value * 2 if value else -1}:
                yield f"{value} -> {new}", _setter("value", new)
    elif isinstance(node, ast.BinOp | ast.AugAssign | ast.BoolOp):
        new = OPERATORS.get(type(node.op))
        if new is not None:
            yield f"{type(node.op).__name__} -> {new.__name__}", _setter("op", new())
    elif isinstance(node, ast.Compare):
        new = OPERATORS.get(type(node.ops[0]))
        if new is not None:
            yield (
                f"{type(node.ops[0]).__name__} -> {new.__name__}",
                _setter("ops", [new(), *node.ops[1:]]),
            )
    elif isinstance(node, ast.UnaryOp):
        if isinstance(node.op, ast.USub) and not isinstance(node.operand, ast.Constant):
            yield "- dropped", _setter("op", ast.UAdd())
        elif isinstance(node.op, ast.Not):
            yield "not dropped", lambda twin: _become(twin, twin.operand)
    elif isinstance(node, ast.IfExp | ast.If):
        yield (
            "condition inverted",
            lambda twin: setattr(twin, "test", ast.UnaryOp(ast.Not(), twin.test)),
        )


def _setter(name: str, value: object) -> object:
    return lambda twin: setattr(twin, name, value)


def _become(twin: ast.UnaryOp, other: ast.expr) -> None:
    twin.op, twin.operand = ast.UAdd(), ast.Call(ast.Name("bool", ast.Load()), [other], [])


class _Instead(importlib.abc.MetaPathFinder, importlib.abc.SourceLoader):
    """Serves the mutated source under the name of the module."""

    def __init__(self, mutant: Mutant) -> None:
        self.mutant = mutant
        self.path = str(ROOT / mutant.file)
        self.name = ".".join(Path(mutant.file).with_suffix("").parts[1:]).removesuffix(".__init__")

    def find_spec(self, name, path=None, target=None):
        if name != self.name:
            return None
        return importlib.util.spec_from_file_location(name, self.path, loader=self)

    def get_filename(self, fullname: str) -> str:
        return self.path

    def get_data(self, path: str) -> bytes:
        return self.mutant.source.encode()

    def get_code(self, fullname: str):
        return compile(self.mutant.source, self.path, "exec")


def tests_for(mutant: Mutant, files: list[Path]) -> tuple[list[str], list[str]]:
    """The test files that name the module or its part in quotes, and the others."""
    text = (ROOT / mutant.file).read_text(encoding="utf-8")
    names = {Path(mutant.file).stem, *re.findall(r'\.register\("([^"]+)"\)', text)}
    pattern = re.compile("|".join(rf"[\"'.=]{re.escape(name)}\b" for name in names))
    named = [f for f in files if pattern.search(f.read_text(encoding="utf-8"))]
    return [str(f) for f in named], [str(f) for f in files if f not in named]


def start(mutant: Mutant, groups: tuple[list[str], ...]) -> int:
    """Fork, run the tests on the mutant, leave with 1 when they noticed it."""
    child = os.fork()
    if child:
        return child
    os.setsid()
    signal.alarm(SECONDS)
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    sys.meta_path.insert(0, _Instead(mutant))
    import pytest

    options = ["-x", "-q", "-n0", "-p", "no:cacheprovider", "--no-header"]
    for files in filter(None, groups):
        if pytest.main([*options, *files]) not in (0, 5):
            os._exit(1)
    os._exit(0)


def _drawn(file: Path, count: int | None, seed: int) -> list[Mutant]:
    """Return the mutants of a file, or some of them: the same ones after a renaming."""
    mutants = list(mutants_of(file.resolve()))
    if count is None or count >= len(mutants):
        return mutants
    return random.Random(seed).sample(mutants, count)  # noqa: S311


def main() -> None:
    """Make the mutants, run them, two at a time."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("sources", nargs="+", type=Path, help="files or folders to mutate")
    parser.add_argument("--tests", nargs="+", type=Path, required=True)
    parser.add_argument("--output", type=Path, help="write the living mutants as JSON")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--sample", type=int, help="so many mutants of each file, drawn with --seed"
    )
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    import numpy
    import pytest
    import torch

    del numpy, pytest, torch
    os.chdir(ROOT)
    files = [f for s in asked.sources for f in (sorted(s.rglob("*.py")) if s.is_dir() else [s])]
    tests = [f for t in asked.tests for f in (sorted(t.rglob("test_*.py")) if t.is_dir() else [t])]
    todo = [m for f in files for m in _drawn(f, asked.sample, asked.seed)]
    print(f"{len(todo)} mutants of {len(files)} files", flush=True)
    running: dict[int, Mutant] = {}
    alive: list[Mutant] = []
    began, done = time.monotonic(), 0
    queue = iter(todo)
    while True:
        while len(running) < asked.jobs and (mutant := next(queue, None)) is not None:
            running[start(mutant, tests_for(mutant, tests))] = mutant
        if not running:
            break
        child, status = os.wait()
        mutant = running.pop(child)
        done += 1
        if os.waitstatus_to_exitcode(status) == 0:
            alive.append(mutant)
            print(f"ALIVE {mutant.file}:{mutant.line} {mutant.change}", flush=True)
        if done % 25 == 0:
            print(f"{done}/{len(todo)} after {time.monotonic() - began:.0f} s", flush=True)
    print(f"{len(todo)} mutants, {len(alive)} alive, {time.monotonic() - began:.0f} s")
    if asked.output is not None:
        rows = [{k: v for k, v in asdict(m).items() if k != "source"} for m in alive]
        asked.output.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
