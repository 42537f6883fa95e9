"""`leadline lab`: the lab in the browser."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from leadline.cli.request import options as o
from leadline.cli.screen.voice import Voice
from leadline.errors import InputError

if TYPE_CHECKING:
    from leadline.web.server.serving import LabServer

PORT = 8710


def lab(
    voice: Voice,
    places: Annotated[
        list[Path] | None,
        o.argument(
            "FOLDER or FILES",
            "The records that the lab shows: those below a folder, or files. The present folder "
            "otherwise.",
        ),
    ] = None,
    port: Annotated[
        int,
        o.option("--port N", "The port of 127.0.0.1; where it is in use the next one is taken."),
    ] = PORT,
    no_browser: Annotated[
        bool, o.option("--no-browser", "Print the address and open no browser.")
    ] = False,
    allow_code: Annotated[
        bool,
        o.option(
            "--allow-code",
            "Let the page name Python code that is run: package.module:function, and code that "
            "comes with a model.",
        ),
    ] = False,
    export: Annotated[
        Path | None,
        o.option(
            "--export DIR",
            "Write the lab as a site that needs no server into this folder, with reports of the "
            "records that are named, and leave.",
            o.OUTPUT,
        ),
    ] = None,
    plugin: o.Plugins = None,
) -> None:
    """Open the lab in the browser: a playground for depth, records and live runs, lessons.

    The server answers this machine alone, and only who knows the address, which holds a token.
    Ctrl-C ends it with everything that it has started.
    """
    from leadline.web.server.notebook import choose_records

    if export is not None:
        # A site is made to be shown to others, so nothing is in it that was not named.
        chosen = choose_records(places) if places else (None, ())
        _export(voice, export, *chosen, plugin or [])
        return
    folder, files = choose_records(places or [])
    if voice.quiet and no_browser and not voice.as_json:
        raise InputError(
            "With --quiet and --no-browser nobody would learn the address; leave one of them out, or "
            "add --json."
        )
    from leadline.web.server.serving import LabServer
    from leadline.web.server.settings import LabSettings

    debug = "--debug" in sys.argv  # then the processes say on standard error what went wrong
    settings = LabSettings(folder, files, allow_code, tuple(plugin or ()), debug=debug)
    server = LabServer(settings, port=port)
    server.run(lambda: _say(voice, server, folder, asked=port, browser=not no_browser))
    voice.say("The lab has ended.")


def _say(
    voice: Voice, server: LabServer, folder: Path | None, *, asked: int, browser: bool
) -> None:
    """Print where the lab is, and open it."""
    from leadline.web.server.serving import open_browser

    address = server.address
    voice.emit(
        lambda: {
            "address": address.url,
            "port": address.port,
            "folder": None if folder is None else str(folder),
        }
    )
    if server.moved:
        voice.note(f"Port {asked} is in use, so the lab took {address.port}.")
    voice.say(f"The lab is at {address.url}\nCtrl-C ends it.")
    for stream in (sys.stdout, sys.__stdout__):  # whoever reads a pipe waits for the address
        if stream is not None:
            stream.flush()
    if browser and not open_browser(address.url):
        voice.note("No browser was opened; open the address yourself.")


def _export(
    voice: Voice, export: Path, folder: Path | None, files: tuple[Path, ...], plugins: list[Path]
) -> None:
    """Write the site, and say how large it is."""
    from leadline.web.export import export_site
    from leadline.web.server.shelf import record_files

    with voice.progress("Writing the site") as gauge:
        records = [file.path for file in record_files(folder, files)]
        site = export_site(export, records=records, progress=gauge, plugins=plugins)
    voice.emit(site.to_json)
    voice.say(str(site))
