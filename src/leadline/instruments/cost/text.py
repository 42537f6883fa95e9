"""An estimate in words: the answer in one sentence, then a table of its parts. Needs no torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from leadline.instruments.cost.uncertainty import UNCERTAINTY
from leadline.record.words.numbers import in_bytes

if TYPE_CHECKING:
    from leadline.instruments.cost.result import CostEstimate, CostPart

__all__ = ["answer", "as_count", "as_seconds", "lines", "table_rows"]

NOTABLE = 0.05
"""Parts of a smaller share of the time are not named in the sentence."""
_SHARES = ((0.95, "nearly all"), (0.7, "three quarters"), (0.6, "two thirds"), (0.4, "half"),
           (0.29, "a third"), (0.2, "a quarter"))  # fmt: skip


def answer(estimate: CostEstimate) -> str:
    """How long, how much memory, and what takes it."""
    main = f"About {as_seconds(estimate.seconds)} and {in_bytes(estimate.memory)} on this machine"
    passes = ", and ".join(_passes(estimate))
    return f"{main}{': ' if passes else ''}{passes}{_largest(estimate)}."


def _passes(estimate: CostEstimate) -> Iterator[str]:
    each = {part.name: part for part in estimate.parts}
    forward, backward = each.get("forward"), each.get("backward")
    if forward is not None:
        words = f"1 forward pass of {as_seconds(forward.seconds)}"
        if backward is not None:
            words = (
                f"1 forward and 1 backward pass of {as_seconds(forward.seconds)} and "
                f"{as_seconds(backward.seconds)}"
            )
        yield words
    anatomy = estimate.passes.get("anatomy_forward", 0)
    if anatomy:
        small = f"{anatomy - 1} small {'pass' if anatomy == 2 else 'passes'} and "
        one = "one on the inputs" if anatomy > 1 else "one more on the inputs"
        yield f"{small if anatomy > 1 else ''}{one} to read the anatomy"


def _largest(estimate: CostEstimate) -> str:
    passes = {"forward", "backward", "anatomy"}
    others = [part for part in estimate.parts if part.name not in passes]
    largest = max(others, key=lambda part: part.seconds, default=None)
    if largest is None or not estimate.seconds:
        return ""
    share = largest.seconds / estimate.seconds
    words = next((words for least, words in _SHARES if share >= least), None)
    if words is None:
        return f"; {largest.name} takes {share:.0%} of it" if share >= NOTABLE else ""
    return f"; {largest.name} takes {words} of it"


def lines(estimate: CostEstimate) -> Iterator[str]:
    """What stands below the table: on what it rests, and what is not in it."""
    rates = estimate.rates
    products = max(rates["products"].values())
    threads = rates["threads"]
    yield (
        f"Rates of this machine ({rates['processor']}, {threads} "
        f"{'thread' if threads == 1 else 'threads'}), measured just now: {products / 1e9:.0f} Gflop/s in "
        f"matrix products, {rates['attention'] / 1e9:.0f} in fused attention, "
        f"{min(rates['bandwidth'].values()) / 1e9:.0f} GB/s, {1e6 * rates['call']:.1f} µs an operation."
    )
    yield (
        f"Memory: {in_bytes(estimate.weights)} of weights and {in_bytes(estimate.added)} beside them "
        f"at the highest. Time and memory may be off by {UNCERTAINTY:.0%}."
    )
    if estimate.undeclared:
        names = ", ".join(estimate.undeclared)
        yield f"Not in these numbers: {names}, which declare no cost."
    yield from estimate.remarks


def table_rows(estimate: CostEstimate) -> list[tuple[str, ...]]:
    """part, passes, flops, bytes, memory, seconds; the sum in the last row."""
    return [_row(part) for part in (*estimate.parts, estimate.together)]


def _row(part: CostPart) -> tuple[str, ...]:
    passes = sum(part.passes.values())
    return (
        part.name,
        str(passes) if passes else "",
        as_count(part.flops),
        in_bytes(part.bytes),
        in_bytes(part.memory) if part.memory else "",
        as_seconds(part.seconds),
    )


def as_seconds(seconds: float) -> str:
    """A duration in words.

    >>> as_seconds(0.0042), as_seconds(14.2), as_seconds(200), as_seconds(9000)
    ('4.2 ms', '14 s', '3.3 min', '2.5 h')
    """
    if seconds < 0.0995:
        return f"{1000 * seconds:.2g} ms"
    if seconds < 99.5:
        return f"{seconds:.2g} s"
    return f"{seconds / 60:.2g} min" if seconds < 5970 else f"{seconds / 3600:.2g} h"


def as_count(count: float) -> str:
    """A number of operations.

    >>> as_count(2.58e11), as_count(0)
    ('2.6e11', '')
    """
    if not count:
        return ""
    mantissa, exponent = f"{count:.1e}".split("e")
    return f"{mantissa}e{int(exponent)}"
