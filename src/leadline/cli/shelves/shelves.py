"""What `leadline list` and `leadline explain` can show: one shelf per kind of thing.

A shelf is a catalog, whose pages are its entries' docstrings, or the definitions of the
quantities. What takes time to compute, such as what a part costs, is added to one page alone, by
`in_full`.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

from leadline.catalog import Catalog
from leadline.errors import UnknownName

if TYPE_CHECKING:
    from leadline.record.rows.quantity import Quantity

__all__ = ["CODED", "SHELVES", "SINGULAR", "Page", "in_full", "open_shelf"]


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


def in_full(kind: str, page: Page) -> Page:
    """Return the page with the facts that are computed for it."""
    if kind not in PART_KINDS and kind != "recipes":
        return page
    from leadline.cli.shelves.part_facts import facts_of_part, facts_of_recipe

    if kind in PART_KINDS:
        facts = facts_of_part(PART_KINDS[kind], page.name)
    else:
        facts = facts_of_recipe(page.name)
    return replace(page, facts={**facts, **page.facts})


def _pages(catalog: Catalog[Any]) -> dict[str, Page]:
    """Return a page for every entry of a catalog: its docstring and its file's, options, place."""
    pages: dict[str, Page] = {}
    for name, entry in catalog.items():
        text = inspect.getdoc(entry) or ""
        options = ", ".join(_option(p) for p in catalog.options(name).values())
        facts = {"options": options or "none", "place": catalog.place(name)}
        file = (getattr(inspect.getmodule(entry), "__doc__", None) or "").strip()
        # A file of one short part may say the same twice.
        texts = dict.fromkeys(part for part in (text, file) if part)
        pages[name] = Page(name, summary=_first_line(text), facts=facts, text="\n\n".join(texts))
    return pages


def _probes() -> dict[str, Page]:
    from leadline.instruments.passes.probes import PROBES

    pages = _pages(PROBES)
    for name, entry in PROBES.items():
        measured = ", ".join(quantity.name for quantity in entry.quantities)
        pages[name] = replace(pages[name], facts={"quantities": measured, **pages[name].facts})
    return pages


def _quantities() -> dict[str, Page]:
    from leadline.instruments.passes.ablation import BLOCK, SUBLAYER
    from leadline.instruments.passes.probes import PROBES
    from leadline.instruments.visit.check import CHECKS
    from leadline.record.run.training import GAUGES, TRAINING
    from leadline.record.run.watching import CLIPPING, LOG_Z, OF_THE_WEIGHTS

    measured_by = [(q, f"the probe {name}") for name, e in PROBES.items() for q in e.quantities]
    measured_by += [
        (q, "leadline diagnose") for _, check in CHECKS.items() for q in check.quantities
    ]
    measured_by += [(BLOCK, "--ablate block"), (SUBLAYER, "--ablate sublayer")]
    measured_by += [(quantity, "leadline train, leadline sweep") for quantity in TRAINING + GAUGES]
    measured_by += [(quantity, "leadline.watch") for quantity in (CLIPPING, LOG_Z, *OF_THE_WEIGHTS)]
    known = {quantity.name for quantity, _ in measured_by}
    measured_by += [pair for pair in _of_instruments() if pair[0].name not in known]
    pages: dict[str, Page] = {}
    for quantity, means in measured_by:
        facts = {
            key: ", ".join(value) if isinstance(value, tuple) else str(value)
            for key, value in asdict(quantity).items()
            if value and key != "name"
        }
        facts["measured_by"] = means
        pages[quantity.name] = Page(quantity.name, summary=quantity.title, facts=facts)
    return dict(sorted(pages.items()))


def _of_instruments() -> Iterator[tuple[Quantity, str]]:
    """Yield the quantities that instruments write to their records, and the command of each."""
    from leadline.record.views import VIEWS

    commands = {"attacks": "bounds --attack"}
    for instrument, (reader, _) in VIEWS.items():
        for quantity in _declared(importlib.import_module(reader.partition(":")[0])):
            # Two instruments may share a file; the topic says whose quantity it is.
            name = quantity.topic if quantity.topic in VIEWS else instrument
            yield quantity, f"leadline {commands.get(name, name)}"


def _declared(module: ModuleType) -> Iterator[Quantity]:
    """Yield the quantities that a module holds, by themselves, in tuples or in a file of them."""
    from leadline.record.rows.quantity import Quantity

    for value in vars(module).values():
        if isinstance(value, Quantity):
            yield value
        elif isinstance(value, tuple):
            yield from (one for one in cast("tuple[Any, ...]", value) if isinstance(one, Quantity))
        elif isinstance(value, ModuleType) and value.__name__.endswith(".quantities"):
            yield from _declared(value)


