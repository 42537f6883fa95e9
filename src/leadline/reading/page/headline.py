"""The first thing a reader sees: what was measured, in a few sentences made from the numbers.

The norm of the first token is not stored by itself. It follows from two means: with N tokens in E
examples, N mean = E first + (N - E) mean_without_first, where `first` is the mean over the first
tokens of the examples.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from leadline.reading.show.blocks import read_blocks
from leadline.reading.show.wording import count, number, statistic_in_words, times
from leadline.record.provenance import number_at, text_at, value_at
from leadline.record.words.summary import cotangent_text, passes_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from leadline.record import Profile, Record

__all__ = [
    "Fact",
    "balance_sentence",
    "comparing_sentences",
    "facts",
    "first_token_ratio",
    "growth_in_words",
    "sentences",
]

_STREAM_NORM = "stream.norm"
_WITHOUT_FIRST = "median_without_first"
_MASSIVE = 10.0
"""From this ratio to the median of the others on, the first token counts as massive."""
_PLACEMENTS = {
    "pre": "norms before the branches (pre-norm)",
    "post": "norms on the stream after each addition (post-norm)",
    "sandwich": "norms on both sides of the branches (sandwich)",
    "output": "norms on the outputs of the branches",
    "pre-and-post": "norms before the branches and on the stream after each addition",
    "none": "no norms around the branches",
}


@dataclass(frozen=True, slots=True)
class Fact:
    """One entry of the row of facts: a label, a value and a smaller line below it."""

    label: str
    value: str
    detail: str = ""


def sentences(record: Record) -> list[str]:
    """Say what one record shows, in at most six sentences."""
    gradient = _gradient_quantity(record)
    lines = [
        # The first line of what an instrument's record prints is its answer.
        str(record).partition("\n")[0] if record.instrument else "",
        cotangent_text(record),
        _structure(record) if record.stacks or not record.instrument else "",
        _growth(record, _STREAM_NORM),
        _first_token(record),
        _growth(record, gradient) if gradient else "",
        _not_finite(record),
    ]
    return [sentence for sentence in lines if sentence]


def comparing_sentences(records: Sequence[Record], names: Sequence[str]) -> list[str]:
    """Say how records differ, in the norm of the stream and of its gradient.

    Where the first token of any record is massive, its median without that token is compared.
    """
    heavy = any(_heavy_layers(record) for record in records)
    gradients = [quantity for quantity in map(_gradient_quantity, records) if quantity]
    several = any(len(record.stacks) > 1 for record in records)
    shared = [s for s in records[0].stacks if all(s in record.stacks for record in records)]
    lines_of_text: list[str] = []
    for quantity in dict.fromkeys([_STREAM_NORM, *gradients[:1]]):
        statistic = _WITHOUT_FIRST if heavy and quantity == _STREAM_NORM else ""
        lines = [
            (f"{name} ({profile.stack})" if several else name, profile)
            for record, name in zip(records, names, strict=True)
            for profile in _shared_first(_first_lines(record, quantity, statistic), shared)[:1]
        ]
        if len(lines) < 2:
            continue
        title = next(r.quantities[quantity].title for r in records if quantity in r.quantities)
        kind = f", {statistic_in_words(statistic)}" if statistic else ""
        parts = [
            f"{name} {number(line.first)} → {number(line.last)} ({_law(line)})"
            for name, line in lines
        ]
        lines_of_text.append(f"{title}{kind}: {'; '.join(parts)}.{_ratio_at_the_end(lines)}")
    return lines_of_text


def growth_in_words(profile: Profile) -> str:
    """Say how a line moves over depth, as the end of a sentence."""
    growth = profile.growth
    finite = [at for at, value in enumerate(profile.values) if math.isfinite(value)]
    if not finite:
        return "is nowhere finite"
    start, stop = finite[0], finite[-1]
    span = (
        f"from {number(float(profile.values[start]))} at layer {profile.layers[start]} "
        f"to {number(float(profile.values[stop]))} at layer {profile.layers[stop]}"
    )
    if stop < len(profile.values) - 1:
        span += ", the last finite one"
    words = growth.text.partition(";")[0]
    if growth.law == "none":
        return f"goes {span}" + (
            f" and follows {words}" if words.startswith("no simple law") else ""
        )
    if growth.jump is not None:
        clauses = ", then ".join(map(_with_verb, words.split(", then ")))
        return f"{clauses}, which takes it {span}"  # the span is that of all clauses together
    if growth.law == "undecided":
        words = words.partition(" from layer ")[0]  # the span says the layers
    return f"{_with_verb(words)}, {span}"


def facts(record: Record) -> list[Fact]:
    """List what was measured: model, depth, input, loss, passes, balance."""
    known = record.provenance
    blocks = read_blocks(value_at(known, "anatomy") or {})
    entries = [_depth_fact(record)] if record.stacks or not record.instrument else []
    writes = sum(len(block.writes) for block in blocks)
    if writes:
        placements = list(dict.fromkeys(block.placement for block in blocks))
        parallel = ", parallel" if any(block.parallel for block in blocks) else ""
        entries.append(Fact("Writes", str(writes), f"norm: {', '.join(placements)}{parallel}"))
    parameters = number_at(known, "model", "parameters")
    if parameters is not None:
        entries.append(Fact("Parameters", count(parameters), text_at(known, "model", "dtype")))
    if value_at(known, "input") is not None:
        entries.append(_input_fact(known))
    if value_at(known, "loss") is not None:
        value = number_at(known, "loss", "value")
        detail = "" if value is None else f"value {number(value)}"
        entries.append(Fact("Loss", text_at(known, "loss", "kind"), detail))
    if passes := passes_text(known):
        measuring, _, others = passes.partition(", and ")
        tile = measuring.replace(" and ", " + ").removesuffix(" pass")
        entries.append(Fact("Passes", tile, others))
    eps = number_at(known, "anatomy", "balance_eps")
    if eps is not None:
        entries.append(Fact("Balance", f"{number(eps, digits=2)} eps", "rounding of the stream"))
    return entries


def balance_sentence(known: Mapping[str, Any]) -> str:
    """Say how well the books balance, and where worst."""
    eps = number_at(known, "anatomy", "balance_eps")
    if eps is None:
        return "The balance of this anatomy was not recorded."
    if eps == 0:
        return "The books balance to the last bit: 0 eps."
    layer = number_at(known, "anatomy", "balance_worst", "layer")
    stack = text_at(known, "anatomy", "balance_worst", "stack")
    stacks: Any = value_at(known, "anatomy", "stacks") or {}
    place = f"{stack} layer" if stack and len(stacks) > 1 else "layer"
    worst = "" if layer is None else f", worst at {place} {int(layer)}"
    return f"The books balance: {number(eps, digits=2)} eps{worst}."


def first_token_ratio(record: Record) -> Profile | None:
    """Return the norm of the first token over the median norm of the others, by layer."""
    tokens = number_at(record.provenance, "input", "tokens")
    examples = number_at(record.provenance, "input", "examples")
    if not tokens or not examples or examples >= tokens or len(record.stacks) != 1:
        return None
    lines = {profile.statistic: profile for profile in _profiles(record, _STREAM_NORM)}
    wanted = ("mean", "mean_without_first", "median_without_first")
    if any(one not in lines for one in wanted):
        return None
    mean, others, median = (lines[one] for one in wanted)
    if not mean.layers == others.layers == median.layers:
        return None
    with np.errstate(all="ignore"):
        first: NDArray[np.float64] = (
            tokens * mean.values - (tokens - examples) * others.values
        ) / examples
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


def _structure(record: Record) -> str:
    known = record.provenance
    blocks = read_blocks(value_at(known, "anatomy") or {})
    stacks = record.stacks
    if not stacks:
        return "This record holds no readings."
    parts = [f"{_an(stack)} stack of {record.depth(stack)} layers" for stack in stacks]
    name = text_at(known, "model", "name") or "The model"
    sentence = f"{name} is {' and '.join(parts)}"
    placements = {block.placement for block in blocks}
    if len(placements) == 1:
        sentence += f" with {_PLACEMENTS.get(placements.pop(), 'norms of its own kind')}"
    if blocks and all(block.parallel for block in blocks):
        sentence += ", attention and MLP in parallel"
    lanes = [
        int(lane_count)
        for stack in stacks
        if (lane_count := number_at(known, "anatomy", "stacks", stack, "lanes")) and lane_count > 1
    ]
    if lanes:
        sentence += f", its stream {lanes[0]} lanes wide"
    return f"{sentence}."


def _growth(record: Record, quantity: str) -> str:
    lines = _first_lines(record, quantity)
    if not lines:
        return ""
    title = record.quantities[quantity].title
    opening = f"The {title[:1].lower()}{title[1:]}"
    if len(lines) == 1:
        return f"{opening} {growth_in_words(lines[0])}."
    parts = [f"in the {line.stack} it {growth_in_words(line)}" for line in lines]
    return f"{opening}: {'; '.join(parts)}."


def _with_verb(law: str) -> str:
    """Make a law the end of a sentence whose subject is the line."""
    if law.startswith("flat"):
        return f"stays {law}"
    return f"changes by {law}" if law.startswith(("+", "-", "×")) else law


def _heavy_layers(record: Record) -> list[int]:
    """The layers at which the first token is massive."""
    ratio = first_token_ratio(record)
    if ratio is None:
        return []
    return [
        layer
        for layer, value in zip(ratio.layers, ratio.values, strict=True)
        if math.isfinite(value) and value >= _MASSIVE
    ]


def _first_token(record: Record) -> str:
    ratio, heavy = first_token_ratio(record), _heavy_layers(record)
    if ratio is None or not heavy:
        return ""
    peak = max(float(value) for value in ratio.values if math.isfinite(value))
    if len(heavy) == 1:
        where = f"at layer {heavy[0]}"
    elif heavy[-1] == ratio.layers[-1]:
        where = f"from layer {heavy[0]} on"
    else:
        where = f"between layers {heavy[0]} and {heavy[-1]}"
    rest = _first_lines(record, _STREAM_NORM, _WITHOUT_FIRST)[0]
    return (
        f"The first token carries up to {times(peak)} the median norm of the others {where}; "
        f"without it the median {growth_in_words(rest)}."
    )


def _not_finite(record: Record) -> str:
    where: dict[str, int] = {}
    for name, quantity in record.quantities.items():
        if quantity.lives_on == "run":
            continue
        for profile in _profiles(record, name):
            bad = [
                layer
                for layer, value in zip(profile.layers, profile.values, strict=True)
                if not math.isfinite(value)
            ]
            if bad:
                where[quantity.title] = min(bad[0], where.get(quantity.title, bad[0]))
    if not where:
        return ""
    first = min(where, key=lambda title: where[title])
    more = f" and {len(where) - 1} other quantities" if len(where) > 2 else ""
    return f"Values that are not finite appear from layer {where[first]} on ({first}{more})."


def _ratio_at_the_end(lines: Sequence[tuple[str, Profile]]) -> str:
    """Compare the last layers of two records that both end above zero."""
    if len(lines) != 2:
        return ""
    (low_name, low), (high_name, high) = sorted(lines, key=lambda pair: pair[1].last)
    if not (0 < low.last <= high.last < math.inf) or high.last / low.last < 1.05:
        return ""
    ratio = times(high.last / low.last)
    return f" At the last layer {high_name} has {ratio} the value of {low_name}."


def _law(line: Profile) -> str:
    """The law of growth without its goodness of fit."""
    words = line.growth.text.partition(";")[0]
    return re.sub(r" \((?:±|R²|best R²|all 0)[^)]*\)", "", words)


def _first_lines(record: Record, quantity: str, statistic: str = "") -> list[Profile]:
    """The line of each stack, of the headline statistic if none is named."""
    by_stack: dict[str, Profile] = {}
    for profile in _profiles(record, quantity):
        if not statistic or profile.statistic == statistic:
            by_stack.setdefault(profile.stack, profile)
    return [by_stack[stack] for stack in record.stacks if stack in by_stack]


def _shared_first(lines: list[Profile], shared: Sequence[str]) -> list[Profile]:
    """Lines of the stacks that all records have, if there are any: a decoder beside a decoder."""
    return [line for line in lines if line.stack in shared] or lines


def _profiles(record: Record, quantity: str) -> list[Profile]:
    return record.profiles(quantity) if quantity in record.quantities else []


def _gradient_quantity(record: Record) -> str:
    for name, quantity in record.quantities.items():
        if name.startswith("gradient") and quantity.lives_on == "stream":
            return name
    return ""


def _depth_fact(record: Record) -> Fact:
    stacks = record.stacks
    width = [number_at(record.provenance, "anatomy", "stacks", stack, "width") for stack in stacks]
    wide = ", ".join(dict.fromkeys(str(int(one)) for one in width if one is not None))
    depth = " + ".join(str(record.depth(stack)) for stack in stacks)
    detail = ", ".join(stacks) + (f"; width {wide}" if wide else "")
    return Fact("Layers", depth or "none", detail)


def _input_fact(known: Mapping[str, Any]) -> Fact:
    examples, tokens = number_at(known, "input", "examples"), number_at(known, "input", "tokens")
    size = [] if examples is None else [f"{examples:,.0f} example{'' if examples == 1 else 's'}"]
    if tokens is not None:
        size.append(f"{tokens:,.0f} tokens")
    return Fact("Input", text_at(known, "input", "kind") or "unknown", ", ".join(size))


def _an(word: str) -> str:
    return f"{'an' if word[:1].lower() in 'aeiou' else 'a'} {word}"
