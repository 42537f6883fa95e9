"""`leadline check`: does a part keep to its protocol, and to what it declares of itself?"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leadline.catalog import Choice, load_plugin
from leadline.cli.request import options as o
from leadline.cli.screen.columns import print_line, two_columns
from leadline.cli.screen.voice import Gauge, Voice
from leadline.errors import CatalogError, did_you_mean

if TYPE_CHECKING:
    from rich.console import Console

    from leadline.testing.conformance import PartCheck


@dataclass(frozen=True)
class CheckedPart:
    """One part, where it was written, and what was found."""

    kind: str
    choice: str
    place: str
    checks: list[PartCheck]

    @property
    def failed(self) -> list[PartCheck]:
        return [check for check in self.checks if not check.passed]

    def to_json(self) -> dict[str, Any]:
        """Return the part and its checks as JSON."""
        return {
            "kind": self.kind,
            "name": self.choice,
            "place": self.place,
            "passed": not self.failed,
            "checks": [asdict(check) for check in self.checks],
        }


def check(
    voice: Voice,
    part: Annotated[
        str,
        o.argument(
            "PART",
            "A Python file, all of whose parts are checked, or the name of a part, with "
            "options if wanted, such as hyper(lanes=2).",
        ),
    ],
    plugin: o.Plugins = None,
) -> None:
    """Check a part of a Transformer: your own file's, or any that `leadline list` shows.

    It is built into tiny models and run: shapes, gradients, save and load, number types, autocast,
    torch.compile, cache, balance; and what it declares of itself is proved. Exit code 1 means that
    a check failed.
    """
    with voice.progress("Reading the catalogs") as gauge:
        found = [_checked(kind, choice, gauge) for kind, choice in _chosen(part)]
    passed = not any(checked.failed for checked in found)
    voice.emit(lambda: {"passed": passed, "parts": [c.to_json() for c in found]})
    voice.show(lambda console: _draw(found, console))
    if not passed:
        raise typer.Exit(1)


def _chosen(part: str) -> list[tuple[str, Choice]]:
    """The parts that are meant: those of a file, or those of a name."""
    path = Path(part)
    if path.suffix == ".py" or path.is_file():
        return _of_file(path)
    return _of_name(Choice.parse(part))


def _of_file(path: Path) -> list[tuple[str, Choice]]:
    from leadline.parts import PARTS

    before = {kind: set(catalog.names()) for kind, catalog in PARTS.items()}
    load_plugin(path)
    # A file that was loaded before adds no name now, but its entries say where they stand.
    written = f"{path.resolve()}:"
    found = [
        (kind, Choice(name))
        for kind, catalog in PARTS.items()
        for name in catalog.names()
        if name not in before[kind] or catalog.place(name).startswith(written)
    ]
    if not found:
        raise CatalogError(
            f"{path} registers no part, so there is nothing to check. Put a decorator before your "
            'class, such as @CONNECTIONS.register("mine") with CONNECTIONS from '
            "leadline.parts.connections; examples/my_connection.py shows one."
        )
    return found


def _of_name(choice: Choice) -> list[tuple[str, Choice]]:
    from leadline.parts import PARTS

    kinds = [kind for kind, catalog in PARTS.items() if choice.name in catalog]
    if not kinds:
        every = sorted({name for catalog in PARTS.values() for name in catalog.names()})
        hint = did_you_mean(choice.name, every)
        raise CatalogError(
            f"No part is called {choice.name!r}.{hint} Give a name that `leadline list` shows, or "
            "a Python file that registers a part."
        )
    found: list[tuple[str, Choice]] = []
    refusal: CatalogError | None = None
    for kind in kinds:
        try:
            found.append((kind, PARTS[kind].check(choice)))
        except CatalogError as error:  # of several parts of one name, some have the options
            refusal = error
    if refusal is not None and not found:
        raise refusal
    return found


def _checked(kind: str, choice: Choice, gauge: Gauge) -> CheckedPart:
    from leadline.parts import PARTS
    from leadline.testing.conformance import check_part

    def progress(name: str, done: int, total: int) -> None:
        gauge(f"Checking {choice.name}: {name}", done, total)

    checks = check_part(kind, choice, progress=progress)
    return CheckedPart(kind, str(choice), PARTS[kind].place(choice.name), checks)


def _draw(found: list[CheckedPart], console: Console) -> None:
    for checked in found:
        print_line(console, f"{checked.choice} ({checked.kind})", style="bold")
        two_columns(
            (
                (f"{'ok' if check.passed else 'failed':<6}  {check.name}", check.detail)
                for check in checked.checks
            ),
            console,
            styles=["" if check.passed else "bold red" for check in checked.checks],
        )
        console.print()
    for checked in found:
        print_line(console, _verdict(checked), style="bold red" if checked.failed else "green")


def _verdict(checked: CheckedPart) -> str:
    total, failed = len(checked.checks), checked.failed
    if not failed:
        return f"{checked.choice} ({checked.kind}): all {total} checks passed."
    names = ", ".join(check.name for check in failed)
    if failed[0].name == "builds":
        return (
            f"{checked.choice} ({checked.kind}): it cannot be built, so nothing else was checked."
        )
    return f"{checked.choice} ({checked.kind}): {len(failed)} of {total} checks failed: {names}."
