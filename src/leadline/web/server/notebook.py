"""`ll.lab`: the lab from Python, in a frame of a notebook or in a browser.

page = ll.lab("runs")              # the records of a folder
page = ll.lab([record, other])     # records that are open, also those that no file holds
page.address, page.stop()
"""

from __future__ import annotations

import atexit
import os
import re
import sys
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leadline.errors import InputError, LeadlineError, shown
from leadline.web.server.address import DEFAULT_PORT
from leadline.web.server.serving import LabServer, open_browser
from leadline.web.server.settings import LabSettings

if TYPE_CHECKING:
    from leadline.record import Record

__all__ = ["LabPage", "choose_records", "lab"]

NOTEBOOKS = ("'self'", "http://localhost:*", "http://127.0.0.1:*", "https:", "vscode-webview:")
"""Who may show the page in a frame where it was opened from a notebook."""
HEIGHT = 820


class LabPage:
    """A lab that is open. It ends with `stop`, or with Python."""

    def __init__(
        self, server: LabServer, folder: tempfile.TemporaryDirectory[str] | None = None
    ) -> None:
        self._server = server
        self._folder = folder
        self.open = True
        atexit.register(self.stop)

    @property
    def address(self) -> str:
        """The address to open, with the token that opens it."""
        return self._server.address.url

    def stop(self) -> None:
        """End the server and its processes."""
        if not self.open:
            return
        self.open = False
        atexit.unregister(self.stop)
        with suppress(LeadlineError):
            self._server.stop()
        if self._folder is not None:
            self._folder.cleanup()

    def __repr__(self) -> str:
        """One line: where it is."""
        state = self.address if self.open else "ended"
        return f"<leadline.lab: {state}>"

    def __enter__(self) -> LabPage:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def lab(
    records: str | os.PathLike[str] | Record | Iterable[Any] | None = None,
    *,
    port: int | None = None,
    browser: bool = True,
) -> LabPage:
    """Open the lab: playground, records, diagnosis and lessons in the browser.

    `records` is a folder (the present one if none is named), a record, or several records and
    files. In a notebook the page is shown in a frame below the cell; elsewhere it is opened in a
    browser, or its address is printed where there is none or `browser` is False. `port` is taken,
    or the next one that is free.
    """
    kept: tempfile.TemporaryDirectory[str] | None = None
    if records is None or isinstance(records, str | os.PathLike):
        folder, files = choose_records([] if records is None else [Path(records)])
    else:
        kept = tempfile.TemporaryDirectory(prefix="leadline-lab-")
        try:
            folder, files = choose_records(_files_of(records, Path(kept.name)))
        except BaseException:
            kept.cleanup()
            raise
    in_notebook = _is_notebook()
    settings = LabSettings(folder, files, framed_by=NOTEBOOKS if in_notebook else ())
    server = LabServer(settings, port=DEFAULT_PORT if port is None else port)
    server.start()
    page = LabPage(server, kept)
    if in_notebook and browser:
        _show_frame(page.address)
    elif not (browser and open_browser(page.address)):
        print(f"The lab is at {page.address}")
    return page


def choose_records(paths: Iterable[Path]) -> tuple[Path | None, tuple[Path, ...]]:
    """Return a folder, or the files that are named; the present folder where nothing is named."""
    places = list(paths)
    for place in places:
        if not place.exists():
            raise InputError(f"There is no folder and no file {place}; check the path.")
    folders = [place for place in places if place.is_dir()]
    if not places:
        return Path.cwd(), ()
    if folders and len(places) > 1:
        raise InputError(
            f"The lab shows one folder, or files; {len(places)} places were named and "
            f"{folders[0]} is a folder."
        )
    if folders:
        return folders[0].resolve(), ()
    return None, tuple(place.absolute() for place in places)


def _files_of(records: Any, folder: Path) -> list[Path]:
    """The files of records; those that live in memory are saved into the folder."""
    from leadline.record import Record

    some = [records] if isinstance(records, Record) else records
    if not isinstance(some, Iterable):
        raise InputError(f"The lab shows a folder, files or records, but got {shown(records)}.")
    files: list[Path] = []
    for at, one in enumerate(some):
        if isinstance(one, Record) and one.path is None:
            files.append(one.save(folder / f"{_name_of(one, at)}.leadline"))
        elif isinstance(one, Record):
            assert one.path is not None
            files.append(one.path)
        elif isinstance(one, str | os.PathLike):
            files.append(Path(one))
        else:
            raise InputError(f"The lab shows a folder, files or records, but got {shown(one)}.")
    if not files:
        raise InputError("No record was given; leave the argument out for the present folder.")
    return files


def _name_of(record: Record, at: int) -> str:
    from leadline.record.provenance import text_at

    name = re.sub(r"[^\w.-]+", "-", text_at(record.provenance, "model", "name")).strip(".-")
    return f"{at + 1}-{name[:60] or 'record'}"


def _is_notebook() -> bool:
    """Whether this runs in a kernel that can show a page, and not in a terminal."""
    interactive = sys.modules.get("IPython")
    shell = None if interactive is None else interactive.get_ipython()
    return shell is not None and "IPKernelApp" in getattr(shell, "config", {})


def _show_frame(address: str) -> None:
    from IPython.display import IFrame, display  # pyright: ignore[reportMissingImports]

    display(IFrame(address, width="100%", height=HEIGHT))
