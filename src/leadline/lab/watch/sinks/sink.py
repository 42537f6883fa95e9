"""A sink takes the gauges of a watched run to a logger; the record holds them in any case.

    ll.watch(model, optimizer, "run.leadline", sinks=["wandb", "tensorboard(folder=runs/x)"])

To add one, put one file into this folder and one decorator into it:

    @SINKS.register("mine")
    class MySink: ...                # its options are the arguments of __init__

A sink looks for the run of its library at the first `write`, not before: by then the loop has
started its own, and `leadline/...` stands beside what the loop logs. It ends a run only if it has
started it. A library that is missing is noticed when the watch starts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, cast, runtime_checkable

from leadline.catalog import Catalog, Choice, split_choices
from leadline.errors import LabError, LeadlineError, shown, words_of
from leadline.lab.watch.fence import let_signals_pass
from leadline.record import Finding

__all__ = ["MOST_FAULTS", "SINKS", "Sink", "open_sinks", "warning_text"]


@runtime_checkable
class Sink(Protocol):
    """What a watch writes to beside its record."""

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Take the scalars of one step, by their names."""
        ...

    def warn(self, finding: Finding) -> None:
        """Take a warning."""
        ...

    def close(self) -> None:
        """Write out what is waiting, and let go of what the sink itself has opened."""
        ...


SINKS: Catalog[type[Sink]] = Catalog(
    "sink", package="leadline.lab.watch.sinks", group="leadline.sinks"
)
"""Every sink by its name."""

MOST_FAULTS = 3
"""A sink that fails so many times in a row gets nothing more."""


def open_sinks(asked: Any, *, note: Callable[[str], object]) -> list[Sink]:
    """Open what was asked for: names, choices or objects, one of them or several.

    Names with options may stand in one text, and paths in it without quotes:
    `"wandb,csv(path=runs/a.csv)"`. What cannot be opened, and a sink that fails later, becomes a
    sentence for `note`; none of the sinks returned raises.
    """
    several = isinstance(asked, Iterable) and not isinstance(asked, str | Mapping)
    given: list[Any] = list(cast("Iterable[Any]", asked)) if several else [asked]
    sinks: list[Sink] = []
    for one in given:
        try:
            for choice in split_choices(_quoted(one)) if isinstance(one, str) else [one]:
                sinks.append(_FencedSink(_open(choice), _name(choice), note))
        except Exception as error:  # a logger may fail in any way; the training goes on
            note(f"Nothing goes to {_name(one)}: {_words(error)}")
    return sinks


class _FencedSink:
    """Keeps the faults of a sink to itself; one that goes on failing is left alone."""

    def __init__(self, sink: Sink, name: str, note: Callable[[str], object]) -> None:
        self._sink = sink
        self._name = name
        self._note = note
        self._faults = 0

    def write(self, step: int, values: Mapping[str, float]) -> None:
        self._hand_on(lambda: self._sink.write(step, values))

    def warn(self, finding: Finding) -> None:
        self._hand_on(lambda: self._sink.warn(finding))

    def close(self) -> None:
        self._faults = 0
        self._hand_on(self._sink.close)

    def _hand_on(self, call: Callable[[], None]) -> None:
        if self._faults >= MOST_FAULTS:
            return
        try:
            call()
            self._faults = 0
        except Exception as error:
            let_signals_pass(error)
            self._faults += 1
            if self._faults in (1, MOST_FAULTS):
                more = "it gets nothing more" if self._faults == MOST_FAULTS else "the run goes on"
                self._note(f"The sink {self._name} failed, {more}: {_words(error)}")


def _words(error: Exception) -> str:
    if isinstance(error, LeadlineError):
        return words_of(error)
    return f"{type(error).__name__}: {words_of(error, first_line=True)}"


_PATH = re.compile(r"""=\s*([^\s"',()\[\]=]*[/\\~][^\s"',()\[\]=]*)""")


def _quoted(text: str) -> str:
    """Put quotes around paths: to the grammar of choices a slash is no part of a word."""
    return _PATH.sub(lambda match: f"={json.dumps(match[1])}", text)


def _open(asked: Any) -> Sink:
    if isinstance(asked, Mapping | Choice):
        return SINKS.build(asked)
    if isinstance(asked, type) or not isinstance(asked, Sink):
        raise LabError(
            f"a sink is a name such as 'wandb', a name with options such as 'csv(path=run.csv)', "
            f"or an object with write, warn and close, and this is {shown(asked)}."
        )
    return asked


def _name(asked: Any) -> str:
    if isinstance(asked, Mapping):
        return shown(asked.get("name"))
    if isinstance(asked, Choice):
        return asked.name
    return asked if isinstance(asked, str) else shown(asked)


def warning_text(finding: Finding) -> str:
    """Return a warning for people: what, since when, the likely cause, what to do now."""
    details = finding.details
    since = details.get("since")
    parts = [finding.verdict]
    if since is not None and since != details.get("step"):
        parts.append(f"Since step {since}.")
    if finding.cause:
        parts.append(f"Likely cause: {finding.cause.rstrip('.')}.")
    if words := finding.remedy.get("words"):
        parts.append(f"Now: {words}")
    if finding.code:
        parts.append(f"({finding.page})")
    return " ".join(parts)
