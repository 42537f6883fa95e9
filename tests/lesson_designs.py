"""Designs of the playground, measured: what the figures of lessons are held to."""

from functools import cache

import numpy as np

from leadline.web.playground.curves import curves_of
from leadline.web.playground.design import Design


def recipe_of(design):
    """The recipe of a design; raises a RecipeError where it cannot be built."""
    return Design.from_json(design).recipe()


def curve_of(design, quantity):
    """The values of one quantity over depth; a residual is returned as its log10.

    A figure draws one line of a quantity; of the heads' norms it is their mean that a caption means.
    """
    measured = _measured(Design.from_json(design))
    if quantity == "tokens.relative_residual":
        return np.asarray(measured.gauges.residual.log10, dtype=float)
    line = measured.curve(quantity).series[0]
    return np.asarray(line.values, dtype=float)


@cache
def _measured(design):
    return curves_of(design)


def number_of(design, quantity, read):
    """One number of a curve, read as a lesson says."""
    values = curve_of(design, quantity)
    if quantity == "tokens.relative_residual":
        if read == "log10 last":
            return values[-1]
        values = 10.0**values
    first, last, least, largest = values[0], values[-1], values.min(), values.max()
    return {
        "first": first,
        "last": last,
        "least": least,
        "largest": largest,
        "first over last": first / last,
        "last over first": last / first,
        "largest over least": largest / least,
    }[read]
