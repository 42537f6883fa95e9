"""`leadline reproduce`: noted experiments once more, each with its table and its picture."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from leadline.cli.experiments.attention_spectra import attention_spectra
from leadline.cli.experiments.depth_laws import depth_laws
from leadline.cli.experiments.depth_limits import depth_limits
from leadline.cli.experiments.fine_tuning import fine_tuning
from leadline.cli.experiments.gradient_flow import gradient_flow
from leadline.cli.experiments.layer_dropping import layer_dropping
from leadline.cli.experiments.learning_identity import learning_identity
from leadline.cli.experiments.lipschitz_cost import lipschitz_cost
from leadline.cli.experiments.ode_view import ode_view
from leadline.cli.experiments.rank_collapse import rank_collapse
from leadline.cli.request import options as o
from leadline.cli.screen.columns import two_columns
from leadline.cli.screen.help import GroupedCommand
from leadline.cli.screen.voice import Voice

__all__ = ["PRESETS", "reproduce"]

PRESETS: dict[str, tuple[Callable[..., None], str]] = {
    "attention-spectra": (attention_spectra, "figures 5, 6 and 7 of the deep-dive note"),
    "rank-collapse": (rank_collapse, "figure 8 of the deep-dive note"),
    "gradient-flow": (
        gradient_flow,
        "what the shortcuts and summary notes say of Pre- and Post-LN",
    ),
    "depth-limits": (depth_limits, "the depth tables of the card and summary notes"),
    "learning-identity": (learning_identity, "the exercise of the card note"),
    "ode-view": (ode_view, "the differential equation of the shortcuts note"),
    "lipschitz-cost": (lipschitz_cost, "the price of a strong MLP in the deep-dive note"),
    "layer-dropping": (layer_dropping, "layers turned off, in the card note"),
    "fine-tuning": (fine_tuning, "when a residual hinders, in the summary note"),
    "depth-laws": (depth_laws, "published laws of signal and gradient over depth"),
}
"""Every experiment, and what it does again."""

reproduce = typer.Typer(
    rich_markup_mode=None,
    invoke_without_command=True,
    help="Do a noted experiment again: table, picture, records.",
)


@reproduce.callback()
def list_presets(
    context: typer.Context,
    listing: Annotated[
        bool, typer.Option("--list", help="Name the experiments and the figures they redo.")
    ] = False,
    as_json: o.AsJson = False,
    quiet: o.Quiet = False,
    debug: o.Debug = False,  # main reads it
) -> None:
    """Do a noted experiment again: table, picture, records."""
    if context.invoked_subcommand is not None:
        return
    if not (listing or as_json):
        typer.echo(context.get_help())
        raise typer.Exit(2)
    with Voice(as_json=as_json, quiet=quiet) as voice:
        voice.emit(lambda: {"experiments": [_told(name) for name in PRESETS]})
        rows = [(name, f"{_told(name)['summary']} ({of})") for name, (_, of) in PRESETS.items()]
        voice.show(lambda console: two_columns(rows, console))
        voice.say("\n`leadline reproduce NAME` runs one; NAME --help tells its options.")


def _told(name: str) -> dict[str, Any]:
    command, of = PRESETS[name]
    summary = (inspect.getdoc(command) or "").partition("\n")[0]
    return {"name": name, "redoes": of, "summary": summary}


for _name, (_command, _) in PRESETS.items():
    reproduce.command(_name, cls=GroupedCommand)(_command)
