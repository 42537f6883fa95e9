"""The first thing a reader sees: what was measured, in a few sentences made from the numbers.

The norm of the first token is not stored by itself. It follows from two means: with N tokens in E
examples, N mean = E first + (N - E) mean_without_first, where `first` is the mean over the first
tokens of the examples.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from leadline.record.provenance import number_at, text_at, value_at
from leadline.reporting.drawing import read_blocks
from leadline.reporting.wording import count, number, times

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
_MASSIVE = 10.0
_PLACEMENTS = {
    "pre": "norms before the branches (pre-norm)",
    "post": "norms on the stream after each addition (post-norm)",
    "sandwich": "norms on both sides of the branches (sandwich)",
    "output": "norms on the outputs of the branches",
    "none": "no norms around the branches",
}


@dataclass(frozen=True, slots=True)
class Fact:
    """One entry of the row of facts: a label, a value and a smaller line below it."""

    label: str
    value: str
    detail: str = ""


def sentences(record: Record) -> list[str]:
    """Say what one record shows, in at most five sentences."""
    found = [_structure(record), _growth(record, _STREAM_NORM), _first_token(record)]
    gradient = _gradient_quantity(record)
    if gradient:
        found.append(_growth(record, gradient))
    found.append(_not_finite(record))
    return [sentence for sentence in found if sentence]


def comparing_sentences(records: Sequence[Record], names: Sequence[str]) -> list[str]:
    """Say how records differ, in the norm of the stream and of its gradient."""
    found: list[str] = []
    gradients = [quantity for quantity in map(_gradient_quantity, records) if quantity]
    for quantity in dict.fromkeys([_STREAM_NORM, *gradients[:1]]):
        lines = [
            (name, profile)
            for record, name in zip(records, names, strict=True)
            if (profile := _headline(record, quantity)) is not None
        ]
        if len(lines) < 2:
            continue
        title = next(r.quantities[quantity].title for r in records if quantity in r.quantities)
        parts = [f"in {name} it {growth_in_words(profile)}" for name, profile in lines]
        found.append(f"{title}: {'; '.join(parts)}.")
        found.append(_ratio_at_the_end(title, lines))
    return [sentence for sentence in found if sentence]


def growth_in_words(profile: Profile) -> str:
    """Say how a line moves over depth, as the end of a sentence."""
    growth = profile.growth
    span = (
        f"from {number(profile.first)} at layer {profile.layers[0]} "
        f"to {number(profile.last)} at layer {profile.layers[-1]}"
    )
    if growth.law == "none":
        return f"goes {span} by {growth.text.replace('too few layers for a', 'no')}"
    if growth.law == "flat":
        return f"stays {growth.text} around {number(float(np.nanmean(profile.values[-1:])))}"
    if growth.law == "power":
        return f"{growth.text}, {span}"
    return f"changes by {growth.text}, {span}"


def facts(record: Record) -> list[Fact]:
    """List what was measured: model, depth, input, loss, passes, balance."""
    known = record.provenance
    blocks = read_blocks(value_at(known, "anatomy") or {})
    found = [_depth_fact(record)]
    writes = sum(len(block.writes) for block in blocks)
    if writes:
        placements = list(dict.fromkeys(block.placement for block in blocks))
        parallel = ", parallel" if any(block.parallel for block in blocks) else ""
        found.append(Fact("Writes", str(writes), f"norm: {', '.join(placements)}{parallel}"))
    parameters = number_at(known, "model", "parameters")
    if parameters is not None:
        found.append(Fact("Parameters", count(parameters), text_at(known, "model", "dtype")))
    if value_at(known, "input") is not None:
        found.append(_input_fact(known))
    if value_at(known, "loss") is not None:
        value = number_at(known, "loss", "value")
        detail = "" if value is None else f"value {number(value)}"
        found.append(Fact("Loss", text_at(known, "loss", "kind"), detail))
    passes: Any = value_at(known, "passes")
    if passes:
        main = " + ".join(
            f"{passes[kind]} {kind}" for kind in ("forward", "backward") if passes.get(kind)
        )
        others = [
            f"{n} {k.replace('_', ' ')}"
            for k, n in passes.items()
            if k not in ("forward", "backward") and n
        ]
        found.append(Fact("Passes", main or "none", ", ".join(others)))
    eps = number_at(known, "anatomy", "balance_eps")
    if eps is not None:
        found.append(Fact("Balance", f"{number(eps, digits=2)} eps", "rounding of the stream"))
    return found


def balance_sentence(known: Mapping[str, Any]) -> str:
    """Say how well the books balance, and where worst."""
    eps = number_at(known, "anatomy", "balance_eps")
    if eps is None:
        return "The balance of this anatomy was not recorded."
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
        int(found)
        for stack in stacks
        if (found := number_at(known, "anatomy", "stacks", stack, "lanes")) and found > 1
    ]
    if lanes:
        sentence += f", its stream {lanes[0]} lanes wide"
    return f"{sentence}."


def _growth(record: Record, quantity: str) -> str:
    profile = _headline(record, quantity)
    if profile is None:
        return ""
    title = record.quantities[quantity].title
    place = f" of the {profile.stack}" if len(record.stacks) > 1 else ""
    return f"The {title[:1].lower()}{title[1:]}{place} {growth_in_words(profile)}."


def _first_token(record: Record) -> str:
    ratio = first_token_ratio(record)
    if ratio is None:
        return ""
    heavy = [
        layer
        for layer, value in zip(ratio.layers, ratio.values, strict=True)
        if math.isfinite(value) and value >= _MASSIVE
    ]
    if not heavy:
        return ""
    peak = float(np.nanmax(ratio.values[np.isfinite(ratio.values)]))
    if heavy[-1] == ratio.layers[-1]:
        where = f"from layer {heavy[0]} on"
    elif len(heavy) == 1:
        where = f"at layer {heavy[0]}"
    else:
        where = f"between layers {heavy[0]} and {heavy[-1]}"
    return (
        f"The first token carries up to {times(peak)} the median norm of the other tokens {where}; "
        "the median without it shows what the other tokens do."
    )


def _not_finite(record: Record) -> str:
    where: dict[str, int] = {}
    for name, quantity in record.quantities.items():
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


def _ratio_at_the_end(title: str, lines: Sequence[tuple[str, Profile]]) -> str:
    ends = [(name, profile.last) for name, profile in lines if profile.last > 0]
    if len(ends) < 2:
        return ""
    (low_name, low), (high_name, high) = (
        min(ends, key=lambda end: end[1]),
        max(ends, key=lambda end: end[1]),
    )
    if not math.isfinite(high) or high / low < 1.05:
        return ""
    return (
        f"At the last layer the {title[:1].lower()}{title[1:]} of {high_name} is "
        f"{times(high / low)} that of {low_name}."
    )


def _headline(record: Record, quantity: str) -> Profile | None:
    found = _profiles(record, quantity)
    return found[0] if found else None


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
