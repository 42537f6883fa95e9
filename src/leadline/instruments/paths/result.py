"""The result of `paths`: a forward pass by path length, as data, as text and as HTML.

With attention patterns, norm statistics and gates frozen, the stream after the last layer is

    X = sum_l Z_l + sum_l B_l,        Z_l the sum of all paths with l hops of attention,

B_l what biases gave. L attention layers with H heads and a skip have C(L, l) H^l paths of length
l: the coefficients of prod (1 + H_i t) where heads differ, of prod H_i t where nothing is skipped
(Dong, Cordonnier, Loukas 2021, arXiv 2103.03404, section 2). Layers that share values have fewer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from leadline.record.provenance import strict_json
from leadline.record.words.notebook import html_table
from leadline.record.words.numbers import align, format_number

__all__ = [
    "CAVEAT",
    "FAINT",
    "Paths",
    "SampledPaths",
    "Shares",
    "count_text",
    "heading",
    "path_counts",
    "remarks_of",
    "table_of",
]

CAVEAT = (
    "This takes apart this forward pass: patterns, statistics and gates are frozen as they were, "
    "and they depend on the whole input. It is no decomposition into independent functions. The "
    "frozen gate of GELU or SiLU is a secant, f(x)/x, and not the slope."
)
FAINT = 1e-6
"""Lengths whose shares are all smaller stand in one line."""


@dataclass(frozen=True, kw_only=True)
class Shares:
    """One tensor X by path length; index l is the length.

    `norm_share` |Z_l| / |X|, `share` <Z_l, X> / |X|^2; the same for biases (empty: none joined).
    `share` and `bias_share` together sum to 1. `remainder` is what they leave over of the worst
    token, |x - sum| / max(|x|, sqrt(sum |z_l|^2 + sum |b_l|^2)), and the same in eps.
    """

    norm: float
    norm_share: tuple[float, ...]
    share: tuple[float, ...]
    bias_norm_share: tuple[float, ...] = ()
    bias_share: tuple[float, ...] = ()
    remainder: float
    remainder_eps: float

    @property
    def bias_total(self) -> float:
        """The share of all biases together."""
        return math.fsum(self.bias_share)

    def to_json(self) -> dict[str, Any]:
        """Return the numbers as JSON."""
        return strict_json(
            {
                "norm": self.norm,
                "norm_share": list(self.norm_share),
                "share": list(self.share),
                "bias_norm_share": list(self.bias_norm_share),
                "bias_share": list(self.bias_share),
                "remainder": self.remainder,
                "remainder_eps": self.remainder_eps,
            }
        )


@dataclass(frozen=True, kw_only=True)
class SampledPaths:
    """Paths drawn at random, beside the exact answer; index l is the length, None: no such path.

    `residual` is the mean of |res Y| / |Y| over the drawn paths Y, as in Dong et al.; `error` that
    of the estimate (number of paths / samples) sum Y of Z_l, relative to |Z_l|.
    """

    samples: int
    seed: int
    residual: tuple[float | None, ...]
    error: tuple[float | None, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the numbers as JSON."""
        return strict_json(
            {
                "samples": self.samples,
                "seed": self.seed,
                "residual": list(self.residual),
                "error": list(self.error),
            }
        )


