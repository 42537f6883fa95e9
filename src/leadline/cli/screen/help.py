"""The help of a command: plain text, options in groups, readable at any width."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperCommand

__all__ = ["GroupedCommand", "option_groups"]


class GroupedCommand(TyperCommand):
    """A command whose help shows its options group by group."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments and the groups of options."""
        for group, rows in option_groups(self, ctx).items():
            with formatter.section(group):
                formatter.write_dl(rows)


def option_groups(command: Any, context: typer.Context) -> dict[str, list[tuple[str, str]]]:
    """Return the arguments and options of a command, (spelling, help), by group."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for parameter in command.get_params(context):
        row = parameter.get_help_record(context)
        if row is None:
            continue
        if parameter.param_type_name == "argument":
            row = (parameter.metavar, parameter.help)
            group = "Arguments"
        else:
            group = getattr(parameter, "rich_help_panel", None) or "Options"
        groups.setdefault(group, []).append(row)
    rest = groups.pop("Options", [])
    return {**groups, "Options": rest} if rest else groups
