"""Which code measured: a digest that changes when a number could.

The digest of a claim covers the functions, classes and constants that its measurement uses, found
from the function that measures by following names through the package (`_code` says how a
definition is read, and what in it does not count). It does not cover where any of them is written:
a module may be moved, renamed or split, and nothing is measured anew. A claim that reads trials
covers them too.

Attributes of objects are not followed: a class counts with all its methods. What is looked up by
name is followed by the name: an entry of a catalog counts if the catalog is reached and the entry's
name is spelled, as a choice, in some string literal of what is used (`"deepnorm"`,
`"hyper(lanes=4)"`), or if all entries are asked for (`CATALOG.names()`, `for name in CATALOG`), but for probes, or
if the entry's own name is not spelled where it is entered. Statements that a module runs on import
count with every definition of it, as do modules that it imports for nothing but their effects.
The alternative, every entry of a catalog that is reached, would measure each claim about a
Transformer anew whenever any connection changes. The price is that a name put together at run time
is not seen. A test traces measurements and finds every function that ran covered; what only words
an error message is left out on purpose.

Data files count if they stand in the package, beside a definition that asks for `__file__`. A
plug-in counts with its one file and what that uses of the package.

Versions of torch and numpy are not in the digest: every line of a ledger holds those that measured
it, and a new release of either asks for no new run of every claim.
"""

from __future__ import annotations

import ast
import gc
import hashlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache, partial
from pathlib import Path
from types import FunctionType
from typing import Any

from leadline.claims.catalog import Entry, Measured, Trial
from leadline.claims.claim import Picture
from leadline.claims.digest.code import LOCALS, Code
from leadline.claims.digest.writing import Definition, Key, choice_names
from leadline.errors import CatalogError
from leadline.record import Finding, Quantity, Reading, Record, Site
from leadline.record.rows.selection import group_into_lines
from leadline.record.words.screen import Screen, Sentence, Showable

__all__ = ["Use", "code_digest", "place_of", "source_of", "trial_digest", "used_by"]

VESSELS = (
    Measured, Picture, Trial, Record, Quantity, Reading, Site, Finding, Screen, Sentence, Showable,
)  # fmt: skip
"""What carries or shows numbers and computes none: a new field in one measures nothing anew.

A record is kept, printed and drawn in many ways, none of which decides a number; what it computes,
lines over depth from readings, is followed in its place.
"""
_VESSELS = frozenset((one.__module__, one.__qualname__) for one in VESSELS)
_BY_NAME = frozenset({("leadline.instruments.passes.probe", "PROBES")})
"""Catalogs that are enumerated only for `probes="all"`, which no claim asks for, and for a message.

A new probe would otherwise measure every claim anew that uses any.
"""
_INSTEAD: Mapping[Key, Key] = {
    (Record.__module__, Record.__qualname__): (
        group_into_lines.__module__,
        group_into_lines.__qualname__,
    )
}


@dataclass(frozen=True)
class Use:
    """What a measurement uses: every definition, and the digest of all of them."""

    keys: frozenset[Key]
    digest: str


def code_digest(entry: Entry) -> str:
    """The digest of everything that a claim's numbers come from."""
    assert entry.measure is not None
    needs = sorted(trial_digest(trial) for trial in entry.needs)
    return _short(used_by(entry.measure).digest, *needs)


def trial_digest(trial: Trial) -> str:
    """The digest of everything that a trial's numbers come from."""
    return used_by(trial.run).digest


def used_by(function: Callable[..., Any], code: Code | None = None) -> Use:
    """Everything that a function uses, in the installed package or in the code that is passed."""
    return _installed_use(function) if code is None else _search(function, code)


@cache
def _installed_use(function: Callable[..., Any]) -> Use:
    return _search(function, installed())


def _search(function: Callable[..., Any], code: Code) -> Use:
    # Syntax trees are very many objects that all stay: to look for garbage among them again and
    # again took a third of the time.
    collects = gc.isenabled()
    gc.disable()
    try:
        return _use(function, code)
    finally:
        if collects:
            gc.enable()


