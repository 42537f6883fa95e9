"""How large the first token is beside the others.

Its norm is not stored by itself. It follows from two means: with N tokens in E examples,
N mean = E first + (N - E) mean_without_first, where `first` is the mean over the first tokens of
the examples.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from leadline.record.provenance import number_at
from leadline.record.words.places import places_text
from leadline.record.words.summary import ROBUST, leading_quantity

if TYPE_CHECKING:
    from leadline.record.record import Record
    from leadline.record.rows.profile import Profile

__all__ = ["MASSIVE", "first_token_ratio", "first_token_sentence"]

MASSIVE = 10.0
"""From this ratio to the median of the others on, the first token counts as massive."""


def first_token_ratio(record: Record) -> Profile | None:
    """Return the norm of the first token over the median norm of the others, by layer."""
    tokens = number_at(record.provenance, "input", "tokens")
    examples = number_at(record.provenance, "input", "examples")
    quantity = leading_quantity(record, "stream")
    if not tokens or not examples or examples >= tokens or len(record.stacks) != 1 or not quantity:
        return None
    lines = {profile.statistic: profile for profile in record.profiles(quantity.name)}
    wanted = ("mean", "mean_without_first", ROBUST)
    if any(one not in lines for one in wanted):
        return None
    mean, others, median = (lines[one] for one in wanted)
    if not mean.layers == others.layers == median.layers:
        return None
    with np.errstate(all="ignore"):
        first = (tokens * mean.values - (tokens - examples) * others.values) / examples
        ratio = first / median.values
    return type(mean)(
        quantity="first token over median",
        statistic="value",
        stack=mean.stack,
        point=mean.point,
        sublayer=None,
        layers=mean.layers,
        values=ratio,
    )


def first_token_sentence(record: Record) -> str:
    """Say where the first token is massive; empty where it is nowhere."""
    ratio = first_token_ratio(record)
    if ratio is None:
        return ""
    finite = {
        layer: float(value)
        for layer, value in zip(ratio.layers, ratio.values, strict=True)
        if math.isfinite(value)
    }
    heavy = [layer for layer, value in finite.items() if value >= MASSIVE]
    if not heavy:
        return ""
    where = places_text(heavy, ratio.layers, onward=True)
    peak = f"{float(f'{max(finite.values()):.2g}'):g}"
    return f"The first token carries up to {peak} times the median norm of the others {where}."
