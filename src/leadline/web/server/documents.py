"""Pages and lists that are made in the reading process: reports, claims, lessons."""

from __future__ import annotations

import importlib
from typing import Any

from leadline.errors import MissingExtra

__all__ = ["claims_page_text", "lesson", "lessons", "report_page_text"]


def report_page_text(paths: list[str], names: list[str]) -> str:
    """Return the report of a record, or of several on one page, as HTML."""
    from contextlib import ExitStack

    from leadline.reading.page.html import render_html
    from leadline.record import Record

    with ExitStack() as stack:
        records = [stack.enter_context(Record.open(path)) for path in paths]
        return render_html(records, names=names if len(names) > 1 else None, file=names[0])


def claims_page_text() -> str:
    """Return the page of claims, with the verdicts of the ledger that comes with the package."""
    from leadline.claims import CLAIMS
    from leadline.claims.ledger import default_ledger
    from leadline.claims.page.document import claims_document, in_order

    ledger = default_ledger(None)
    return claims_document([ledger.ruling(name) for name in in_order(CLAIMS.names())], ledger)


def lessons(call: str, language: str) -> Any:
    """Return the list of lessons."""
    return _function(call)(language)


def lesson(call: str, name: str, language: str) -> Any:
    """Return one lesson."""
    return _function(call)(name, language)


def _function(call: str) -> Any:
    module, _, name = call.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        if error.name is None or not module.startswith(error.name):
            raise
        raise MissingExtra(f"This installation of Leadline has no {module}.") from error
