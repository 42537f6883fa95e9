"""What a preset is: a function `(*, quick) -> Sweep`, quick for minutes, otherwise for a night."""

from __future__ import annotations

from typing import Protocol

from leadline.catalog import Catalog
from leadline.lab.grid import Sweep

__all__ = ["PRESETS", "Preset"]


class Preset(Protocol):
    """Makes the sweep; `quick` asks for the one that takes minutes."""

    def __call__(self, *, quick: bool) -> Sweep: ...


PRESETS: Catalog[Preset] = Catalog(
    "preset", package="leadline.lab.presets", group="leadline.presets", arguments=("quick",)
)
