"""Which code measured: a digest that changes when a number could.

A measurement of a claim depends on its own module, on the shared files of its group (`_*.py`), on
the instruments, and on the versions of torch and numpy. Texts do not count: docstrings and the
claim's decorator are left out, so that a better wording measures nothing anew. The command line
and the reporting do not count either.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import inspect
from functools import cache, partial
from pathlib import Path

from leadline.claims.catalog import Entry, Trial

__all__ = ["code_digest", "place_of", "source_of", "trial_digest"]

PACKAGE = Path(__file__).parents[1]
_NO_INSTRUMENT = ("claims", "cli", "reporting")
_DECORATORS = ("claim", "uncheckable")


def code_digest(entry: Entry, *, instruments: bool = True) -> str:
    """The digest of everything that a claim's numbers come from, or of the claims' part of it."""
    assert entry.measure is not None
    module = Path(inspect.getfile(inspect.unwrap(entry.measure)))
    own = _without_texts(module.read_text(encoding="utf-8"))
    return _short(own, _group(module.parent), *([_instruments()] if instruments else []))


def trial_digest(trial: Trial) -> str:
    """The digest of everything that a trial's numbers come from."""
    run = inspect.unwrap(trial.run)
    if isinstance(run, partial):
        run = run.func
    module = Path(inspect.getfile(run))
    own = _without_texts(module.read_text(encoding="utf-8"))
    return _short(trial.name, own, _group(module.parent), _instruments())


@cache
def _group(folder: Path) -> str:
    """The digest of what the claims of a folder share; they share nothing with other folders."""
    shared = sorted(folder.glob("_*.py"))
    return _short(*(_without_texts(path.read_text(encoding="utf-8")) for path in shared))


def place_of(entry: Entry) -> str:
    """Where a claim is written: module and line."""
    if entry.measure is None:
        return ""
    measure = inspect.unwrap(entry.measure)
    return f"{measure.__module__}, line {inspect.getsourcelines(measure)[1]}"


def source_of(entry: Entry) -> str:
    """The function that measures, as it is written, without its decorator's texts."""
    assert entry.measure is not None
    measure = inspect.unwrap(entry.measure)
    lines, _ = inspect.getsourcelines(measure)
    function = ast.parse("".join(lines)).body[0]
    return "".join(lines[function.lineno - 1 :])  # the line of its `def`


@cache
def _instruments() -> str:
    found: list[str] = []
    for path in sorted(PACKAGE.rglob("*.py")):
        place = path.relative_to(PACKAGE)
        if place.parts[0] not in _NO_INSTRUMENT and place.parts[-1] not in ("claim.py",):
            found.append(place.as_posix())
            found.append(path.read_text(encoding="utf-8"))
    versions = [importlib.metadata.version(name) for name in ("torch", "numpy")]
    return _short(*found, *versions)


def _without_texts(source: str) -> str:
    """The program without docstrings and without what the claim's decorator says."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(
            node, clean=False
        ):
            node.body = node.body[1:] or [ast.Pass()]
        if isinstance(node, ast.FunctionDef):
            node.decorator_list = [one for one in node.decorator_list if not _is_text(one)]
        if isinstance(node, ast.Module):
            node.body = [
                one for one in node.body if not (isinstance(one, ast.Expr) and _is_text(one.value))
            ]
    return ast.dump(tree)


def _is_text(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in _DECORATORS
    )


def _short(*parts: str) -> str:
    found = hashlib.sha256()
    for part in parts:
        found.update(hashlib.sha256(part.encode()).digest())
    return found.hexdigest()[:16]
