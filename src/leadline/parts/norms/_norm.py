"""What a norm is: a module that takes and gives [..., width]. An entry takes `width` and its options."""

from __future__ import annotations

from typing import Any

from leadline.catalog import Catalog

__all__ = ["NORMS"]

NORMS: Catalog[Any] = Catalog(
    "norm", package="leadline.parts.norms", group="leadline.norms", arguments=("width",)
)
