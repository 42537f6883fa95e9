"""The document, its style and its script, made from the files that the server serves too.

`index.html` names the styles, the scripts and the module to begin with; here they become `lab.css`
and `lab.js`. Modules of this folder's `pages/modules/` stand in for those of the same name, and the
policy of the server's header becomes a meta tag.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from leadline.errors import InputError
from leadline.reading.page import vendor
from leadline.reading.show.markup import safe
from leadline.web import pages
from leadline.web.export.joining import join_modules

__all__ = ["page_files", "page_words", "script_data"]

PAGES = Path(pages.__file__).parent
STATIC_PAGES = Path(__file__).with_name("pages")
VENDOR = Path(vendor.__file__).parent
LANGUAGES = ("en", "zh", "ru")
# A page on disk has no origin that 'self' could name; browsers differ in whether it names its files.
# On a web host `file:` allows nothing: no browser lets such a page load from the disk.
_OWN = "'self' file:"
POLICY = (
    f"default-src 'none'; script-src {_OWN}; style-src {_OWN}; img-src {_OWN} data: blob:; "
    f"frame-src {_OWN}; base-uri 'none'; form-action 'none'"
)
"""That of the server without what a meta tag cannot say, and without requests: there are none."""
_STYLE = re.compile(r'<link rel="stylesheet" href="static/([^"]+)">\n?')
_SCRIPT = re.compile(r'<script src="static/([^"]+)"( defer)?></script>\n?')
_MODULE = re.compile(r'<script type="module" src="static/modules/([^"]+)"></script>')
_HTML = '<html lang="en">'
_CHARSET = '<meta charset="utf-8">\n'


def page_files(language: str | None = None) -> dict[str, str]:
    """Return index.html, lab.css, lab.js and what runs before the page is painted, by name."""
    document = (PAGES / "index.html").read_text("utf-8")
    styles = [_file(name) for name in _STYLE.findall(document)]
    early = [name for name, defer in _SCRIPT.findall(document) if not defer]
    late = [_file(name) for name, defer in _SCRIPT.findall(document) if defer]
    entry = _MODULE.search(document)
    if not styles or entry is None or _CHARSET not in document or _HTML not in document:
        raise InputError("index.html of the lab has another form than the export can change.")
    styles.append((STATIC_PAGES / "site.css").read_text("utf-8"))
    late.append(join_modules(_modules(), entry[1]))
    head = f'<meta http-equiv="Content-Security-Policy" content="{safe(POLICY)}">\n'
    document = document.replace(_CHARSET, _CHARSET + head)
    document = _STYLE.sub("", document)
    document = _SCRIPT.sub(
        lambda match: "" if match[2] else f'<script src="{match[1]}"></script>\n', document
    )
    link = '<link rel="stylesheet" href="lab.css">\n<script src="lab.js" defer></script>'
    document = _MODULE.sub(link, document)
    if language is not None:
        document = document.replace(_HTML, f'<html lang="en" data-language="{safe(language)}">')
    files = {"index.html": document, "lab.css": "\n".join(styles), "lab.js": "\n".join(late)}
    return files | {name: _file(name) for name in early}


def page_words(language: str) -> dict[str, str]:
    """Return the words of the page in a language, with those of a static site."""
    words: dict[str, str] = {}
    for folder in (PAGES, STATIC_PAGES):
        words |= json.loads((folder / "words" / f"{language}.json").read_text("utf-8"))
    return words


def script_data(name: str, content: Any | str) -> str:
    """Return a script that hands data to the page, because a page on disk can load nothing else."""
    text = content
    if not isinstance(content, str):
        text = json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return f"leadlineData({json.dumps(name)},{text});\n"


def _modules() -> dict[str, str]:
    """Every module by its name; those of a static site in place of those that ask a server."""
    return {
        path.relative_to(folder / "modules").as_posix(): path.read_text("utf-8")
        for folder in (PAGES, STATIC_PAGES)
        for path in sorted((folder / "modules").rglob("*.js"))
    }


def _file(name: str) -> str:
    inside = name.removeprefix("vendor/")
    return ((VENDOR if inside != name else PAGES) / inside).read_text("utf-8")
