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
    """Say in up to three sentences along which paths the output comes, and what the loss is there."""
    tensors = {"output": paths.output, "logits": paths.logits}
    halves = {
        name: half
        for name, shares in tensors.items()
        if shares is not None and (half := half_length(shares)) is not None
    }
    if "output" not in halves:
        return []
    sentences = [f"{'; '.join(_half(name, k, paths) for name, k in halves.items())}."]
    sentences[0] = sentences[0][:1].upper() + sentences[0][1:]
    largest = max(range(len(paths.share)), key=lambda length: abs(paths.share[length]))
    second = f"The largest share of the output, {paths.share[largest]:.0%}, has {_hops(largest)}"
    if paths.output.bias_share:
        second += f"; biases give {paths.output.bias_total:.0%}"
    sentences.append(f"{second}.")
    if paths.loss_at_most is not None and paths.loss is not None:
        most = halves.get("logits", halves["output"])
        loss = paths.loss_at_most[most]
        if math.isfinite(loss) and math.isfinite(paths.loss):
            with_them = f"With at most {_hops(most)}" if most else "Without any hop"
            sentences.append(
                f"{with_them} the loss is {format_number(loss)}; that of the model is "
                f"{format_number(paths.loss)}."
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


def _half(name: str, hops: int, paths: Paths) -> str:
    """Say along which paths half of a tensor comes."""
    if hops == 0:
        return f"half of the {name} or more comes along paths through no attention layer"
    layers = "attention layer" if paths.depth == 1 else "attention layers"
    return f"half of the {name} comes along paths of at most {hops} of {paths.depth} {layers}"


def _hops(count: int) -> str:
    return f"{count} hop" if count == 1 else f"{count} hops"
