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


def split_fields(fields: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fields of the recipe, and those of the training."""
    names = known_fields()
    for name in fields:
        if name not in names:
            raise LabError(
                f"Neither a recipe nor a training has a field {name!r}."
                f"{did_you_mean(name, names)} Fields: {', '.join(names)}."
            )
    of_training = Training.fields()
    training = {name: value for name, value in fields.items() if name in of_training}
    return {n: v for n, v in fields.items() if n not in of_training}, training
