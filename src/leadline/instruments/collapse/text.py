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
_VERDICTS = ("become equal", "are equal from the first", "become more alike", "stay apart")


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
        return Screen((*_answer(result), Sentence(), *_layers(result, everything)))
    parts = [*_answer(result), Sentence(), *_examples(result, everything)]
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


def answer(result: Collapse) -> list[str]:
    """Say whether tokens become equal, how far and how fast; of several examples the slowest."""
    if not result.examples:
        return [f"Tokens {_verdict(result)}: {_course(result)}."]
    verdicts = [_verdict(one) for one in result.examples]
    counts = {verdict: verdicts.count(verdict) for verdict in _VERDICTS if verdict in verdicts}
    (first, count), *others = counts.items()
    where = f"all {count} examples" if not others else f"{count} of {len(verdicts)} examples"
    several = "".join(f", {verdict} in {number}" for verdict, number in others)
    ends = [float(one.log10_relative[-1]) for one in result.examples]
    slowest = int(np.argmax(ends))
    return [
        f"Tokens {first} in {where}{several}.",
        f"They differ most in example {slowest + 1}: {_course(result.examples[slowest])}.",
    ]


def _answer(result: Collapse) -> list[Sentence]:
    return [Sentence(" ".join(answer(result)), "bold")]


def _verdict(result: Collapse) -> str:
    """Say what becomes of the tokens of one example."""
    first, last = float(result.log10_relative[0]), float(result.log10_relative[-1])
    equal, always, alike, apart = _VERDICTS
    if last <= EQUAL:
        return always if first <= EQUAL else equal
    return alike if last - first <= ALIKE else apart


def _course(result: Collapse) -> str:
    """Say how the relative residual of one example changes from the first site to the last."""
    first, last = float(result.log10_relative[0]), float(result.log10_relative[-1])
    layers = f"{result.depth} layer{'' if result.depth == 1 else 's'}"
    if last == -math.inf:
        zero = int(np.argmax(np.isneginf(result.log10_residual)))
        return f"from layer {zero} of {result.depth} on they are exactly equal"
    if _power(first) == _power(last):
        return f"the relative residual is {_power(last)} before and after {layers}"
    way = "rises" if last > first else "falls"
    if way == "falls" and _verdict(result) == _VERDICTS[-1]:
        way = "falls only"
    speed = _speed(result) if way == "falls" else ""
    change = f"{way} from {_power(first)} to {_power(last)}"
    return f"the relative residual {change} over {layers}{speed}"


def _speed(result: Collapse) -> str:
    """Say how the relative residual falls: cubically, by a steady factor, or neither."""
    log = result.log10_relative
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = log[1:] / log[:-1]
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


def _examples(result: Collapse, everything: bool) -> list[Sentence | TextTable]:
    """The first and the last site of the examples in which tokens differ most."""
    examples = result.examples
    ends = [float(one.log10_relative[-1]) for one in examples]
    most = len(examples) if everything else MOST_ROWS
    order = sorted(range(len(examples)), key=lambda at: -ends[at])[:most]
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
    parts: list[Sentence | TextTable] = [
        TextTable(tuple(TableColumn(title, right=True) for title in titles), rows),
        *map(Sentence, result.remarks),
    ]
    if not everything:
        parts.append(_rest(f"{count}at the first and the last layer", "every layer of each"))
    return parts


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
