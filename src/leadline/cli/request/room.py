"""Load a model for an instrument, unless its memory cannot do: that is said before anything is read."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leadline.cli.request.models import ModelRequest
    from leadline.cli.screen.voice import Voice
    from leadline.instruments.costs import Instrument
    from leadline.models.loading import LoadedModel

__all__ = ["load_with_room"]


def load_with_room(
    voice: Voice, request: ModelRequest, instrument: Instrument, *, anyway: bool, **arguments: Any
) -> LoadedModel:
    """The loaded model; MemoryLack where the instrument, asked with these arguments, cannot fit.

    That is found out on a model without weights. A function has to run to say what it returns, so
    it is loaded first. `measure` remarks itself on what may not fit.
    """
    if anyway or _surely_fits(request):
        return request.load()
    empty = _described(request)
    if empty is None:
        return request.load()
    remark = _check(request, empty, instrument, arguments)
    if remark is not None and instrument != "measure":
        voice.note(remark)
    loaded = request.load()
    if "tokenizer" in vars(empty):  # read already
        return replace(loaded, read_tokenizer=lambda: empty.tokenizer)
    return loaded


def _surely_fits(request: ModelRequest) -> bool:
    """Whether inputs of a size that was typed are small beside any machine's memory.

    Most are, and nothing is run for these: shapes alone are looked at.
    """
    size = request.typed_size()
    if size is None:
        return False
    import torch

    from leadline.instruments.cost.room import free_on, surely_fits

    empty = _described(request, runnable=False)
    try:
        free = free_on(torch.device(request.device))
    except (OSError, KeyError, RuntimeError, AssertionError):
        return False
    return empty is not None and surely_fits(
        empty.model, size, free, weights="whole", directions=True
    )


def _described(request: ModelRequest, *, runnable: bool = True) -> LoadedModel | None:
    from leadline.errors import LoadingError
    from leadline.models.loading.sources import is_hub_name

    try:
        return request.described(runnable=runnable)
    except LoadingError:
        if request.model is not None and is_hub_name(request.model):
            raise  # to ask the hub once more would give no other answer
        return None  # what is wrong is said where the model is loaded


def _check(
    request: ModelRequest, empty: LoadedModel, instrument: Instrument, arguments: dict[str, Any]
) -> str | None:
    """A remark where memory may not do; MemoryLack where it will not."""
    import torch

    from leadline.errors import LeadlineError
    from leadline.instruments.cost.room import free_on, size_of, surely_fits
    from leadline.models.loading.request import no_trace
    from leadline.models.loading.sources import is_streamable

    with no_trace(request.seed, quiet=False):
        try:
            inputs = request.inputs(empty)
            free = free_on(torch.device(request.device))
        except (LeadlineError, OSError, KeyError, RuntimeError, AssertionError):
            return None
        # Most requests are small beside the memory of any machine: those cost nothing more.
        if surely_fits(empty.model, size_of(inputs), free, weights="whole", directions=True):
            return None
        from leadline.instruments.costs import Question, refuse_before_loading

        on_files = request.model is not None and request.device == "cpu"
        return refuse_before_loading(
            empty,
            inputs,
            Question(instrument, seed=request.seed, **arguments),
            free=free,
            weights="streamed" if request.stream else "whole",
            streamable=on_files
            and request.stream is not False
            and is_streamable(request.model or ""),
        )
