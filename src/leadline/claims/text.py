"""Claims as data: a TOML file holds the sentences and checks of a group of claims.

    group = "training"                      the chapter, for all claims of the file

    [limits.stuck]                          a limit that several checks share
    relation = "at most"
    limit = 0.1
    because = "Stuck means ..."

    [post-norm-needs-warmup]                one table per claim
    notes = ["shortcuts", "summary"]
    title = "Post-norm needs warm-up"
    formula = 'x_{l+1} = \\mathrm{LN}(x_l + F(x_l))'
    plain = "LN(x + F(x)) needs warm-up"
    says = "Post-norm requires a warm-up of the learning rate."
    correction = "At 12 layers and this rate it sticks without."
    why = '''What was measured, with numbers such as {cold:.2f}.'''
    source = "Xiong et al. 2020"
    seconds = 0.01                          about how long one seed takes
    seeded = false                          where nothing is drawn
    checks = [
        { part = "claim", number = "cold", as = "stuck", label = "gain of 12 layers" },
        { part = "reach", number = "slow", relation = "at most", limit = 0.1, label = "...",
          because = "..." },                (on one line in the file)
    ]

A sentence may be wrapped over several lines; it is read as one. A claim without checks is one that nothing here can decide; its `why` says what would be
needed. Whatever is wrong is said with the file and the key.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, cast

from leadline.claims.claim import GROUPS, NOTES, OVER, PARTS, RELATIONS, Check, Claim
from leadline.errors import CatalogError, did_you_mean

__all__ = ["Text", "texts_of"]

_SENTENCES = ("title", "formula", "plain", "says", "correction", "why", "source")
_REQUIRED = ("title", "says", "why")
_NUMBERS = ("limit", "within")
_CHECK = tuple(field.name for field in fields(Check))
_SHARED = ("relation", "limit", "within", "because", "over", "log")
"""What a limit of `[limits]` may hold for the checks that refer to it."""


@dataclass(frozen=True)
class Text:
    """One claim of a file, with what its measurement costs."""

    claim: Claim
    place: Path
    seconds: float
    seeded: bool


def texts_of(path: Path) -> dict[str, Text]:
    """Read every claim of a file, or raise a `CatalogError` that names the file and the key."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CatalogError(f"The claims in {path} cannot be read: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CatalogError(f"{path} is not valid TOML: {error}.") from error
    group = content.pop("group", None)
    if not isinstance(group, str) or group not in GROUPS:
        raise CatalogError(
            f"{path}, group: {group!r} is no chapter of the claims; known: {', '.join(GROUPS)}."
        )
    limits = content.pop("limits", {})
    _table(limits, path, "limits")
    for name, limit in limits.items():
        _keys(_table(limit, path, f"limits.{name}"), _SHARED, path, f"limits.{name}")
    return {
        name: _text(name, group, _table(table, path, name), limits, path)
        for name, table in content.items()
    }


def _text(
    name: str, group: str, table: dict[str, Any], limits: Mapping[str, Any], path: Path
) -> Text:
    _keys(table, (*_SENTENCES, "notes", "checks", "seconds", "seeded"), path, name)
    sentences = {key: _sentence(table.get(key, ""), path, f"{name}.{key}") for key in _SENTENCES}
    for key in _REQUIRED:
        if not sentences[key]:
            raise CatalogError(f"{path}, {name}: the claim has no {key}; add one.")
    notes = _of_type(table.get("notes", []), list, path, f"{name}.notes")
    for note in notes:
        if note not in NOTES:
            raise CatalogError(
                f"{path}, {name}.notes: no note is called {note!r}; known: {', '.join(NOTES)}."
            )
    entries = _of_type(table.get("checks", []), list, path, f"{name}.checks")
    checks = tuple(
        _check(
            _table(entry, path, f"{name}.checks[{index}]"), limits, path, f"{name}.checks[{index}]"
        )
        for index, entry in enumerate(entries)
    )
    try:
        claim = Claim(name, group, tuple(notes), checks=checks, **sentences)
    except CatalogError as error:
        raise CatalogError(f"{path}, {name}: {error}") from error
    return Text(
        claim,
        path,
        float(_of_type(table.get("seconds", 0.0), (int, float), path, f"{name}.seconds")),
        _of_type(table.get("seeded", True), bool, path, f"{name}.seeded"),
    )


def _check(entry: dict[str, Any], limits: Mapping[str, Any], path: Path, place: str) -> Check:
    _keys(entry, (*_CHECK, "as"), path, place)
    shared = entry.pop("as", None)
    if shared is not None:
        if shared not in limits:
            raise CatalogError(
                f"{path}, {place}.as: no limit is called {shared!r} in this file; known: "
                f"{', '.join(limits) or 'none'}.{did_you_mean(shared, list(limits))}"
            )
        entry = limits[shared] | entry
    for key, known in (("part", PARTS), ("relation", RELATIONS), ("over", OVER)):
        if key in entry and entry[key] not in known:
            raise CatalogError(
                f"{path}, {place}.{key}: {entry[key]!r} is no {key} of a check; known: "
                f"{', '.join(known)}."
            )
    for key in ("part", "number", "relation", "limit", "label", "because"):
        if key not in entry:
            raise CatalogError(f"{path}, {place}: the check has no {key}; add it.")
    for key in _NUMBERS:
        if key in entry:
            entry[key] = float(_of_type(entry[key], (int, float), path, f"{place}.{key}"))
    for key in ("number", "label", "because"):
        entry[key] = _sentence(entry[key], path, f"{place}.{key}")
    try:
        return Check(**entry)
    except CatalogError as error:
        raise CatalogError(f"{path}, {place}: {error}") from error


def _sentence(value: object, path: Path, place: str) -> str:
    text: str = _of_type(value, str, path, place)
    return " ".join(text.split()) if "\n" in text else text


def _table(value: object, path: Path, place: str) -> dict[str, Any]:
    return dict(cast("dict[str, Any]", _of_type(value, dict, path, place)))


def _of_type(value: Any, kind: Any, path: Path, place: str) -> Any:
    if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
        names = {str: "a text", list: "a list", dict: "a table", bool: "true or false"}
        raise CatalogError(
            f"{path}, {place}: {names.get(kind, 'a number')} was expected, {value!r} stands there."
        )
    return value


def _keys(table: Mapping[str, Any], known: tuple[str, ...], path: Path, place: str) -> None:
    for key in table:
        if key not in known:
            raise CatalogError(
                f"{path}, {place}.{key}: there is no such key.{did_you_mean(key, list(known))} "
                f"Known: {', '.join(known)}."
            )
