"""Which fields belong to the recipe and which to the training: they share one namespace."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from leadline.errors import LabError, did_you_mean
from leadline.lab.training import Training
from leadline.parts import Recipe

__all__ = ["known_fields", "split_fields"]


def known_fields() -> tuple[str, ...]:
    """Every field of a recipe and of a training; no name is in both."""
    return (*(field.name for field in dataclasses.fields(Recipe)), *Training.fields())


def split_fields(found: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fields of the recipe, and those of the training."""
    known = known_fields()
    for name in found:
        if name not in known:
            raise LabError(
                f"Neither a recipe nor a training has a field {name!r}."
                f"{did_you_mean(name, known)} Fields: {', '.join(known)}."
            )
    mine = Training.fields()
    of_training = {name: value for name, value in found.items() if name in mine}
    return {n: v for n, v in found.items() if n not in mine}, of_training
