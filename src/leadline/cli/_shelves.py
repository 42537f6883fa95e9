"""What `leadline list` and `leadline explain` can show: one shelf per kind of thing.

A shelf is a catalog, whose pages are its entries' docstrings, or the definitions of the
quantities.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from leadline.errors import UnknownName

__all__ = ["SHELVES", "Page", "open_shelf"]


@dataclass(frozen=True)
class Page:
    """One thing in full: a summary of one line, named facts, and a text."""

    name: str
    summary: str
    facts: dict[str, str] = field(default_factory=dict[str, str])
    text: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the page as JSON."""
        return asdict(self)


def open_shelf(kind: str) -> dict[str, Page]:
    """Return every page of one kind, by name."""
    if kind not in SHELVES:
        raise UnknownName("kind of thing", kind, SHELVES)
    return SHELVES[kind]()


def _catalog(address: str) -> Callable[[], dict[str, Page]]:
    """Return the function that reads the pages of a catalog at `module:NAME`."""

    def read() -> dict[str, Page]:
        module, _, attribute = address.partition(":")
        catalog = getattr(importlib.import_module(module), attribute)
        pages: dict[str, Page] = {}
        for name, entry in catalog.items():
            text = inspect.getdoc(entry) or ""
            options = ", ".join(_option(p) for p in catalog.options(name).values())
            facts = {"options": options or "none", "place": catalog.place(name)}
            pages[name] = Page(name, summary=_first_line(text), facts=facts, text=text)
        return pages

    return read


def _quantities() -> dict[str, Page]:
    from leadline.probes import QUANTITIES

    pages: dict[str, Page] = {}
    for name, quantity in sorted(QUANTITIES.items()):
        definition = {key: str(value) for key, value in asdict(quantity).items() if value != ""}
        pages[name] = Page(name, summary=definition["title"], facts=definition)
    return pages


def _option(parameter: inspect.Parameter) -> str:
    if parameter.default is parameter.empty:
        return parameter.name
    return f"{parameter.name}={parameter.default}"


def _first_line(text: str) -> str:
    return text.partition("\n\n")[0].replace("\n", " ")


SHELVES: dict[str, Callable[[], dict[str, Page]]] = {
    "probes": _catalog("leadline.probes:PROBES"),
    "quantities": _quantities,
    "families": _catalog("leadline.anatomy.families._family:FAMILIES"),
}