def _bounds() -> dict[str, Page]:
    """All families: on attention, on rank collapse, and the laws of depth."""
    from leadline.reading.bounds.rank_collapse.residuals import RESIDUALS
    from leadline.theory import BOUNDS, COLLAPSE_BOUNDS, LAWS

    pages = _without_options(_pages(BOUNDS) | _pages(COLLAPSE_BOUNDS) | _pages(LAWS))
    entries: list[tuple[str, Any, dict[str, str]]] = [
        *((n, b, {"side": b.side, "quantity": b.quantity}) for n, b in BOUNDS.items()),
        *(
            (n, b, {"side": b.side, "quantity": RESIDUALS[b.measure]})
            for n, b in COLLAPSE_BOUNDS.items()
        ),
        *((n, law, {"along": law.along, "quantity": law.quantity}) for n, law in LAWS.items()),
    ]
    for name, entry, further in entries:
        facts = {"statement": entry.statement, "source": entry.source, **further}
        facts |= pages[name].facts
        pages[name] = replace(pages[name], summary=entry.title, facts=facts)
    return pages


def _rules() -> dict[str, Page]:
    """The rules of the diagnosis by name, in the order of their codes."""
    from leadline.reading.diagnosis.page import rule_entries
    from leadline.reading.diagnosis.rule import RULES

    rules = sorted((rule for _, rule in RULES.items()), key=lambda rule: rule.code)
    return {
        rule.name: Page(
            rule.name, rule.summary, facts={"code": rule.code, **dict(rule_entries(rule))}
        )
        for rule in rules
    }


def _alarms() -> dict[str, Page]:
    """The alarms of a watched run by name, in the order of their codes."""
    from leadline.reading.watch.alarm import ALARMS
    from leadline.reading.watch.scores import score_sentence

    alarms = sorted((one for _, one in ALARMS.items()), key=lambda one: one.code)
    return {
        one.name: Page(
            one.name,
            one.summary,
            facts={
                "code": one.code,
                "Severity": one.severity,
                "What it looks for": one.summary,
                "Why it is bad": one.why,
                "What it is not": one.is_not,
                "What to do now": one.do_now,
                "How early, and how often wrong": score_sentence(one.code),
                "Reads": ", ".join(one.needs) or "every gauge",
                "Sources": "\n".join(one.sources),
            },
        )
        for one in alarms
    }


def _concepts() -> dict[str, Page]:
    """The vocabulary: the nouns of all pages, and the illnesses by the names that papers use."""
    from leadline.cli.shelves.concepts import read_concepts

    return {
        name: Page(name, concept.summary, facts=concept.facts(), text=concept.in_full())
        for name, concept in read_concepts().items()
    }


def _parts(kind: str) -> dict[str, Page]:
    from leadline.parts import PARTS

    return _pages(PARTS[kind])


def _catalog(module: str, name: str, *, options: bool = True) -> dict[str, Page]:
    """Return the pages of a catalog that is imported when its shelf is opened."""
    pages = _pages(getattr(importlib.import_module(f"leadline.{module}"), name))
    return pages if options else _without_options(pages)


def _without_options(pages: dict[str, Page]) -> dict[str, Page]:
    return {
        name: replace(page, facts={"place": page.facts["place"]}) for name, page in pages.items()
    }


def _option(parameter: inspect.Parameter) -> str:
    if parameter.default is parameter.empty:
        return parameter.name
    default = parameter.default
    shown = str(default).lower() if default is None or isinstance(default, bool) else default
    return f"{parameter.name}={shown}"


def _first_line(text: str) -> str:
    return text.partition("\n\n")[0].replace("\n", " ")


PART_KINDS = {
    "connections": "connection",
    "placements": "placement",
    "norms": "norm",
    "attentions": "attention",
    "mlps": "mlp",
    "positions": "positions",
    "inits": "init",
    "embeddings": "embedding",
    "heads": "head",
}
"""The shelves of parts, and the field of a recipe that chooses from each."""

SHELVES: dict[str, Callable[[], dict[str, Page]]] = {
    "rules": _rules,
    "alarms": _alarms,
    "probes": _probes,
    "quantities": _quantities,
    "bounds": _bounds,
    # A family takes the model, which is no option.
    "families": partial(_catalog, "anatomy.families.family", "FAMILIES", options=False),
    **{plural: partial(_parts, kind) for plural, kind in PART_KINDS.items()},
    "recipes": partial(_catalog, "parts.recipes", "RECIPES", options=False),
    "tasks": partial(_catalog, "lab.tasks", "TASKS"),
    "presets": partial(_catalog, "lab.presets", "PRESETS", options=False),
    "engines": partial(_catalog, "lab.engines", "ENGINES"),
    "sinks": partial(_catalog, "lab.watch.sinks", "SINKS"),
    "concepts": _concepts,
}

SINGULAR = {
    "rules": "rule",
    "alarms": "alarm",
    "probes": "probe",
    "quantities": "quantity",
    "bounds": "bound",
    "families": "family",
    **PART_KINDS,
    "recipes": "recipe",
    "tasks": "task",
    "presets": "preset",
    "engines": "engine",
    "sinks": "sink",
    "concepts": "concept",
}

CODED = ("rules", "alarms")
"""The shelves whose pages have a code."""
