"""What compared records are called: by model, instrument or file, and shortly in tables."""

from __future__ import annotations

import string
from typing import TYPE_CHECKING

from leadline.record.provenance import text_at
from leadline.record.views import written_by

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leadline.record import Record

__all__ = ["distinct_names", "name_records", "short_names"]

LONGEST_NAME = 18
"""Longer names leave no room in a table of 80 columns."""


def name_records(records: Sequence[Record]) -> tuple[str, ...]:
    """Name each record by its model, or its file.

    Records of one model are told apart by the commands that wrote them, else by their files, else
    by numbers.
    """
    stems = ["" if record.path is None else record.path.stem for record in records]
    models = [
        text_at(record.provenance, "model", "name") or text_at(record.provenance, "sweep", "name")
        for record in records
    ]
    names = [
        model or stem or f"record {at}"
        for at, (model, stem) in enumerate(zip(models, stems, strict=True), start=1)
    ]
    for marks in ([written_by(record.provenance) for record in records], stems):
        twins = {at for at, name in enumerate(names) if names.count(name) > 1}
        marked = [
            f"{name} ({mark})" if at in twins and mark else name
            for at, (name, mark) in enumerate(zip(names, marks, strict=True))
        ]
        if len(set(marked)) == len(marked):
            return tuple(marked)
    return distinct_names(names)


def distinct_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names, with a number where one comes again."""
    distinct: list[str] = []
    for name in names:
        candidate, copy = name, 1
        while candidate in distinct:
            copy += 1
            candidate = f"{name} ({copy})"
        distinct.append(candidate)
    return tuple(distinct)


def short_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names without what all begin with, or letters where they are still long."""
    first = names[0]
    ends = [at + 1 for at, sign in enumerate(first) if sign in ":/"]
    start = max([0, *(end for end in ends if all(name.startswith(first[:end]) for name in names))])
    cut = tuple(name[start:] for name in names)
    for choice in (tuple(names), cut):
        if all(choice) and max(map(len, choice)) <= LONGEST_NAME:
            return choice
    return tuple(string.ascii_uppercase[: len(names)]) if len(names) <= 26 else tuple(names)
