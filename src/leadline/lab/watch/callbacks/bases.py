"""The base classes that trainers want of a callback, taken only from libraries that are in use.

A trainer checks whether a callback is of its own class. Importing every trainer that is installed
would cost seconds, so a callback gets the bases of those that have been imported when it is made, and
of all that are installed where none has.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from functools import cache
from typing import Any

from leadline.errors import MissingExtra

__all__ = ["bases_in_use", "plain_class", "with_bases"]

_LIBRARIES = {
    # The module whose presence shows that the library may be in use, and its base class. transformers
    # imports its trainer when somebody asks for it, which may be after the callback is made.
    "transformers": ("transformers.trainer_callback", "TrainerCallback"),
    "lightning.pytorch": ("lightning.pytorch.callbacks", "Callback"),
    "pytorch_lightning": ("pytorch_lightning.callbacks", "Callback"),
}
_MARK = "_leadline_joined_bases"


def bases_in_use() -> tuple[type, ...]:
    """Return the base classes of the trainers that have been imported, or of all installed ones."""
    names = [name for name in _LIBRARIES if name in sys.modules]
    names = names or [name for name in _LIBRARIES if _is_installed(name)]
    if not names:
        raise MissingExtra(
            "LeadlineCallback is for the Trainer of transformers and of Lightning, and neither is "
            "installed; install them with: pip install 'leadline[watch]', or put leadline.watch "
            "before a loop of your own."
        )
    places = [_LIBRARIES[name] for name in names]
    return tuple(getattr(importlib.import_module(module), name) for module, name in places)


def _is_installed(name: str) -> bool:
    return importlib.util.find_spec(name.partition(".")[0]) is not None


@cache
def with_bases(cls: type, bases: tuple[type, ...]) -> type:
    """Return the class with these bases behind its own, under its own name."""
    missing = tuple(base for base in bases if not issubclass(cls, base))
    if not missing:
        return cls
    names: dict[str, Any] = {name: getattr(cls, name) for name in ("__module__", "__qualname__")}
    return type(cls.__name__, (cls, *missing), names | {"__doc__": cls.__doc__, _MARK: True})


def plain_class(cls: type) -> type:
    """Return the class as it is written, which can be sent to another process."""
    return next(one for one in cls.__mro__ if _MARK not in vars(one))
