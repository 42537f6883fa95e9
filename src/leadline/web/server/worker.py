"""What a process of the lab does: it runs one call after the other, and ends with its server.

The process is started by `process.LabProcess`. Orders come on standard input, one line of JSON each:

    {"task": 3, "call": "module:function", "arguments": [...]}
    {"order": "stop" | "pause" | "continue"}

What a call returns goes to standard output, one line each: a word, the number of the task, JSON.

    ready 0 {}              it listens
    part 3 {...}            what the call returned, or one of what it yields, or told meanwhile
    refused 3 {"reason": "...", "knob": null}       the request cannot be carried out
    failed 3 {"reason": "..."}                      a fault of the program
    end 3 {}

A function that takes a `control` is handed the `JobControl`. Standard output is taken away from the
functions themselves, whose prints would be read as answers.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import queue
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from leadline.web.server.events import json_bytes

__all__ = ["JobControl", "JobStopped", "work"]


class JobStopped(BaseException):
    """The user has stopped the job; no handler of ordinary errors takes it for one."""


class JobControl:
    """How a running job hears of its user, and tells how far it is."""

    def __init__(self, tell: Callable[[Mapping[str, Any]], None]) -> None:
        self._tell = tell
        self._stop = threading.Event()
        self._go = threading.Event()
        self._go.set()

    def tell(self, event: Mapping[str, Any]) -> None:
        """Send an event from within a call, such as how far it is; raises where it was stopped."""
        self.pass_by()
        self._tell(event)

    @property
    def stopping(self) -> bool:
        """Whether the user has stopped the job."""
        return self._stop.is_set()

    @property
    def paused(self) -> bool:
        """Whether the job has to wait."""
        return not self._go.is_set()

    def pass_by(self) -> None:
        """Wait as long as the job is paused; raise `JobStopped` where it was stopped."""
        while not (self._go.wait(0.5) or self._stop.is_set()):
            pass
        if self._stop.is_set():
            raise JobStopped

    def obey(self, order: str) -> None:
        """Take an order of the user."""
        if order == "stop":
            self._stop.set()
        elif order == "pause":
            self._go.clear()
        elif order == "continue":
            self._go.set()


def work() -> None:
    """Listen, and run what is asked for, until the server is gone."""
    settings: dict[str, Any] = json.loads(sys.argv[1])
    answers = _take_output()
    lock = threading.Lock()
    number = 0

    def say(word: str, value: object) -> None:
        with lock:
            answers.write(b"%b %d %b\n" % (word.encode(), number, json_bytes(value)))
            answers.flush()

    tasks: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    control = JobControl(lambda event: say("part", event))
    threading.Thread(target=_listen, args=(tasks, control), daemon=True).start()
    try:
        _prepare(settings)
    except Exception as error:
        say("failed", {"reason": _sentence(error)})
        return
    say("ready", {})
    while True:
        task = tasks.get()
        number = task["task"]
        _run(task["call"], task["arguments"], control, say)


def _take_output() -> IO[bytes]:
    """Return the standard output for the answers; prints go where the errors go from now on."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return answers


def _listen(tasks: queue.SimpleQueue[dict[str, Any]], control: JobControl) -> None:
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if "order" in message:
            control.obey(message["order"])
        else:
            tasks.put(message)
    os._exit(0)  # the server has ended, in whatever this process is


def _prepare(settings: Mapping[str, Any]) -> None:
    if settings["nice"] and hasattr(os, "nice"):
        os.nice(settings["nice"])
    from leadline.catalog import load_plugin

    for file in settings["plugins"]:
        load_plugin(Path(file))
    for module in settings["warm"]:
        with suppress(ImportError):  # said to the first who asks for what is missing
            importlib.import_module(module)


def _run(
    call: str, arguments: list[Any], control: JobControl, say: Callable[[str, object], None]
) -> None:
    from leadline.errors import LeadlineError

    try:
        module, _, name = call.partition(":")
        function = getattr(importlib.import_module(module), name)
        more = {"control": control} if "control" in inspect.signature(function).parameters else {}
        result = function(*arguments, **more)
        if isinstance(result, Iterator):
            for part in result:
                say("part", part)
                control.pass_by()
        else:
            say("part", result)
    except JobStopped:
        say("end", {"reason": "stopped"})
        return
    except LeadlineError as error:
        say("refused", {"reason": str(error), "knob": getattr(error, "knob", None)})
        return
    except Exception as error:
        traceback.print_exc()
        say("failed", {"reason": _sentence(error)})
        return
    say("end", {"reason": "finished"})


def _sentence(error: Exception) -> str:
    from leadline.errors import LeadlineError, words_of

    if isinstance(error, LeadlineError):
        return str(error)
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return "The memory did not suffice; try something smaller."
    return f"This is a fault of Leadline or of the model's own code: {type(error).__name__}, {words_of(error)}"
