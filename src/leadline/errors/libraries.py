"""The import of optional libraries."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from leadline.errors.exceptions import MissingExtra

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["require"]


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
