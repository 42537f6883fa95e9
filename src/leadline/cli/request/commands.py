"""From the function of a command to the options of its command line."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from typing import Annotated, Any, get_origin, get_type_hints

from leadline.cli.request import options as o
from leadline.cli.request.models import ModelRequest
from leadline.cli.screen.voice import Voice

__all__ = ["parameter_of", "takes_options"]

_VOICE = {"as_json": o.AsJson, "quiet": o.Quiet, "debug": o.Debug}


def takes_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the `voice` of a command by its options, and its `request` by the fields of that.

    The options of the voice, --json, --quiet and --debug, come last.
    """
    hints = get_type_hints(command, include_extras=True)
    parameters: list[inspect.Parameter] = []
    request: type[ModelRequest] | None = None
    for name, parameter in inspect.signature(command).parameters.items():
        kind = hints[name]
        if isinstance(kind, type) and issubclass(kind, ModelRequest):
            request = kind
            parameters += _options_of(kind)
        elif kind is not Voice:
            parameters.append(parameter_of(name, kind, parameter.default))
    parameters += [parameter_of(name, kind, False) for name, kind in _VOICE.items()]

    @wraps(command)
    def called(*, as_json: bool, quiet: bool, debug: bool, **values: Any) -> None:
        del debug  # main reads it
        if request is not None:
            names = [one.name for one in _options_of(request)]
            values["request"] = request(**{name: values.pop(name) for name in names})
        with Voice(as_json=as_json, quiet=quiet) as voice:
            command(voice=voice, **values)

    called.__annotations__ = {one.name: one.annotation for one in parameters}
    vars(called)["__signature__"] = inspect.Signature(parameters)
    return called


def _options_of(request: type[ModelRequest]) -> list[inspect.Parameter]:
    """The fields with the type of an option, as parameters of a command."""
    hints = get_type_hints(request, include_extras=True)
    return [
        parameter_of(one.name, hints[one.name], one.default)
        for one in fields(request)
        if get_origin(hints[one.name]) is Annotated
    ]


def parameter_of(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    """Return a parameter that is given by its name, as typer gives all of them."""
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )
