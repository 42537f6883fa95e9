"""The page of a rule as one HTML file: what it says in words, its example, the picture of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from leadline.errors import check_path
from leadline.reading.diagnosis.examples.picture import example_picture
from leadline.reading.diagnosis.page import EXAMPLE, example_of, rule_entries
from leadline.reading.show.markup import safe
from leadline.reading.show.shell import BRAND, FOOTER, page_asset, page_shell
from leadline.record.file.text_files import write_text_file

if TYPE_CHECKING:
    from os import PathLike

    from leadline.reading.diagnosis.rule import Rule

__all__ = ["rule_html", "write_rule_page"]

_STYLE = (
    ".rule{max-width:46rem;margin:0 auto;padding:1.5rem 1rem}.rule h2{margin:1.6rem 0 .3rem;"
    "font-size:1rem}.rule p{margin:.4rem 0;overflow-wrap:anywhere}"
    ".rule-picture{display:block;width:100%;max-width:40rem;height:auto;margin:.8rem 0}"
)


def write_rule_page(rule: Rule, path: str | PathLike[str]) -> Path:
    """Write the page of a rule to a file."""
    place = check_path(path)
    write_text_file(place, rule_html(rule), problem=f"The page cannot be written to {place}")
    return place


def rule_html(rule: Rule) -> str:
    """Return the page of a rule as text."""
    title = f"{rule.code} {rule.name}"
    parts = [f"<h1>{safe(title)}</h1>"]
    example = example_of(rule)
    for name, text in rule_entries(rule):
        parts.append(f"<h2>{safe(name)}</h2>")
        parts += [f"<p>{_set_text(paragraph)}</p>" for paragraph in text.split("\n\n")]
        if name == EXAMPLE and example is not None:
            parts.append(example_picture(example, theme="page"))
    return page_shell(
        title=f"<title>{safe(title)} – Leadline</title>",
        body=f'<header class="top"><div>{BRAND}</div></header>\n<main class="rule">\n'
        + "\n".join(parts)
        + f"\n</main>\n<footer>{FOOTER}</footer>",
        styles=[page_asset("leadline.reading.page", "report.css"), _STYLE],
        scripts=[],
        data={"rule": rule.code},
    )


def _set_text(text: str) -> str:
    """Escape a paragraph; set what stands between backticks as code, and addresses as links."""
    coded = re.sub(r"`([^`]+)`", r"<code>\1</code>", safe(text))
    linked = re.sub(r"(https://[^\s;,<]+[^\s;,.<)])", r'<a href="\1">\1</a>', coded)
    return re.sub(
        r"\barXiv (\d{4}\.\d{4,5})", r'<a href="https://arxiv.org/abs/\1">arXiv \1</a>', linked
    )
