"""Checks of the options that parts take: a wrong value gets one sentence that says what fits."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Sequence

from leadline.errors import RecipeError, join_words

__all__ = ["flag", "number", "one_of", "whole_number"]


def number(
    part: str,
    option: str,
    value: object,
    *,
    wanted: str = "a number",
    fits: Callable[[float], bool] = math.isfinite,
) -> float:
    """Return the value as a finite float for which `fits` is true; `wanted` says so in words."""
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        converted = float(value)
        if math.isfinite(converted) and fits(converted):
            return converted
    raise RecipeError(f"The option {option} of {part} is {value!r}; give {wanted}.")


def whole_number(part: str, option: str, value: object, *, least: int = 1) -> int:
    """Return the value if it is a whole number from `least` on, or refuse it."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= least:
        return value
    raise RecipeError(
        f"The option {option} of {part} is {value!r}; give a whole number from {least} on."
    )


def one_of(part: str, option: str, value: object, choices: Sequence[str]) -> str:
    """Return the value if it is one of the choices, or refuse it."""
    if isinstance(value, str) and value in choices:
        return value
    words = join_words(choices, last="or")
    raise RecipeError(f"The option {option} of {part} is {value!r}; choose {words}.")


def flag(part: str, option: str, value: object) -> bool:
    """Return the value if it is true or false, or refuse it."""
    if isinstance(value, bool):
        return value
    raise RecipeError(f"The option {option} of {part} is {value!r}; give true or false.")
