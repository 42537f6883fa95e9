"""`leadline reproduce`: noted experiments once more, each with its table and its picture."""

from __future__ import annotations

import typer

from leadline.cli._help import GroupedCommand
from leadline.cli.experiments.attention_spectra import attention_spectra
from leadline.cli.experiments.depth_laws import depth_laws
from leadline.cli.experiments.fine_tuning import fine_tuning
from leadline.cli.experiments.gradient_flow import gradient_flow
from leadline.cli.experiments.layer_dropping import layer_dropping
from leadline.cli.experiments.learning_identity import learning_identity
from leadline.cli.experiments.lipschitz_cost import lipschitz_cost
from leadline.cli.experiments.ode_view import ode_view
from leadline.cli.experiments.rank_collapse import rank_collapse

__all__ = ["reproduce"]

reproduce = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Do a noted experiment again: table, picture, records.",
)
reproduce.command("attention-spectra", cls=GroupedCommand)(attention_spectra)
reproduce.command("rank-collapse", cls=GroupedCommand)(rank_collapse)
reproduce.command("lipschitz-cost", cls=GroupedCommand)(lipschitz_cost)
reproduce.command("gradient-flow", cls=GroupedCommand)(gradient_flow)
reproduce.command("depth-laws", cls=GroupedCommand)(depth_laws)
reproduce.command("learning-identity", cls=GroupedCommand)(learning_identity)
reproduce.command("ode-view", cls=GroupedCommand)(ode_view)
reproduce.command("layer-dropping", cls=GroupedCommand)(layer_dropping)
reproduce.command("fine-tuning", cls=GroupedCommand)(fine_tuning)
