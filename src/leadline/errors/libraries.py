"""The import of optional libraries, and of large ones."""

from __future__ import annotations

import gc
import importlib
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from leadline.errors.exceptions import MissingExtra

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["require", "without_collector"]


def require(module_name: str, *, extra: str) -> ModuleType:
    """Import an optional library, or raise `MissingExtra` that names the extra to install.

    An installed library that is broken inside keeps its own ImportError.
    """
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        top = module_name.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != top:
            raise
        raise MissingExtra(
            f"This needs the library {top}, which is not installed; "
            f"install it with: pip install 'leadline[{extra}]'"
        ) from error


@contextmanager
def without_collector() -> Generator[None, None, None]:
    """Keep the collector of cycles from running while much is imported or built.

    An import makes objects that stay: to walk through them again and again while more arrive is a
    fourth of the time that transformers takes, and frees nothing.
    """
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()