def _use(function: Callable[..., Any], code: Code) -> Use:
    root = _Root(code)
    root.add(function)
    keys = list(dict.fromkeys(root.keys))
    numbers = {key: number for number, key in enumerate(keys)}
    words, enumerated = set(root.words), set[Key]()
    definitions: list[Definition] = []
    entries: list[tuple[Key, str, Key]] = []
    while len(definitions) < len(keys):
        for key in keys[len(definitions) :]:
            definition = code.definition(key)
            definitions.append(definition)
            words |= definition.words
            enumerated |= definition.enumerated
            for target in (_INSTEAD.get(one, one) for one in definition.targets):
                if target not in numbers and target not in _VESSELS:
                    numbers[target] = len(keys)
                    keys.append(target)
        if len(definitions) == len(keys):  # what is looked up by name waits for all the names
            entries = _entries(code, keys, words, enumerated)
            for _, _, key in entries:
                if key not in numbers:
                    numbers[key] = len(keys)
                    keys.append(key)
    facts = [*root.values]
    for one in definitions:
        targets = [str(numbers.get(target, target[1])) for target in one.targets]
        facts.append(f"{one.digest} {' '.join(targets)}")
    facts += [f"{numbers[catalog]} {name} {numbers[key]}" for catalog, name, key in entries]
    return Use(frozenset(keys), _short(*facts))


def _entries(
    code: Code, keys: list[Key], words: set[str], enumerated: set[Key]
) -> list[tuple[Key, str, Key]]:
    """The entries that the catalogs among the keys are asked for: catalog, name and entry."""
    catalogs = code.catalogs
    chosen: list[tuple[Key, str, Key]] = []
    for catalog in [key for key in keys if key in catalogs]:
        several = [
            one
            for one in catalogs[catalog]
            if one.name is None or one.name in words or catalog in enumerated - _BY_NAME
        ]
        several.sort(key=lambda one: (one.name or "", code.definition(one.key).digest))
        chosen += [(catalog, one.name or "", one.key) for one in several]
    return chosen


class _Root:
    """Where the search starts: functions, and the values that are bound to them."""

    def __init__(self, code: Code) -> None:
        self.code = code
        self.keys: list[Key] = []
        self.values: list[str] = []
        self.words: set[str] = set()

    def add(self, function: Callable[..., Any]) -> None:
        """Start from a function too."""
        if isinstance(function, partial):
            self.add(function.func)
            self.values.append(self._described([function.args, function.keywords]))
            return
        function = inspect.unwrap(function)
        if not isinstance(function, FunctionType) or not (path := inspect.getsourcefile(function)):
            raise CatalogError(
                f"{function!r} cannot measure a claim: its source is needed to tell when it "
                "changes; write a function with `def`, in a file."
            )
        key = (function.__module__, function.__qualname__)
        self.code.add(key[0], Path(path))
        if key in self.keys:
            return
        self.keys.append(key)
        if function.__closure__:
            names = function.__code__.co_freevars
            for name, cell in zip(names, function.__closure__, strict=True):
                self.values.append(f"{name}={self._described(cell.cell_contents)}")
        if LOCALS in key[1]:  # the defaults of others are read from the source
            defaults = [function.__defaults__, function.__kwdefaults__]
            self.values.append(self._described(defaults))

    def _described(self, value: object) -> str:
        """A value as text that is the same in every process."""
        if isinstance(value, str):
            self.words |= choice_names(value)
        if value is None or isinstance(value, bool | int | float | complex | str | bytes):
            return repr(value)
        if isinstance(value, Mapping):
            return self._described(sorted(map(list, value.items()), key=repr))
        if isinstance(value, set | frozenset):
            return self._described(sorted(value, key=repr))
        if isinstance(value, list | tuple):
            return f"[{', '.join(self._described(one) for one in value)}]"
        if isinstance(value, type):
            return self._class(value)
        if is_dataclass(value):
            parts = [[one.name, getattr(value, one.name)] for one in fields(value)]
            return f"{self._class(type(value))}{self._described(parts)}"
        if callable(value):
            self.add(value)
            return "function"
        raise CatalogError(
            f"A measurement is bound to {type(value).__name__} {value!r}, of which nobody can tell "
            "whether it changes; bind numbers, texts, lists or functions."
        )

    def _class(self, value: type) -> str:
        if value.__module__ in self.code.files and value not in VESSELS:
            self.keys.append((value.__module__, value.__qualname__))
            return "class"
        return value.__qualname__


@cache
def installed() -> Code:
    """The package as it is installed."""
    return Code.of_package(Path(__file__).parents[2])


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


def _short(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
