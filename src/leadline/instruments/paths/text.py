"""Paths by length in sentences: along how short paths half of the output comes, and the loss there.

Half of a tensor comes along paths of at most k attention layers if the shares of all components
with at most k hops, biases among them, add up to 1/2 or more, and so they do for every larger k:
shares are signed, and a sum may fall again.
"""

from __future__ import annotations

import math
from itertools import accumulate
from typing import TYPE_CHECKING

from leadline.record.words.numbers import format_number

if TYPE_CHECKING:
    from leadline.instruments.paths.result import Paths, Shares

__all__ = ["answer", "half_length", "most_important"]


def answer(paths: Paths) -> list[str]:
    """Say in up to three sentences along which paths the output comes."""
    half = half_length(paths.output)
    if half is None:
        return []
    first = f"Half of the output comes along paths {_at_most(half, paths.depth)}"
    logits = None if paths.logits is None else half_length(paths.logits)
    if logits is not None:
        along = "no attention layer" if logits == 0 else f"at most {logits}"
        first += f"; half of the logits, along paths of {along}"
    sentences = [f"{first}."]
    largest = max(range(len(paths.share)), key=lambda length: abs(paths.share[length]))
    second = f"The largest share of the output, {paths.share[largest]:.0%}, has {_hops(largest)}"
    if paths.output.bias_share:
        second += f"; biases give {paths.output.bias_total:.0%}"
    sentences.append(f"{second}.")
    most = half if logits is None else logits
    if paths.loss_at_most is not None and paths.loss is not None:
        here = paths.loss_at_most[min(most, len(paths.loss_at_most) - 1)]
        if math.isfinite(here) and math.isfinite(paths.loss):
            sentences.append(
                f"With at most {_hops(most)} the loss is {format_number(here)}; that of the model "
                f"is {format_number(paths.loss)}."
            )
    return sentences


def half_length(shares: Shares) -> int | None:
    """The least k from which on components of at most k hops give half; None if none do."""
    biases = shares.bias_share or (0.0,) * len(shares.share)
    sums = list(accumulate(a + b for a, b in zip(shares.share, biases, strict=True)))
    short = [length for length, total in enumerate(sums) if not total >= 0.5]
    least = short[-1] + 1 if short else 0
    return least if least < len(sums) else None


def most_important(paths: Paths, rows: list[list[str]], most: int) -> list[list[str]]:
    """Keep the `most` rows of a table with the largest shares, in their order; biases among them."""

    def weight(row: list[str]) -> float:
        length = row[0].partition("-")[0]
        if not length.isdigit():
            return math.inf
        tensors = [one for one in (paths.output, paths.residual, paths.logits) if one is not None]
        return max(
            (abs(one.share[int(length)]) for one in tensors if int(length) < len(one.share)),
            default=0.0,
        )

    best = sorted(range(len(rows)), key=lambda at: -weight(rows[at]))[:most]
    return [rows[at] for at in sorted(best)]


def _at_most(hops: int, depth: int) -> str:
    if hops == 0:
        return "through no attention layer"
    of = "" if depth == 1 else f" of {depth}"
    return f"of at most {hops}{of} attention {'layer' if hops == depth == 1 else 'layers'}"


def _hops(count: int) -> str:
    return f"{count} hop" if count == 1 else f"{count} hops"
