"""Paths by length on a screen: along how short paths half of the output comes, and a row per length.

Half of a tensor comes along paths of at most k attention layers if the shares of all components
with at most k hops, biases among them, add up to 1/2 or more, and so they do for every larger k:
shares are signed, and a sum may fall again.
"""

from __future__ import annotations

import math
from itertools import accumulate
from typing import TYPE_CHECKING

from leadline.record.words.numbers import format_number
from leadline.record.words.screen import MOST_ROWS, Screen, Sentence
from leadline.record.words.table import Row, TableColumn, TextTable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leadline.instruments.paths.result import Paths, SampledPaths, Shares

__all__ = ["answer", "count_text", "half_length", "most_important", "paths_screen"]

BRIEF_CAVEAT = (
    "Exact for this pass alone: patterns, norm statistics and gates are frozen; --all says more."
)
FAINT = 1e-6
"""Lengths whose shares are all smaller stand in one line."""
_SAMPLING = ("residual of a path", "error of sampling")
_GIVE_WAY = {**dict.fromkeys(_SAMPLING, (1,)), "paths": (2,), "|Z|/|X|": (3,)}
"""Where there is no room, the columns of sampling go first, then the number of paths, the size."""


def paths_screen(paths: Paths, *, everything: bool) -> Screen:
    """Return the answer, the heading, a row per length, the remainder and the remarks.

    Without `everything` the table has the lengths with the largest shares.
    """
    headers, all_rows = _cells(paths)
    rows = all_rows if everything else most_important(paths, all_rows, MOST_ROWS)
    columns = tuple(
        TableColumn(title, right=at > 0, gives_way=_GIVE_WAY.get(title, ()))
        for at, title in enumerate(headers)
    )
    title, facts = _heading(paths)
    parts: list[Sentence | TextTable] = [Sentence(one, "bold") for one in answer(paths)]
    parts += [Sentence(), Sentence(title), Sentence(facts, "dim"), Sentence()]
    parts.append(TextTable(columns, tuple(Row(tuple(row)) for row in rows)))
    if len(rows) < len(all_rows):
        shown = f"{len(rows)} of {len(all_rows)} rows, the largest shares; all: --all or "
        parts.append(Sentence(f"{shown}print(record.paths)", "dim"))
    below = [*_remarks(paths), paths.caveat if everything else BRIEF_CAVEAT]
    return Screen((*parts, Sentence(), *map(Sentence, below)))


def answer(paths: Paths) -> list[str]:
    """Say in up to three sentences along which paths the output comes, and what the loss is there."""
    tensors = {"output": paths.output, "logits": paths.logits}
    halves = {
        name: half
        for name, shares in tensors.items()
        if shares is not None and (half := half_length(shares)) is not None
    }
    if "output" not in halves:
        finite = all(map(math.isfinite, paths.share))
        why = "no number of hops gives half of it for good" if finite else "it is not finite"
        return [f"The output cannot be told by the length of its paths: {why}."]
    if len(halves) == 2 and halves["output"] == halves["logits"]:
        sentence = _half(("output", "logits"), halves["output"], paths)
    else:
        sentence = "; ".join(_half((name,), hops, paths) for name, hops in halves.items())
    sentences = [f"{sentence[:1].upper()}{sentence[1:]}."]
    largest = max(range(len(paths.share)), key=lambda length: abs(paths.share[length]))
    parts: list[str] = []
    if largest != halves["output"]:
        parts.append(f"the largest share, {paths.share[largest]:.0%}, has {_hops(largest)}")
    if paths.output.bias_share:
        parts.append(f"biases give {paths.output.bias_total:.0%}")
    if parts:
        sentences.append(f"Of the output {'; '.join(parts)}.")
    if paths.loss_at_most is not None and paths.loss is not None:
        most = halves.get("logits", halves["output"])
        loss = paths.loss_at_most[most]
        if math.isfinite(loss) and math.isfinite(paths.loss):
            with_them = f"With at most {_hops(most)}" if most else "Without attention"
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


def _half(names: Sequence[str], hops: int, paths: Paths) -> str:
    """Say which share of tensors comes along the shortest paths that give half of them."""
    tensors = {"output": paths.output, "logits": paths.logits}
    shares = [_share_up_to(tensor, hops) for name in names if (tensor := tensors[name])]
    texts = [f"{_percent(share)} of the {name}" for share, name in zip(shares, names, strict=True)]
    passes = "passes" if names == ("output",) else "pass"
    if hops == 0:
        return f"{' and '.join(texts)} {passes} through no attention layer"
    layers = "attention layer" if paths.depth == 1 else "attention layers"
    return f"{' and '.join(texts)} {passes} through at most {hops} of {paths.depth} {layers}"


def _percent(share: float) -> str:
    """Write a share of nearly all as such: 100% is all."""
    return "more than 99%" if 0.995 <= share < 1.0 else f"{share:.0%}"


def _share_up_to(shares: Shares, hops: int) -> float:
    """Return the share of all components with at most so many hops, biases among them."""
    return math.fsum(shares.share[: hops + 1]) + math.fsum(shares.bias_share[: hops + 1])


def _hops(count: int) -> str:
    return f"{count} hop" if count == 1 else f"{count} hops"


