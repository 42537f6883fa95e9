"""What `leadline list` and `leadline explain` can show: one shelf per kind of thing.

A shelf is a catalog, whose pages are its entries' docstrings, or the definitions of the
quantities.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from leadline.catalog import Catalog
from leadline.errors import UnknownName

__all__ = ["SHELVES", "SINGULAR", "Page", "open_shelf"]


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


def _pages(catalog: Catalog[Any]) -> dict[str, Page]:
    """Return a page for every entry of a catalog: its docstring and its file's, options, place."""
    pages: dict[str, Page] = {}
    for name, entry in catalog.items():
        text = inspect.getdoc(entry) or ""
        options = ", ".join(_option(p) for p in catalog.options(name).values())
        facts = {"options": options or "none", "place": catalog.place(name)}
        file = inspect.getdoc(inspect.getmodule(entry)) or ""
        whole = "\n\n".join(part for part in (text, file) if part)
        pages[name] = Page(name, summary=_first_line(text), facts=facts, text=whole)
    return pages


def _probes() -> dict[str, Page]:
    from leadline.probes import PROBES

    pages = _pages(PROBES)
    for name, entry in PROBES.items():
        measured = ", ".join(quantity.name for quantity in entry.quantities)
        pages[name] = replace(pages[name], facts={"quantities": measured, **pages[name].facts})
    return pages


def _quantities() -> dict[str, Page]:
    from leadline.ablation import BLOCK, SUBLAYER
    from leadline.probes import PROBES

    measured_by = [(q, f"the probe {name}") for name, e in PROBES.items() for q in e.quantities]
    measured_by += [(BLOCK, "--ablate block"), (SUBLAYER, "--ablate sublayer")]
    pages: dict[str, Page] = {}
    for quantity, means in measured_by:
        facts = {k: str(v) for k, v in asdict(quantity).items() if v and k != "name"}
        facts["measured_by"] = means
        pages[quantity.name] = Page(quantity.name, summary=quantity.title, facts=facts)
    return dict(sorted(pages.items()))


def _families() -> dict[str, Page]:
    from leadline.anatomy.families._family import FAMILIES

    # A family takes the model, which is no option.
    pages = _pages(FAMILIES)
    return {
        name: replace(page, facts={"place": page.facts["place"]}) for name, page in pages.items()
    }


def _option(parameter: inspect.Parameter) -> str:
    if parameter.default is parameter.empty:
        return parameter.name
    return f"{parameter.name}={parameter.default}"


def _first_line(text: str) -> str:
    return text.partition("\n\n")[0].replace("\n", " ")


SHELVES: dict[str, Callable[[], dict[str, Page]]] = {
    "probes": _probes,
    "quantities": _quantities,
    "families": _families,
}

SINGULAR = {"probes": "probe", "quantities": "quantity", "families": "family"}
