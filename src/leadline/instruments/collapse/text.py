"""What is printed of a record of `collapse`: the answer in a sentence, then the layers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from leadline.record.words.numbers import format_number
from leadline.record.words.screen import MOST_ROWS, Screen, Sentence
from leadline.record.words.table import Row, TableColumn, TextTable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from leadline.instruments.collapse.result import Collapse

__all__ = ["answer", "collapse_screen"]

EQUAL = -6.0
"""log10 of the relative residual below which tokens count as equal: the rounding of float32."""
ALIKE = -1.0
"""log10 of how far the relative residual has to fall before tokens count as more alike."""
CUBIC = (2.9, 3.1)
"""Between which ratios of logarithms a collapse is called cubic."""
SMALL = -1.0
"""log10 of the residual from which on the ratio of logarithms says something: at 1 it is 0 / 0."""
STEADY = 0.98
"""The least R² of a straight line through the logarithms that is called a constant factor."""


_COLUMNS = (
    TableColumn("layer", right=True),
    TableColumn("log10 residual", right=True),
    TableColumn("log10 relative", right=True),
    TableColumn("step", right=True, notes=("step: log10 of the factor of the layer",)),
    TableColumn(
        "ratio", right=True, notes=("ratio: of the logarithms, 3 where the collapse is cubic",)
    ),
    TableColumn("error", right=True, notes=("error: relative, of the residual, estimated",)),
)


def collapse_screen(result: Collapse, *, everything: bool) -> Screen:
    """Return the answer, the layers, and how to see the rest; of several examples their ends."""
    if not result.examples:
        return Screen((Sentence(answer(result), "bold"), Sentence(), *_layers(result, everything)))
    parts = _examples(result)
    if everything:
        for number, one in enumerate(result.examples, 1):
            parts += [Sentence(), Sentence(f"example {number}", "bold"), *_layers(one, True)]
    return Screen(tuple(parts))


def _layers(result: Collapse, everything: bool) -> list[Sentence | TextTable]:
    """A row per layer, the legend, and the remarks unless the answer says the same."""
    sites = result.depth + 1
    chosen = range(sites) if everything else _chosen(sites)
    table = TextTable(_COLUMNS, tuple(Row(_cells(result, layer)) for layer in chosen))
    parts: list[Sentence | TextTable] = [table.without_empty_columns()]
    if not math.isinf(float(result.log10_residual[-1])):  # else all tokens are exactly equal
        parts += map(Sentence, result.remarks)
    if len(chosen) < sites:
        parts.append(_rest(f"{len(chosen)} of {sites} sites", "every layer"))
    return parts


def _cells(result: Collapse, layer: int) -> tuple[str, ...]:
    step = ratio = ""
    before, after = result.log10_residual[layer - 1], result.log10_residual[layer]
    if layer and math.isfinite(before) and math.isfinite(after):
        step = _digits(after - before, 3)
        # Near a residual of 1 the logarithms pass through zero and their ratio says nothing.
        ratio = f"{after / before:.4f}" if before < SMALL and not result.causal else ""
    logs = (_digits(after), _digits(result.log10_relative[layer]))
    return (str(layer), *logs, step, ratio, f"{result.error[layer]:.1e}")


def answer(result: Collapse) -> str:
    """Say in a sentence whether the tokens of one example become equal, how far and how fast."""
    first, last = float(result.log10_relative[0]), float(result.log10_relative[-1])
    layers = f"{result.depth} layer{'' if result.depth == 1 else 's'}"
    if last == -math.inf:
        gone = int(np.argmax(np.isneginf(result.log10_residual)))
        return (
            f"Tokens become equal: from layer {gone} of {result.depth} on they are exactly equal."
        )
    change = f"from {_power(first)} to {_power(last)} over {layers}"
    if last <= EQUAL:
        return f"Tokens become equal: the relative residual falls {change}{_speed(result)}."
    if last - first <= ALIKE:
        return f"Tokens become more alike: the relative residual falls {change}{_speed(result)}."
    if _power(first) == _power(last):
        change = f"is {_power(last)} before and after {layers}"
    else:
        change = f"{'rises' if last > first else 'falls only'} {change}"
    return f"Tokens stay apart: the relative residual {change}."


def _speed(result: Collapse) -> str:
    """Say how the residual falls: cubically, by a steady factor, or neither."""
    log, ratio = result.log10_residual, result.log_ratio
    cubic = (log[:-1] < SMALL) & (ratio >= CUBIC[0]) & (ratio <= CUBIC[1])
    if (start := _steady_from(cubic)) is not None:
        return f", cubically from layer {start + 1} on (ratio of logarithms {ratio[-1]:.2f})"
    start = result.depth // 2
    sites, half = np.arange(start, result.depth + 1), log[start:]
    if len(half) < 4 or not bool(np.all(np.isfinite(half))):
        return ""
    slope, share = float(np.polyfit(sites, half, 1)[0]), float(np.corrcoef(sites, half)[0, 1]) ** 2
    if slope >= 0 or share < STEADY:
        return ""
    return f", by a factor of about {_power(slope)} per layer from layer {start + 1} on"


def _steady_from(holds: NDArray[np.bool_]) -> int | None:
    """Return the first place from which on something holds, at least twice."""
    fails = np.flatnonzero(~holds)
    start = int(fails[-1]) + 1 if len(fails) else 0
    return start if len(holds) - start > 1 else None


def _examples(result: Collapse) -> list[Sentence | TextTable]:
    """The answer of the example in which tokens differ most, and the ends of those that do."""
    examples = result.examples
    ends = [float(one.log10_relative[-1]) for one in examples]
    slowest = int(np.argmax(ends))
    equal = sum(end <= EQUAL for end in ends)
    order = sorted(range(len(examples)), key=lambda at: -ends[at])[:MOST_ROWS]
    rows = tuple(
        Row(
            (
                str(at + 1),
                _power(float(examples[at].log10_relative[0])),
                _power(ends[at]),
                _digits(examples[at].log10_residual[-1]),
                f"{examples[at].error[-1]:.1e}",
            )
        )
        for at in order
    )
    titles = ("example", "relative residual at first", "at last", "log10 residual at last", "error")
    count = f"{len(order)} of {len(examples)} examples, " if len(order) < len(examples) else ""
    return [
        Sentence(
            f"Tokens become equal in {equal} of {len(examples)} examples. The one in which they "
            f"differ most, example {slowest + 1}: {answer(examples[slowest])}",
            "bold",
        ),
        Sentence(),
        TextTable(tuple(TableColumn(title, right=True) for title in titles), rows),
        *map(Sentence, result.remarks),
        _rest(f"{count}at the first and the last layer", "every layer of each"),
    ]


def _rest(shown: str, everything: str) -> Sentence:
    return Sentence(f"Shown: {shown}; --all, or print(record.collapse), shows {everything}.", "dim")


def _chosen(sites: int) -> list[int]:
    """The first and the last site, and others evenly between them."""
    if sites <= MOST_ROWS:
        return list(range(sites))
    return sorted({round(at * (sites - 1) / (MOST_ROWS - 1)) for at in range(MOST_ROWS)})


def _digits(log: float, digits: int = 4) -> str:
    return f"{log:.{digits}f}" if abs(log) < 1e6 else f"{log:.10g}"


def _power(log: float) -> str:
    """Write a number of which the logarithm is known: 0.98, or 10^-4300."""
    if not math.isfinite(log):
        return "0" if log < 0 else "infinity"
    if -3.0 <= log < 5.0:
        return format_number(10.0**log, digits=3)
    if abs(log) >= 1e6:
        return f"10^({log:.4g})"
    return f"10^{log:.0f}" if abs(log) >= 100 else f"10^{log:.1f}"
