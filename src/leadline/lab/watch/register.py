"""The watches of this process: by their files, until they are closed or the process ends.

A watch ends with what it watches. Hooks of its optimizer keep it alive; where it was given none, the
model does.

A process that was forked off, such as a worker of a data loader, has copies of them. It must not
write: the file, its locks and the loop are those of the process that it came from.
"""

from __future__ import annotations

import atexit
import os
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from torch import nn

from leadline.record import Record

__all__ = ["REGISTER", "Register", "keep_with"]


class _Watched(Protocol):
    @property
    def place(self) -> Path | None: ...

    @property
    def record(self) -> Record | None: ...

    def close(self, error: BaseException | None = None) -> None: ...

    def disown(self) -> None: ...


class Register:
    """Knows every watch that is not closed, without keeping it alive."""

    def __init__(self) -> None:
        self._open: weakref.WeakSet[_Watched] = weakref.WeakSet()
        self._records: dict[int, Record | None] = {}
        """Kept, because a record that is collected with its watch may be closed before it."""

    def enter(self, one: _Watched) -> None:
        """Take a watch in."""
        self._open.add(one)
        self._records[id(one)] = one.record

    def leave(self, one: _Watched) -> None:
        """Forget a watch."""
        self._open.discard(one)
        self._records.pop(id(one), None)

    def of_file(self, path: Path) -> _Watched | None:
        """The watch that writes a file."""
        file = path.resolve()
        found = [one for one in self._open if one.place is not None and one.place.resolve() == file]
        return found[0] if found else None

    def close_all(self) -> None:
        """End all watches: the process is about to end."""
        error = _what_ends_the_process()
        for one in list(self._open):
            one.close(error)

    def disown_all(self) -> None:
        """In a process that was forked off: leave everything to the one that it came from."""
        for one in list(self._open):
            one.disown()
            _LEFT_ALONE.append(one)
        self._open.clear()


class _Anchor:
    """Keeps something as long as the module that has it; copies of the module keep nothing."""

    def __init__(self, kept: object) -> None:
        self.kept = kept

    def __deepcopy__(self, memo: dict[int, Any]) -> None:
        return None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()  # a file that holds the model can be read without this library


def keep_with(module: nn.Module, kept: object) -> Callable[[], object]:
    """Keep an object alive as long as a module; return the function that lets it go."""
    name = f"_leadline_watch_{id(kept)}"
    attributes = vars(module)
    attributes[name] = _Anchor(kept)
    reference = weakref.ref(module)

    def let_go() -> None:
        one = reference()
        if one is not None:
            vars(one).pop(name, None)

    return let_go


_LEFT_ALONE: list[_Watched] = []
"""Kept in a forked process, so that it closes no file that is another one's."""
REGISTER = Register()
atexit.register(REGISTER.close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=REGISTER.disown_all)


def _what_ends_the_process() -> BaseException | None:
    """The exception that nobody caught. In a notebook the last one may be long ago."""
    if hasattr(sys, "ps1") or "ipykernel" in sys.modules:
        return None
    return getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
