"""`leadline sweep`: many designs, many depths, several seeds; the map of what trains."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from leadline.catalog import Choice
from leadline.cli.request import options as o
from leadline.cli.request.engines import engine_choice, interruptible
from leadline.cli.request.outputs import check_outputs, say_outputs, write_outputs
from leadline.cli.screen.sweep_screen import deliver, show_costs, watching
from leadline.cli.screen.voice import Voice, check_writable
from leadline.errors import LabError

if TYPE_CHECKING:
    from leadline.lab.grid import Sweep

GRID, RUNNING = "Grid", "Running"
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def sweep(
    voice: Voice,
    axes: Annotated[
        list[str] | None,
        o.argument(
            "AXIS=V,V",
            "Fields of the recipe or the training with the values to try, such as "
            "depth=6,12,24 placement=pre,post; with --preset, the values to keep.",
        ),
    ] = None,
    grid: Annotated[
        list[str] | None,
        o.option("--grid AXIS=V,V", "The same as an option; may be repeated.", GRID),
    ] = None,
    preset: Annotated[
        str | None,
        o.option(
            "--preset NAME",
            "A sweep that is ready, such as depth-limits; `leadline list presets` names them.",
            GRID,
        ),
    ] = None,
    quick: Annotated[bool, o.option("--quick", "The preset in minutes.", GRID)] = False,
    overrides: Annotated[
        list[str] | None,
        o.option(
            "--set FIELD=VALUE",
            "A field that is the same in all cells, such as width=64 or task=copy; "
            "may be repeated.",
            GRID,
        ),
    ] = None,
    task: Annotated[
        str | None,
        o.option(
            "--task CHOICE",
            "What every cell learns: stdlib unless given; `leadline list tasks` names them.",
            GRID,
        ),
    ] = None,
    steps: Annotated[
        int | None, o.option("--steps N", "Updates of every cell; 200 unless given.", GRID)
    ] = None,
    seeds: Annotated[
        int | None, o.option("--seeds N", "How many seeds, from 0 on; 3 unless given.", GRID)
    ] = None,
    engine: Annotated[str, o.option("--engine NAME", "Who runs: local or ray.", RUNNING)] = "local",
    address: Annotated[
        str | None,
        o.option(
            "--address HOST:PORT", "The Ray cluster, or auto for the one of this machine.", RUNNING
        ),
    ] = None,
    workers: Annotated[
        int | None,
        o.option(
            "--workers N", "Cells at a time; as many as there are cores unless given.", RUNNING
        ),
    ] = None,
    threads: Annotated[int, o.option("--threads N", "Threads of each worker.", RUNNING)] = 1,
    budget: Annotated[
        str | None,
        o.option(
            "--budget TIME",
            "Stop after this time, such as 90s, 30m or 8h; the same command goes on.",
            RUNNING,
        ),
    ] = None,
    every: Annotated[
        float, o.option("--every SECONDS", "Between two checkpoints of a cell.", RUNNING)
    ] = 10.0,
    retry: Annotated[
        bool, o.option("--retry", "Try cells that failed once more.", RUNNING)
    ] = False,
    dry_run: Annotated[
        bool,
        o.option(
            "--dry-run",
            "Only list the cells with their FLOPs and about how long they take.",
            RUNNING,
        ),
    ] = False,
    plugin: o.Plugins = None,
    output: Annotated[
        Path | None,
        o.option(
            "--output -o FILE.leadline",
            "The record; the same command goes on where a sweep was cut off. The name of the "
            "preset, or sweep.leadline, unless given.",
            o.OUTPUT,
        ),
    ] = None,
    html: o.HtmlFile = None,
    everything: o.Everything = False,
) -> None:
    """Train every combination of the axes with every seed, and draw the map of what trains.

    Cells run in parallel, one process per core. A sweep that was stopped or killed loses nothing:
    the same command goes on at the cell and the step where it was.
    """
    seconds = None if budget is None else _seconds(budget)
    chosen = engine_choice(engine, address)
    path = output or Path(f"{preset or 'sweep'}{'-quick' if preset and quick else ''}.leadline")
    if not dry_run:
        check_writable(path, "record")
    check_outputs(None, html)
    with voice.progress("Preparing the sweep") as gauge:
        from leadline.lab.estimate import estimate
        from leadline.lab.sweep import check_numbers

        given = {"steps": steps, "task": task}
        changes = [*(overrides or ())]
        changes += [f"{name}={value}" for name, value in given.items() if value is not None]
        asked = [*(grid or ()), *(axes or ())]
        what = _asked(asked, changes, preset=preset, quick=quick, seeds=seeds)
        check_numbers(workers=workers, threads=threads, budget=seconds, every=every)
        costs = estimate(what, progress=gauge) if dry_run else None
    if costs is not None:
        show_costs(voice, costs, workers=workers, threads=threads)
        return
    from leadline.lab.sweep import sweep as run_sweep

    with watching(voice, _workers(chosen, workers, threads)) as progress, interruptible():
        try:
            record = run_sweep(
                what,
                path,
                engine=chosen,
                workers=workers,
                threads=threads,
                budget=seconds,
                every=every,
                retry=retry,
                plugins=plugin or (),
                progress=progress,
            )
        except KeyboardInterrupt:
            raise LabError(
                f"The sweep was interrupted; the finished cells are in {path} and the "
                "checkpoints of the others beside it. The same command goes on from there."
            ) from None
    with record:
        write_outputs(record, None, html)
        deliver(voice, record, path, everything=everything)
        say_outputs(voice, None, html)


def _asked(
    axes: list[str], changes: list[str], *, preset: str | None, quick: bool, seeds: int | None
) -> Sweep:
    """The sweep of the command line: a preset, cut down by the axes, or the axes themselves."""
    from dataclasses import replace

    from leadline.lab.grid import Grid, Sweep, parse_axes, parse_fields

    if seeds is not None and seeds < 1:
        raise LabError(f"--seeds {seeds} asks for no seed; give 1 or more.")
    numbers = {} if seeds is None else {"seeds": tuple(range(seeds))}
    fixed = parse_fields(changes)
    if preset is None:
        if quick:
            raise LabError("--quick is about a preset; give --preset NAME too.")
        if not axes:
            raise LabError(
                "Give the axes of the sweep, such as depth=6,12,24 placement=pre,post, or "
                "--preset NAME."
            )
        what = Sweep(name="sweep", grids=(Grid(parse_axes(axes)),)).but(**fixed)
        return replace(what, **numbers)
    from leadline.lab.presets import PRESETS

    what = PRESETS.get(preset)(quick=quick)
    for name, labels in _labels(axes):
        what = what.only(name, labels)
    if fixed:
        what = what.but(**fixed)
    return replace(what, **numbers) if numbers else what


def _labels(axes: list[str]) -> list[tuple[str, list[Any]]]:
    """The labels to keep of a preset's axes."""
    from leadline.lab.grid import read_values

    found: list[tuple[str, list[Any]]] = []
    for text in axes:
        name, values = read_values(text)
        found.append((name, [v if isinstance(v, int | float | str) else str(v) for v in values]))
    return found


def _workers(engine: Choice, workers: int | None, threads: int) -> int | None:
    """How many workers are about to start; None where the engine decides."""
    from leadline.lab.engines.local import workers_for

    return workers_for(workers, threads) if engine.name == "local" else workers


def _seconds(text: str) -> float:
    """Read `90s`, `30m`, `1.5h`.

    >>> _seconds("30m")
    1800.0
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text.strip().lower())
    if match is None or match[2] not in _UNITS or float(match[1]) == 0:
        raise LabError(f"--budget {text!r} is no time; write for example 90s, 30m or 8h.")
    return float(match[1]) * _UNITS[match[2]]