@dataclass(frozen=True, kw_only=True)
class Paths:
    """A forward pass by path length: what `leadline.paths` returns.

    It takes apart one forward pass: patterns, statistics and gates are frozen as they were and
    depend on the whole input. It is no decomposition into independent functions, and the frozen
    gate of GELU or SiLU is a secant, not the slope.

    `heads` has a number for every attention layer, None where it is not known; `counts[l]` is the
    number of paths of length l that reach the stream, None without all heads.
    `output` is the stream after the last layer; `residual` the same with the mean token of every
    example taken away (None where that leaves nothing); `logits` without their mean over the
    vocabulary (None without a head). `loss_at_most[k]` is the loss of the logits made of all
    components with at most k hops; the last one is the model's own, `loss`, up to rounding. A head
    with attention of its own makes logits and losses longer than the output.
    """

    model: str
    dtype: str
    heads: tuple[int | None, ...]
    counts: tuple[int, ...] | None
    output: Shares
    residual: Shares | None = None
    logits: Shares | None = None
    loss: float | None = None
    loss_kind: str | None = None
    loss_at_most: tuple[float, ...] | None = None
    sampled: SampledPaths | None = None
    precision: str = ""
    """The coarsest number type that the stream went through: its eps is the unit of rounding."""
    allowed: float = math.inf
    """The largest remainder that counts as rounding."""
    input: Mapping[str, Any] = field(default_factory=dict[str, Any])
    remarks: tuple[str, ...] = ()

    @property
    def depth(self) -> int:
        """How many attention layers there are: the longest path."""
        return len(self.heads)

    @property
    def lengths(self) -> range:
        """0 to depth, or further where the logits go on behind the last layer."""
        further = 0 if self.logits is None else len(self.logits.share)
        return range(max(self.depth + 1, further))

    @property
    def norm_share(self) -> tuple[float, ...]:
        """That of the output."""
        return self.output.norm_share

    @property
    def share(self) -> tuple[float, ...]:
        """That of the output."""
        return self.output.share

    @property
    def bias_share(self) -> tuple[float, ...]:
        """That of the output."""
        return self.output.bias_share

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON; counts are whole numbers of any size."""
        return {
            "model": self.model,
            "dtype": self.dtype,
            "depth": self.depth,
            "heads": list(self.heads),
            "counts": None if self.counts is None else list(self.counts),
            "output": self.output.to_json(),
            "residual": None if self.residual is None else self.residual.to_json(),
            "logits": None if self.logits is None else self.logits.to_json(),
            "loss": None if self.loss is None else strict_json(self.loss),
            "loss_kind": self.loss_kind,
            "loss_at_most": None
            if self.loss_at_most is None
            else strict_json(list(self.loss_at_most)),
            "sampled": None if self.sampled is None else self.sampled.to_json(),
            "precision": self.precision,
            "allowed": strict_json(self.allowed),
            "input": strict_json(dict(self.input)),
            "remarks": list(self.remarks),
            "caveat": CAVEAT,
        }

    def __str__(self) -> str:
        headers, rows = table_of(self)
        right = range(1, len(headers))
        lines = [*heading(self), "", *align([headers, *rows], right=right), ""]
        return "\n".join([*lines, *remarks_of(self)])

    def _repr_html_(self) -> str:
        headers, rows = table_of(self)
        title, *rest = heading(self)
        table = html_table(headers, [[escape(cell) for cell in row] for row in rows])
        above = "".join(f"<div>{escape(line)}</div>" for line in rest)
        below = "".join(f"<li>{escape(line)}</li>" for line in remarks_of(self))
        return f"<div><strong>{escape(title)}</strong>{above}{table}<ul>{below}</ul></div>"


def path_counts(heads: Sequence[int], skips: Sequence[bool]) -> tuple[int, ...]:
    """The number of paths of every length: coefficients of prod (skip_i + heads_i t).

    >>> path_counts([3] * 5, [True] * 5)
    (1, 15, 90, 270, 405, 243)
    """
    counts = [1]
    for number, skip in zip(heads, skips, strict=True):
        longer = [0, *(count * number for count in counts)]
        for length, count in enumerate(counts if skip else ()):
            longer[length] += count
        counts = longer
    return tuple(counts)


# --- words ----------------------------------------------------------------------------------------


def heading(paths: Paths) -> list[str]:
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


def table_of(paths: Paths) -> tuple[list[str], list[list[str]]]:
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
        headers += ["residual of a path", "error of sampling"]
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


def remarks_of(paths: Paths) -> list[str]:
    """The remainder, what could not be measured, and what the numbers do not mean."""
    at = [f"output {_remainder(paths.output)}"]
    at += [] if paths.logits is None else [f"logits {_remainder(paths.logits)}"]
    lines = [
        f"Remainder: {', '.join(at)}; {paths.precision} rounding explains up to "
        f"{paths.allowed:.1e}."
    ]
    if paths.loss is not None:
        lines.append(f"Loss of the model: {format_number(paths.loss)} ({paths.loss_kind}).")
    return [*lines, *paths.remarks, CAVEAT]


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
