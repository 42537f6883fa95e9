"""Lines over depth that several rules ask for: gradients free of scale, writes by role, a fresh start.

The gradient at the stream alone says little: a stream that is twice as large has half the gradient. The
product |g_l| |x_l| has no scale, and for a map that is homogeneous between two sites it is the same at
both (Euler), so that it changes only where layers really amplify or damp.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from leadline.reading.diagnosis.case import Case

__all__ = [
    "FLOAT32_EPS",
    "as_drawn",
    "free_gradients",
    "is_finite_line",
    "line_of",
    "twin_line_of",
    "writes_of",
]

FLOAT32_EPS = 2.0**-23
"""Numbers smaller than this beside others do not change their sum in float32."""


def line_of(
    case: Case, quantity: str, stack: str, point: str = "stream", statistic: str | None = None
) -> dict[int, float]:
    """The numbers of a quantity over the depth of one stack, by layer."""
    return case.lines(quantity, statistic).get((stack, point), {})


def twin_line_of(case: Case, quantity: str, stack: str, point: str = "stream") -> dict[int, float]:
    """The same of the twin; empty without one."""
    return case.twin_lines(quantity).get((stack, point), {})


def writes_of(
    case: Case, quantity: str, stack: str, *, twin: bool = False
) -> dict[str, dict[int, float]]:
    """The numbers of a quantity of writes by role and layer."""
    lines = case.twin_lines(quantity) if twin else case.lines(quantity)
    return {point: line for (name, point), line in lines.items() if name == stack}


def free_gradients(case: Case, stack: str, *, twin: bool = False) -> dict[int, float]:
    """|g_l| |x_l| after every block: layer 0 is left out, where the embedding has a scale of its own."""
    read = twin_line_of if twin else line_of
    gradients, norms = read(case, "gradient.stream", stack), read(case, "stream.norm", stack)
    return {at: g * norms[at] for at, g in gradients.items() if at >= 1 and at in norms}


def is_finite_line(line: Mapping[int, float]) -> bool:
    """Whether a line has numbers, and all of them are finite."""
    return bool(line) and all(math.isfinite(value) for value in line.values())


def as_drawn(case: Case) -> bool:
    """Whether the model is as it was drawn, or there is no way to know and the inputs are no language."""
    state = case.at_initialisation
    return bool(state) if state is not None else not case.natural
