"""What the browser loads: one page, its styles, its ES modules and its words.

Nothing is built and nothing is fetched from elsewhere. `static_files` names every file that a
server may hand out under `static/`, so that a request is looked up in a table and never becomes a
path. uPlot is the copy that the reports use.
"""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.resources.abc import Traversable

__all__ = ["index_page", "static_files"]

_TYPES = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "json": "application/json",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
}
_VENDORED = ("uplot.min.js", "uplot.min.css", "uplot.LICENSE.txt")


def index_page() -> bytes:
    """The document that stands at `/`."""
    return resources.files(__name__).joinpath("index.html").read_bytes()


def static_files() -> dict[str, tuple[Traversable, str]]:
    """Every file under `static/`: its name there, the file, and its media type."""
    files = dict(_files(resources.files(__name__), ""))
    vendor = resources.files("leadline.reading.page.vendor")
    files |= {f"vendor/{name}": vendor.joinpath(name) for name in _VENDORED}
    typed = {}
    for name, file in sorted(files.items()):
        kind = _TYPES.get(name.rpartition(".")[2])
        if kind is not None:
            typed[name] = (file, kind)
    return typed


def _files(folder: Traversable, prefix: str) -> Iterator[tuple[str, Traversable]]:
    for entry in folder.iterdir():
        if entry.is_dir() and entry.name != "__pycache__":
            yield from _files(entry, f"{prefix}{entry.name}/")
        elif entry.is_file():
            yield prefix + entry.name, entry
