"""`leadline bounds`: what theorems predict, beside what a record holds; or theorems under attack."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from leadline.cli.request import options as o
from leadline.cli.request.outputs import check_outputs, nothing_kept, say_outputs, write_outputs
from leadline.cli.request.records import open_records
from leadline.cli.screen.voice import Voice
from leadline.errors import InputError
from leadline.instruments.attacks import ATTACKS, OPTIMISED

ATTACK = "Attack"


def bounds(
    voice: Voice,
    file: Annotated[
        Path | None,
        o.argument(
            "FILE.leadline",
            "A record with readings of stream, attention, Jacobians or rank collapse; not needed "
            "with --attack.",
        ),
    ] = None,
    bound: Annotated[
        list[str] | None,
        o.option(
            "--bound NAME", "This bound alone (`leadline list bounds` names them); may be repeated."
        ),
    ] = None,
    layer: Annotated[int | None, o.option("--layer N", "The heads of one layer.")] = None,
    heads: Annotated[bool, o.option("--heads", "A row for every head.")] = False,
    initial: Annotated[
        bool,
        o.option(
            "--initial",
            "The weights are as they were drawn, where the record does not know: laws of "
            "depth are about those.",
        ),
    ] = False,
    attack: Annotated[
        bool,
        o.option("--attack", "Instead of FILE: search for networks that violate a bound.", ATTACK),
    ] = False,
    attacks: Annotated[
        int | None,
        o.option(
            "--attacks N",
            f"How many random networks every bound meets; {ATTACKS} otherwise.",
            ATTACK,
        ),
    ] = None,
    optimised: Annotated[
        int | None,
        o.option(
            "--optimised N",
            f"How many networks climb towards a violation; {OPTIMISED} otherwise.",
            ATTACK,
        ),
    ] = None,
    seed: Annotated[
        int | None, o.option("--seed N", "Seed of everything random; 0 otherwise.", ATTACK)
    ] = None,
    plugin: o.Plugins = None,
    output: o.RecordFile = None,
    html: o.HtmlFile = None,
    everything: o.Everything = False,
) -> None:
    """Set the bounds of theorems beside what was measured, or attack them.

    For every bound: what it predicts, what was measured, their ratio, and whether its assumptions
    hold for this model and this input. With --attack: how near random networks, and networks that
    climb towards a violation, come to it. Exit code 1 means that a bound is violated where its
    assumptions hold.
    """
    _check(file, attack, of_record=(layer, heads, initial), of_attack=(attacks, optimised, seed))
    if file is not None and output is not None:
        raise InputError(
            f"-o keeps what --attack finds, and {file} is a record already; "
            "--html FILE.html writes its page with the bounds."
        )
    check_outputs(output, html)
    if file is None:
        violated = _attack(
            voice,
            attacks=ATTACKS if attacks is None else attacks,
            optimised=OPTIMISED if optimised is None else optimised,
            seed=seed or 0,
            names=bound,
            output=output,
            html=html,
            everything=everything,
        )
    else:
        from leadline.reading.bounds.evaluate import bounds as bounds_of

        with voice.progress("Computing the bounds"), open_records(voice, [file]) as [record]:
            table = bounds_of(record, names=bound, layer=layer, initial=initial or None)
            write_outputs(record, None, html)
        violated = table.violated
        voice.emit(table.to_json)
        rows = {"heads": heads or layer is not None, "everything": everything}
        voice.show(table.screen(**rows).show)
        say_outputs(voice, None, html)
    if violated:
        raise typer.Exit(1)


def _attack(
    voice: Voice,
    *,
    attacks: int,
    optimised: int,
    seed: int,
    names: list[str] | None,
    output: Path | None,
    html: Path | None,
    everything: bool,
) -> bool:
    from leadline.instruments.attacks.bounds import bounds as bounds_under

    with voice.progress("Attacking the bounds") as gauge:
        with nothing_kept("search"):
            record = bounds_under(
                attack=True,
                attacks=attacks,
                optimised=optimised,
                seed=seed,
                names=names,
                progress=gauge,
            )
        write_outputs(record, output, html)
    table = record.attacks
    voice.emit(table.to_json)
    voice.show(table.screen(everything=everything).show)
    say_outputs(voice, output, html)
    return table.violated


def _check(
    file: Path | None,
    attack: bool,
    *,
    of_record: tuple[int | None, bool, bool],
    of_attack: tuple[int | None, int | None, int | None],
) -> None:
    """Refuse what does not go together."""
    if file is None and not attack:
        raise InputError(
            "No record was given; write `leadline bounds FILE.leadline` to set bounds beside what "
            "was measured, or `leadline bounds --attack` to search for violations."
        )
    if file is not None and attack:
        raise InputError(
            f"--attack draws its own networks and takes no record, and {file} was given; leave "
            "one of them out."
        )
    layer, heads, initial = of_record
    if attack and (layer is not None or heads or initial):
        raise InputError(
            "--layer, --heads and --initial are about a record; leave them out with --attack."
        )
    if not attack and any(number is not None for number in of_attack):
        raise InputError(
            "--attacks, --optimised and --seed belong to the search for violations; add --attack, "
            "without a record."
        )
