"""Checks of the options that parts take: a wrong value gets one sentence that says what fits."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Sequence

from leadline.errors import RecipeError, join_words

__all__ = ["flag", "number", "one_of", "whole"]


def number(
    part: str,
    option: str,
    value: object,
    *,
    wanted: str = "a number",
    fits: Callable[[float], bool] = math.isfinite,
) -> float:
    """The value as a finite float for which `fits` is true; `wanted` says so in words."""
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        found = float(value)
        if math.isfinite(found) and fits(found):
            return found
    raise RecipeError(f"The option {option} of {part} is {value!r}; give {wanted}.")


def whole(part: str, option: str, value: object, *, least: int = 1) -> int:
    """The value, a whole number from `least` on."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= least:
        return value
    raise RecipeError(
        f"The option {option} of {part} is {value!r}; give a whole number from {least} on."
    )


def one_of(part: str, option: str, value: object, choices: Sequence[str]) -> str:
    """The value, which is one of some words."""
    if isinstance(value, str) and value in choices:
        return value
    words = join_words(choices, last="or")
    raise RecipeError(f"The option {option} of {part} is {value!r}; choose {words}.")


def flag(part: str, option: str, value: object) -> bool:
    """The value, which is true or false."""
    if isinstance(value, bool):
        return value
    raise RecipeError(f"The option {option} of {part} is {value!r}; give true or false.")
