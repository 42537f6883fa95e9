"""The command of an experiment, made from the options that it declares.

A field `training_seeds: int = option(3, "How often.")` becomes `--training-seeds N`. Which options
were given is asked of the parser, so that what was not given keeps the default of the experiment,
or its default with --quick.
"""

from __future__ import annotations

import inspect
import sys
from dataclasses import Field, asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from leadline.cli.request import options as o
from leadline.cli.request.commands import parameter_of, takes_options
from leadline.cli.request.outputs import check_outputs, say_outputs, write_outputs
from leadline.cli.screen.help import GroupedCommand
from leadline.cli.screen.voice import Voice, check_writable
from leadline.errors import InputError, nearest_names
from leadline.experiments.experiment import ExperimentOptions, OptionText

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from leadline.experiments.outcome.outcome import Outcome

__all__ = ["ExperimentCommand", "command_of"]

_FOLDER_TEXTS = {
    True: "Write picture (SVG), table (CSV) and records into this folder; outcome.leadline has all "
    "of the outcome.",
    False: "Write picture.svg (the curves), table.csv (all numbers) and outcome.leadline (all of "
    "it, as a record) into this folder.",
}
_METAVARS: dict[Any, str] = {int: "N", int | None: "N", tuple[int, ...]: "N,N", str: "NAME"}
_READ_AS: dict[Any, Any] = {
    tuple[int, ...]: str | None,  # numbers with commas between them
    tuple[str, ...]: list[str] | None,
    tuple[Path, ...]: list[Path] | None,
}
"""The types of fields that typer does not know, and what it reads instead."""
_SHARED = {"models": o.Models, "dtype": o.Dtype, "device": o.Device, "seed": o.Seed}


class ExperimentCommand(GroupedCommand):
    """A command that names the experiment, and the nearest option, where an option is unknown."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the options."""
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            # By its name: the class is click's in one version of typer and typer's own in another.
            if type(error).__name__ != "NoSuchOption":
                raise
            name = str(getattr(error, "option_name", ""))
            known = [
                word for one in self.get_params(ctx) for word in (*one.opts, *one.secondary_opts)
            ]
            near = nearest_names(name, known, at_most=1)
            raise InputError(
                f"The experiment {self.name} has no option {name}."
                f"{f' Did you mean {near[0]}?' if near else ''} "
                f"`{ctx.command_path} --help` lists its options."
            ) from error


def command_of(declared: type[ExperimentOptions]) -> Callable[..., None]:
    """Return the function from which typer makes the command."""
    hints = get_type_hints(declared)
    shown = _shown(declared)

    def command(*, voice: Voice, **values: Any) -> None:
        context: typer.Context = values["context"]
        chosen = {
            one.name: _value(one, hints[one.name], values[one.name])
            for one in shown
            if str(context.get_parameter_source(one.name)).endswith("COMMANDLINE")
        }
        options = declared.from_command_line(chosen, quick=values.get("quick", False))
        output: Path | None = values["output"]
        if output is not None:
            output.mkdir(parents=True, exist_ok=True)
            check_writable(output / "table.csv", "table")
        html: Path | None = values["html"]
        check_outputs(None, html)
        with voice.progress(declared.beginning) as gauge:
            outcome = options.run(folder=output, progress=gauge, tell=gauge.tell)
        _deliver(voice, outcome, (output, html), asdict(options))

    parameters = [
        parameter_of("voice", Voice, inspect.Parameter.empty),
        parameter_of("context", typer.Context, inspect.Parameter.empty),
        *(_parameter_of(one, hints[one.name], declared.group) for one in shown),
        *_common_parameters(declared),
    ]
    command.__doc__ = inspect.getdoc(declared)
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    vars(command)["__signature__"] = inspect.Signature(parameters)
    return takes_options(command)


def _shown(declared: type[ExperimentOptions]) -> list[Field[Any]]:
    """The fields that are options: the experiment's own first, then those that all have."""
    common = {one.name for one in fields(ExperimentOptions)}
    shown = [one for one in fields(declared) if {"text", "shared"} & set(one.metadata)]
    return sorted(shown, key=lambda one: one.name in common)


def _parameter_of(one: Field[Any], kind: Any, group: str) -> inspect.Parameter:
    default = None if kind in _READ_AS else one.default
    if "shared" in one.metadata:
        return parameter_of(one.name, _SHARED[one.name], default)
    text: OptionText = one.metadata["text"]
    name = text.name or f"--{one.name.replace('_', '-')}"
    if one.default is True:
        name = f"{name}/--no-{name.removeprefix('--')}"
    metavar = "" if kind is bool else text.metavar or _METAVARS[kind]
    declaration = o.option(
        f"{name} {metavar}",
        text.help,
        text.group or group,
        show_default=default is not None and not text.names_default,
    )
    return parameter_of(one.name, Annotated[_READ_AS.get(kind, kind), declaration], default)


def _common_parameters(declared: type[ExperimentOptions]) -> Iterator[inspect.Parameter]:
    if declared.quick_text:
        quick = o.option("--quick", declared.quick_text, declared.group)
        yield parameter_of("quick", Annotated[bool, quick], False)
    folder = o.option("--output -o FOLDER", _FOLDER_TEXTS[declared.keeps_records], o.OUTPUT)
    yield parameter_of("output", Annotated[Path | None, folder], None)
    yield parameter_of("html", o.HtmlFile, None)


def _value(one: Field[Any], kind: Any, value: Any) -> Any:
    """What was typed, as the field holds it."""
    if kind == tuple[int, ...]:
        try:
            return tuple(int(part) for part in value.split(","))
        except ValueError:
            raise InputError(
                f"--{one.name} is {value!r}; give whole numbers with commas between them, such as "
                "6,12,24."
            ) from None
    return tuple(value) if kind in _READ_AS else value


def _deliver(
    voice: Voice,
    outcome: Outcome,
    files: tuple[Path | None, Path | None],
    options: dict[str, Any],
) -> None:
    """Print the outcome, write its files; leave with 2 where a model could not be measured."""
    from leadline.experiments.outcome.folder import write_outcome
    from leadline.experiments.outcome.picture import outcome_screen
    from leadline.experiments.outcome.rows import outcome_record

    output, html = files
    voice.show(outcome_screen(outcome).show)
    voice.emit(outcome.to_json)
    if output is not None:
        write_outcome(outcome, output, options=options)
        records = "records" if outcome.records else "record"
        voice.say(f"Picture, table and {records} are in {output}")
    if html is not None:
        write_outputs(outcome_record(outcome, options=options), None, html)
        say_outputs(voice, None, html)
    if outcome.failures:
        for why in outcome.failures.values() if voice.quiet or voice.as_json else ():
            print(f"leadline: {why}", file=sys.stderr)
        raise typer.Exit(2)
