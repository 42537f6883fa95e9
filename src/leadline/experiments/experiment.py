"""An experiment is a function from models, one after the other, to an `Outcome`."""

from __future__ import annotations

from typing import Any

from leadline.catalog import Catalog

__all__ = ["EXPERIMENTS"]

EXPERIMENTS: Catalog[Any] = Catalog("experiment", package="leadline.experiments")
