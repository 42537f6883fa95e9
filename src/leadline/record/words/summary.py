"""What a person should see first: the heading of a record and one row per line over depth.

The text form, the notebook form and the terminal table all show these rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from leadline.record.provenance import number_at, text_at, value_at
from leadline.record.rows.address import address_of
from leadline.record.run.ending import ending_text, is_cell
from leadline.record.run.watching import is_watched
from leadline.record.words.numbers import format_count, format_number
from leadline.record.words.shape import change_over_depth

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from leadline.record.record import Record
    from leadline.record.rows.growth import Growth
    from leadline.record.rows.profile import Profile
    from leadline.record.rows.quantity import AxisScale, Quantity

__all__ = [
    "ROBUST",
    "TOPICS",
    "SummaryRow",
    "carried_by_few",
    "cotangent_text",
    "heading",
    "headline_lines",
    "leading_lines",
    "leading_quantity",
    "median_line",
    "passes_text",
    "remarks",
    "summarize",
    "sweep_name",
]

TOPICS = ("stream", "gradient", "tokens")
"""What a record is asked about first."""
# The mean counts as carried by few tokens from this factor over the median without the first one.
APART = 2.0
ROBUST = "median_without_first"
"""The statistic that neither the first token nor a few others can carry."""


@dataclass(frozen=True, slots=True)
class SummaryRow:
    """One line over depth with its name, its law and what is remarkable about it."""

    label: str
    profile: Profile
    growth: Growth
    scale: AxisScale
    remark: str = ""
    companion: bool = False  # stands below the row of the same label, to be compared with it
    leads: bool = False
    """Whether its quantity tells its topic, so that it is shown first of all."""
    logarithm: bool = False
    """Whether its values are logarithms, so that no factor is said of them."""

    @property
    def change(self) -> float:
        """How much it changes over depth, so that rows can be put in order."""
        return change_over_depth(self.profile, scale=self.scale)


def summarize(record: Record) -> list[SummaryRow]:
    """Return a row per quantity and role; a second one where few tokens carry the mean.

    Ingredients of bounds are left out, and so are numbers of a run, which have no depth.
    """
    stacks = record.stacks
    only = stacks[0] if len(stacks) == 1 else ""
    rows: list[SummaryRow] = []
    leading = {one.name for topic in TOPICS if (one := leading_quantity(record, topic))}
    for name, quantity in record.quantities.items():
        if quantity.ingredient_of or quantity.over == "step":
            continue
        lines = record.profiles(name)
        for line in headline_lines(lines, quantity.headline):
            label = str(address_of(line, lines, first_stack=only))
            # Where zero is an ordinary value (a cosine, a mean) no token dominates by its size.
            sized = quantity.scale == "log"
            remark, robust = _compare_with_robust(line, lines) if sized else ("", None)
            leads = quantity.leads or name in leading
            row = SummaryRow(label, line, line.growth, quantity.scale, remark, leads=leads)
            row = replace(row, logarithm=quantity.nats_per_unit > 0)
            rows.append(row)
            if robust is not None:
                growth = robust.growth
                rows.append(replace(row, profile=robust, growth=growth, remark="", companion=True))
    return rows


def leading_quantity(record: Record, topic: str) -> Quantity | None:
    """Return the quantity of the stream that tells a topic; the first one if none leads."""
    known = [
        quantity
        for quantity in record.quantities.values()
        if quantity.topic == topic and quantity.lives_on == "stream" and not quantity.ingredient_of
    ]
    return next((one for one in known if one.leads), next(iter(known), None))


def leading_lines(record: Record, topic: str, statistic: str = "") -> list[Profile]:
    """Return the line that tells a topic, one for each stack; of its headline unless named."""
    quantity = leading_quantity(record, topic)
    if quantity is None:
        return []
    lines: dict[str, Profile] = {}
    for line in record.profiles(quantity.name):
        if not statistic or line.statistic == statistic:
            lines.setdefault(line.stack, line)
    return [lines[stack] for stack in record.stacks if stack in lines]


def headline_lines(lines: Sequence[Profile], headline: str) -> list[Profile]:
    """Return the lines of the headline statistic; of the first one there is if it is absent."""
    statistics = [line.statistic for line in lines]
    shown = headline if headline in statistics else statistics[0] if statistics else headline
    return [line for line in lines if line.statistic == shown]


def heading(record: Record) -> list[str]:
    """Return the first sentences: the model, its anatomy, the input, the loss and the passes."""
    provenance = record.provenance
    cells = _cells(provenance)
    return [
        line
        for line in (
            _model(provenance) or _sweep(provenance) or f"Record with {len(record):,} readings",
            # The models of a sweep differ in depth.
            "" if cells else _anatomy(provenance, record),
            *(() if cells else _unusual(provenance)),
            _input(provenance),
            passes_text(provenance),
            _task(provenance),
            ending_text(provenance),
            cells,
            _runs(record) if record.stacks else "",
        )
        if line
    ]


def cotangent_text(record: Record) -> str:
    """Say that gradients are those of a random cotangent, and why; empty where they are not."""
    if text_at(record.provenance, "loss", "kind") != "random cotangent":
        return ""
    if leading_quantity(record, "gradient") is None:
        return ""
    reason = text_at(record.provenance, "loss", "reason") or "no loss was known for the model"
    return f"The gradients are those of a random cotangent and not of a loss, because {reason}."


def remarks(record: Record, rows: Sequence[SummaryRow]) -> list[str]:
    """Return what is remarkable about the rows, and what could not be measured and why."""
    lines = [f"{row.label}: {row.remark}" for row in rows if row.remark]
    refused = value_at(record.provenance, "coverage", "refused")
    if isinstance(refused, list):
        lines += [
            f"not measured: {text_at(entry, 'what')}: {text_at(entry, 'why')}"
            for entry in cast(list[dict[str, Any]], refused)
        ]
    return lines


def _compare_with_robust(line: Profile, lines: Sequence[Profile]) -> tuple[str, Profile | None]:
    """Find the layer where the mean stands farthest from the median without the first token."""
    if line.statistic != "mean":
        return "", None
    robust = _same_place(line, lines, ROBUST)
    if robust is None or robust.layers != line.layers:
        return "", None
    upper, lower = np.abs(line.values), np.abs(robust.values)
    # Near zero a ratio says nothing: the gap must show on the scale of the whole line.
    scale = float(np.nanmax(upper, initial=0.0, where=np.isfinite(upper)))
    visible = np.isfinite(upper) & np.isfinite(lower) & (lower > 0)
    # Infinite on both sides is no gap; it is invisible already, and must not warn either.
    gap = np.subtract(upper, lower, out=np.zeros_like(upper), where=visible)
    visible &= (np.abs(gap) > 0.05 * scale) & (np.sign(line.values) == np.sign(robust.values))
    ratio = np.divide(upper, lower, out=np.ones_like(upper), where=visible)
    worst = int(np.argmax(ratio))
    if ratio[worst] <= APART:
        return "", None
    without = _same_place(line, lines, "mean_without_first")
    first_alone = without is not None and upper[worst] > APART * abs(without.values[worst])
    who = "the first token dominates" if first_alone else "a few tokens dominate"
    return (
        f"{who}: at layer {line.layers[worst]} the mean is {format_number(ratio[worst], digits=2)}"
        " times the median without the first token",
        robust,
    )


def median_line(line: Profile, lines: Sequence[Profile]) -> Profile | None:
    """Return the median without the first token of the same place; None where there is none."""
    return _same_place(line, lines, ROBUST)


def carried_by_few(line: Profile, lines: Sequence[Profile]) -> bool:
    """Say whether the first token, or a few others, carry the mean of a line."""
    return _compare_with_robust(line, lines)[1] is not None


def _same_place(line: Profile, lines: Sequence[Profile], statistic: str) -> Profile | None:
    for other in lines:
        if (other.statistic, other.stack, other.point, other.sublayer) == (
            statistic,
            line.stack,
            line.point,
            line.sublayer,
        ):
            return other
    return None


def _model(provenance: Mapping[str, Any]) -> str:
    name, kind = text_at(provenance, "model", "name"), text_at(provenance, "model", "class")
    count = number_at(provenance, "model", "parameters")
    parts = [
        kind if kind != name else "",
        "" if count is None else f"{format_count(count)} parameters",
        _precision(provenance),
        text_at(provenance, "model", "source"),
    ]
    described = ", ".join(part for part in parts if part)
    return f"{name}: {described}" if name and described else name or described


_HALF = ("bfloat16", "float16")


def _precision(provenance: Mapping[str, Any]) -> str:
    """The number type of the weights, and how half precision was multiplied on the CPU."""
    dtype, route = (text_at(provenance, "model", key) for key in ("dtype", "half_precision"))
    if not route:
        return dtype
    if dtype in _HALF:
        return f"{dtype} ({route})"
    # Training in bfloat16 keeps its weights as they are; other models mix the types of weights.
    trained = text_at(provenance, "precision") == "bfloat16"
    how = "products in bfloat16" if trained else "partly in half precision"
    return f"{dtype}, {how} ({route})"


def _anatomy(provenance: Mapping[str, Any], record: Record) -> str:
    stacks = record.stacks
    if not stacks:
        return ""
    depths = [f"{stack} {_plural(record.depth(stack), 'layer')}" for stack in stacks]
    shape = [_plural(record.depth(), "layer")] if len(stacks) == 1 else depths
    sublayers = number_at(provenance, "anatomy", "sublayers")
    if sublayers is not None:
        shape.append(_plural(int(sublayers), "sublayer"))
    shape += _placements(provenance)
    proof: list[str] = []
    if source := text_at(provenance, "anatomy", "source"):
        proof.append(f"anatomy: {source}")
    balance = number_at(provenance, "anatomy", "balance_eps")
    if balance is not None:
        proof.append(f"balance {format_number(balance, digits=2)} eps")
    return "; ".join(part for part in (", ".join(shape), ", ".join(proof)) if part)


def _unusual(provenance: Mapping[str, Any]) -> list[str]:
    """What is unusual about the equations of the model, as its anatomy says it."""
    sentences = value_at(provenance, "anatomy", "unusual")
    return [f"unusual: {line}" for line in cast(list[str], sentences or [])]


def _placements(provenance: Mapping[str, Any]) -> list[str]:
    layers = value_at(provenance, "anatomy", "layers")
    if not isinstance(layers, list):
        return []
    blocks = cast(list[dict[str, Any]], layers)
    placements = dict.fromkeys(block.get("placement") for block in blocks)
    words = [f"{placement}-norm" for placement in placements if placement not in (None, "none")]
    if any(block.get("parallel") for block in blocks):
        words.append("parallel")
    return words


def _input(provenance: Mapping[str, Any]) -> str:
    examples = number_at(provenance, "input", "examples")
    tokens = number_at(provenance, "input", "tokens")
    seed = number_at(provenance, "input", "seed")
    facts = [
        text_at(provenance, "input", "kind"),
        "" if examples is None else _plural(int(examples), "example"),
        "" if tokens is None else _plural(int(tokens), "token"),
        "" if seed is None else f"seed {int(seed)}",
    ]
    described = ", ".join(part for part in facts if part)
    loss = text_at(provenance, "loss", "kind")
    value = number_at(provenance, "loss", "value")
    if loss and value is not None:
        loss = f"{loss} {format_number(value)}"
    parts = (f"input: {described}" if described else "", f"loss: {loss}" if loss else "")
    return "; ".join(part for part in parts if part)


def passes_text(provenance: Mapping[str, Any]) -> str:
    """Say how many passes were made, and what for; empty where the record does not say."""

    def of(kind: str) -> int:
        return int(number_at(provenance, "passes", kind) or 0)

    measuring = [f"{of(kind)} {kind}" for kind in ("forward", "backward") if of(kind)]
    if not measuring:
        return ""
    measuring_passes = f"{' and '.join(measuring)} pass"
    others = [
        f"{of(kind)} forward {'pass' if of(kind) == 1 else 'passes'} {purpose}"
        for kind, purpose in (
            ("anatomy_forward", "to read the anatomy"),
            ("head_forward", "to see what the model returns"),
            ("ablation_forward", "with a part left out"),
        )
        if of(kind)
    ]
    return ", and ".join([measuring_passes, *others])


def _sweep(provenance: Mapping[str, Any]) -> str:
    axes = value_at(provenance, "sweep", "axes")
    if not isinstance(axes, list):
        return ""
    named = [
        f"{text_at(axis, 'name')} ({len(axis.get('labels') or ())})"
        for axis in cast(list[dict[str, Any]], axes)
    ]
    name = sweep_name(provenance)
    return f"{f'Sweep {name}' if name else 'Sweep'}: {' x '.join(named)}"


def sweep_name(provenance: Mapping[str, Any]) -> str:
    """Return the name of a sweep; empty where it was given none, and is called sweep."""
    name = text_at(provenance, "sweep", "name")
    return "" if name == "sweep" else name


def _cells(provenance: Mapping[str, Any]) -> str:
    """Say how the cells of a sweep ended."""
    cell_count = number_at(provenance, "sweep", "cells")
    if cell_count is None:
        return ""
    statuses = [text_at(entry, "status") for key, entry in provenance.items() if is_cell(key)]
    words = [f"{statuses.count(status)} {status}" for status in dict.fromkeys(statuses)]
    if len(statuses) < cell_count:
        words.append(f"{int(cell_count) - len(statuses)} not run yet")
    return f"{_plural(int(cell_count), 'cell')}: {', '.join(words)}"


def _task(provenance: Mapping[str, Any]) -> str:
    """Say what a training run was to learn, and what knowing frequencies alone would cost."""
    entropies = [
        f"{kind} entropy {format_number(value)}"
        for kind in ("unigram", "bigram")
        if (value := number_at(provenance, "task", kind)) is not None
    ]
    described = [text_at(provenance, "task", "name"), *entropies]
    words = ", ".join(word for word in described if word)
    return f"task: {words}" if words else ""


def _runs(record: Record) -> str:
    if is_watched(record):  # its runs are attempts of one, of which the answer tells
        return ""
    runs = record.runs
    return f"{len(runs)} runs; shown: {runs[0]!r}" if len(runs) > 1 else ""


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
