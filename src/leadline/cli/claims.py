"""`leadline claims`: what the notes say, ruled on by measurement."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from leadline.cli.request import options as o
from leadline.cli.request.commands import takes_options
from leadline.cli.screen.help import GroupedCommand
from leadline.cli.screen.voice import Voice, check_page, check_writable
from leadline.errors import InputError, RecordError, UnknownName

if TYPE_CHECKING:
    from rich.console import Console

    from leadline.claims.ledger import Ledger
    from leadline.claims.ruling import Ruling

__all__ = ["claims"]

OWN = Path("claims.jsonl")
"""Where a run keeps its measurements unless told otherwise."""

claims = typer.Typer(
    name="claims",
    rich_markup_mode=None,
    invoke_without_command=True,
    help="What five notes say about residual connections, ruled on by measurement.",
)
LedgerFile = Annotated[
    Path | None,
    o.option(
        "--record FILE",
        "The ledger of a run: claims.jsonl if it is there, otherwise the one that comes with "
        "this version.",
    ),
]
Names = Annotated[list[str] | None, o.argument("ID", "Claims by their names.")]


@claims.callback()
@takes_options
def list_claims(
    context: typer.Context,
    voice: Voice,
    group: Annotated[
        str | None,
        o.option(
            "--group GROUP", "One group alone: algebra, norms, attention, collapse, training."
        ),
    ] = None,
    note: Annotated[
        str | None,
        o.option(
            "--note NOTE",
            "The claims of one note alone: shortcuts, summary, textbook, card, deep-dive.",
        ),
    ] = None,
    verdict: Annotated[
        str | None, o.option("--verdict VERDICT", 'One verdict alone, such as "false as stated".')
    ] = None,
    page: Annotated[
        Path | None,
        o.option(
            "--html PAGE",
            "Write the page for learners here: one file, English, Chinese and Russian. "
            "Claims of a plug-in stay in the language they are written in.",
        ),
    ] = None,
    record: LedgerFile = None,
    plugin: o.Plugins = None,
    everything: o.Everything = False,
) -> None:
    """List the claims with their verdicts, or write them as a page for learners."""
    if context.invoked_subcommand is not None:
        return
    if page is not None:
        check_page(page, library="latex2mathml")
    with voice.progress("Reading the claims") as gauge:
        from leadline.claims import CLAIMS
        from leadline.claims.claim import GROUPS, NOTES
        from leadline.claims.page.document import about, claims_document, in_order
        from leadline.claims.page.terminal import claims_answer, claims_screen
        from leadline.claims.ruling import VERDICTS

        for kind, value, known in (
            ("group", group, GROUPS),
            ("note", note, NOTES),
            ("verdict", verdict, VERDICTS),
        ):
            if value is not None and value not in known:
                raise UnknownName(kind, value, known)
        ledger = _ledger(record)
        rulings = [ledger.ruling(name) for name in in_order(CLAIMS.names())]
        some = [
            ruling
            for ruling in rulings
            if group in (None, ruling.claim.group)
            and (note is None or note in ruling.claim.notes)
            and verdict in (None, ruling.verdict)
        ]
        if page is not None:
            gauge("writing the page")
            page.write_text(claims_document(some, ledger), encoding="utf-8")
    voice.emit(
        lambda: {
            "answer": [claims_answer(some)],
            "measured": about(ledger, some),
            "claims": [r.to_json() for r in some],
        }
    )
    if page is None:
        voice.show(claims_screen(some, everything=everything).show)
        voice.show(lambda console: _say_where(console, ledger, some))
    else:
        voice.say(f"Open {page} in a browser.")


@claims.command("run", cls=GroupedCommand)
@takes_options
def run(
    voice: Voice,
    names: Names = None,
    everything: Annotated[bool, o.option("--all", "Every claim.")] = False,
    group: Annotated[str | None, o.option("--group GROUP", "Every claim of a group.")] = None,
    seeds: Annotated[int, o.option("--seeds N", "How often what is random is drawn.")] = 5,
    seed: Annotated[int, o.option("--seed N", "The first seed; the others follow it.")] = 0,
    workers: Annotated[
        int | None,
        o.option(
            "--workers N", "Processes, of one thread each; as many as there are cores unless given."
        ),
    ] = None,
    record: Annotated[
        Path, o.option("--record FILE", "The ledger: what it holds is not measured again.")
    ] = OWN,
    plugin: o.Plugins = None,
) -> None:
    """Measure claims anew and rule on them.

    Every measurement is written to the ledger when it is made: a run that was interrupted goes on
    when the same command is given again. At the end the verdicts stand beside those that come with
    this version. Leaves with 1 where something could not be measured or a correction fails.
    """
    if seeds < 1:
        raise InputError(f"--seeds is {seeds}; give a whole number from 1 on.")
    if seed < 0:
        raise InputError(f"--seed is {seed}; give a whole number from 0 on.")
    check_writable(record, "ledger")
    with voice.progress("Reading the claims") as gauge:
        from leadline.claims import CLAIMS
        from leadline.claims.ledger import SHIPPED, Ledger
        from leadline.claims.page.document import about
        from leadline.claims.running import run_claims

        chosen = _chosen(names or [], everything=everything, group=group)
        drawn = tuple(range(seed, seed + seeds))
        try:
            done = run_claims(
                chosen,
                drawn,
                record,
                workers=workers,
                plugins=plugin or (),
                progress=gauge,
            )
        except KeyboardInterrupt:
            voice.note(f"Interrupted. What was measured is in {record}; the same command goes on.")
            raise typer.Exit(130) from None
        ledger = Ledger(record)
        rulings = [ledger.ruling(name, seeds=drawn) for name in chosen]
        shipped = Ledger(SHIPPED)
        others = {name: shipped.ruling(name).verdict for name in chosen if CLAIMS.get(name).measure}
    differ = {
        ruling.claim.name: (ruling.verdict, others[ruling.claim.name])
        for ruling in rulings
        if ruling.claim.name in others
        and others[ruling.claim.name] not in ("not measured", ruling.verdict)
    }
    voice.emit(
        lambda: {
            "measured": about(ledger, rulings),
            "differ": {n: {"here": h, "shipped": s} for n, (h, s) in differ.items()},
            "failed": done.failed,
            "claims": [ruling.to_json() for ruling in rulings],
        }
    )
    from leadline.claims.page.terminal import claims_screen

    voice.show(claims_screen(rulings).show)
    voice.say(f"{done.measured} measured, {done.kept} were in {record} already.")
    compared = sum(1 for verdict in others.values() if verdict != "not measured")
    if compared:
        voice.say(f"{compared - len(differ)} of {compared} verdicts are those of this version.")
    for name, (here, there) in differ.items():
        voice.say(f"  {name}: {here} here, {there} in this version")
    for name, reason in done.failed.items():
        voice.note(f"leadline: {name} could not be measured: {reason}")
    if done.failed or any(ruling.correction == "fails" for ruling in rulings):
        raise typer.Exit(1)


@claims.command("show", cls=GroupedCommand)
@takes_options
def show(
    voice: Voice,
    name: Annotated[str, o.argument("ID", "A claim by its name.")],
    picture: Annotated[
        Path | None, o.option("--picture -o FILE.svg", "Write the claim's picture here.")
    ] = None,
    record: LedgerFile = None,
    plugin: o.Plugins = None,
) -> None:
    """Show one claim: verdict, numbers, picture, correction, and the code that measured it."""
    if picture is not None:
        if picture.suffix.lower() != ".svg":
            raise RecordError(
                f"The picture is an SVG, so its name must end in .svg; {picture} does not."
            )
        check_writable(picture, "picture")
    from leadline.claims import CLAIMS
    from leadline.claims.digest import place_of, source_of
    from leadline.claims.page.terminal import show_claim

    entry = CLAIMS.get(name)
    ledger = _ledger(record)
    ruling = ledger.ruling(name)
    code = source_of(entry) if entry.measure else ""
    place = place_of(entry)
    voice.emit(lambda: {**ruling.to_json(), "place": place, "code": code})
    voice.show(lambda console: show_claim(ruling, console, code=code, place=place))
    voice.say("")
    voice.show(lambda console: _say_where(console, ledger, [ruling]))
    if picture is not None:
        from leadline.claims.page.svg import claim_svg

        picture.write_text(claim_svg(ruling), encoding="utf-8")
        voice.say(f"The picture is in {picture}")


def _ledger(path: Path | None) -> Ledger:
    from leadline.claims.ledger import default_ledger

    return default_ledger(OWN if path is None and OWN.exists() else path)


def _say_where(console: Console, ledger: Ledger, rulings: list[Ruling]) -> None:
    """Print where the numbers come from, in the width of the terminal."""
    from leadline.record.words.screen import print_line  # needs numpy, which no help may load

    print_line(console, _where(ledger, rulings))


def _where(ledger: Ledger, rulings: list[Ruling]) -> str:
    from leadline.claims.page.document import about

    found = about(ledger, rulings)
    source = f"the ledger {found['file']}" if found["file"] else "the ledger of this version"
    if not any(ruling.claim.checkable for ruling in rulings):
        return "Nothing is measured for it: `why` says what would be needed."
    if not found["to"]:
        return f"Nothing of it is in {source}; `leadline claims run` measures it."
    seeds = found["seeds"]
    count = "1 seed" if len(seeds) == 1 else f"{len(seeds)} seeds"
    return (
        f"Numbers of {source}: {count}, {found['to'][:10]}. `leadline claims show ID` tells more."
    )


def _chosen(names: list[str], *, everything: bool, group: str | None) -> list[str]:
    from leadline.claims import CLAIMS
    from leadline.claims.claim import GROUPS

    if everything and (names or group):
        raise InputError(
            "--all is every claim; leave the names and --group out, or leave out --all."
        )
    if group is not None and group not in GROUPS:
        raise UnknownName("group", group, GROUPS)
    for name in names:
        CLAIMS.get(name)
    found = list(dict.fromkeys(names))
    if group is not None:
        found += [n for n, entry in CLAIMS.items() if entry.claim.group == group and n not in found]
    if everything:
        found = CLAIMS.names()
    if not found:
        raise InputError(
            "Say which claims to measure: their names (`leadline claims` lists them), --group or "
            "--all."
        )
    from leadline.claims.page.document import in_order

    return in_order(found)