def _heading(paths: Paths) -> list[str]:
    """Name the model, and say of how many paths its pass is made."""
    layers = "layer" if paths.depth == 1 else "layers"
    made = f"{paths.depth} attention {layers}"
    several = sorted({number for number in paths.heads if number is not None})
    if None not in paths.heads and several:
        heads = f"{several[0]}" if len(several) == 1 else f"{several[0]} to {several[-1]}"
        made += f", {heads} {'head' if several == [1] else 'heads'} each"
    if paths.counts is not None:
        made += f", {count_text(sum(paths.counts))} paths"
    return [f"Paths by length: {paths.model}", f"{made}; {paths.dtype}, {_inputs(paths)}"]


def _cells(paths: Paths) -> tuple[list[str], list[list[str]]]:
    """Headers and a row per length; faint lengths together, biases in the last row."""
    columns: list[tuple[str, Shares, bool]] = [
        ("|Z|/|X|", paths.output, True),
        ("of output", paths.output, False),
    ]
    if paths.residual is not None:
        columns.append(("of residual", paths.residual, False))
    if paths.logits is not None:
        columns.append(("of logits", paths.logits, False))
    known = ["paths"] if paths.counts is not None else []
    headers = ["hops", *known, *(title for title, _, _ in columns)]
    headers += [] if paths.loss_at_most is None else ["loss up to here"]
    if paths.sampled is not None:
        headers += _SAMPLING
    rows: list[list[str]] = []
    for first, last in _groups(paths):
        one = first == last
        cells = [
            f"{first}" if one else f"{first}-{last}",
            *(_count(paths.counts, first, last) for _ in known),
            *(_share(shares, norm, first, last) for _, shares, norm in columns),
        ]
        if paths.loss_at_most is not None:
            cells.append(format_number(paths.loss_at_most[last]))
        if paths.sampled is not None:
            cells += [_range(of[first : last + 1]) for of in _drawn(paths.sampled)]
        rows.append(cells)
    if paths.output.bias_share:
        cells = ["biases", *("" for _ in known)]
        cells += [
            "" if norm else format_number(shares.bias_total, digits=3)
            for _, shares, norm in columns
        ]
        rows.append(cells + [""] * (len(headers) - len(cells)))
    return headers, rows


def _remarks(paths: Paths) -> list[str]:
    """The remainder, what could not be measured, and what the numbers do not mean."""
    at = [f"output {_remainder(paths.output)}"]
    at += [] if paths.logits is None else [f"logits {_remainder(paths.logits)}"]
    lines = [
        f"Remainder: {', '.join(at)}; {paths.precision} rounding explains up to "
        f"{paths.allowed:.1e}."
    ]
    if paths.loss is not None:
        lines.append(f"Loss of the model: {format_number(paths.loss)} ({paths.loss_kind}).")
    return [*lines, *paths.remarks]


def count_text(count: int) -> str:
    """Write a number of paths: in full up to six digits, otherwise as a power of ten."""
    text = str(count)
    if len(text) <= 6:
        return text
    head = round(int(text[:4]) / 10)  # one more digit than is shown, to round by
    power = len(text) - 1
    if head == 1000:
        head, power = 100, power + 1
    return f"{head / 100:.2f}e{power}"


def _groups(paths: Paths) -> list[tuple[int, int]]:
    """Runs of lengths: a loud one alone, neighbouring faint ones together."""
    groups: list[tuple[int, int]] = []
    for length in paths.lengths:
        joins = bool(groups) and _is_faint(paths, length) and _is_faint(paths, groups[-1][1])
        groups[-1:] = [(groups[-1][0], length)] if joins else [*groups[-1:], (length, length)]
    return groups


def _is_faint(paths: Paths, length: int) -> bool:
    there = [s for s in (paths.output, paths.residual, paths.logits) if s is not None]
    both = [of for s in there for of in (s.norm_share, s.share) if length < len(of)]
    return all(abs(of[length]) < FAINT for of in both)


def _count(counts: Sequence[int] | None, first: int, last: int) -> str:
    """The number of paths; nothing beyond the longest in the stream."""
    there = (counts or ())[first : last + 1]
    return count_text(sum(there)) if there else ""


def _share(shares: Shares, norm: bool, first: int, last: int) -> str:
    if first >= len(shares.share):
        return ""
    if first < last:
        return f"< {FAINT:.0e}".replace("e-0", "e-")
    return format_number((shares.norm_share if norm else shares.share)[first], digits=3)


def _drawn(sampled: SampledPaths) -> tuple[tuple[float | None, ...], ...]:
    return sampled.residual, sampled.error


def _range(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    low, high = (format_number(value, digits=3) for value in (min(known), max(known)))
    return low if low == high else f"{low} to {high}"


def _remainder(shares: Shares) -> str:
    return f"{shares.remainder:.1e} ({format_number(shares.remainder_eps, digits=3)} eps)"


def _inputs(paths: Paths) -> str:
    examples, tokens = paths.input.get("examples"), paths.input.get("tokens")
    if not examples:
        return "inputs given"
    one = "example" if examples == 1 else "examples"
    words = "token" if tokens == 1 else "tokens"
    return f"{examples} {one}" + ("" if tokens is None else f", {tokens} {words}")
