"""The first thing a reader of the page sees: the answer in sentences, and facts of the model."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from leadline.reading.show.blocks import read_blocks
from leadline.reading.show.wording import count, number
from leadline.record.provenance import number_at, text_at, value_at
from leadline.record.words.answer import answer, depth_answer
from leadline.record.words.screen import Sentence
from leadline.record.words.summary import passes_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from leadline.record import Record

__all__ = [
    "Fact",
    "balance_sentence",
    "comparing_sentences",
    "facts",
    "record_answer",
    "sentences",
    "structure_sentence",
]

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
    """Say what one record answers, then what the model is, where there is one."""
    has_model = bool(record.stacks) and value_at(record.provenance, "anatomy") is not None
    if record.instrument:
        structure = [structure_sentence(record)] if has_model else []
        return [*record_answer(record), *structure]
    return [*depth_answer(record), structure_sentence(record)]


def record_answer(record: Record) -> list[str]:
    """Return the sentences with which a record begins where it is printed: its answer."""
    if not record.instrument:
        return answer(record)
    begins = takewhile(lambda part: isinstance(part, Sentence) and part.text, record.screen().parts)
    return [part.text for part in begins if isinstance(part, Sentence)]


def comparing_sentences(records: Sequence[Record], names: Sequence[str]) -> list[str]:
    """Say how records differ."""
    from leadline.reading.compare.answer import comparison_answer
    from leadline.reading.compare.compare import compare

    return comparison_answer(compare(*records, names=list(names)), names=names)


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
    missed = missed_layers(known)
    if missed:
        entries.append(Fact("Balance", missed, "all others to rounding"))
    elif eps is not None:
        entries.append(Fact("Balance", f"{number(eps, digits=2)} eps", "rounding of the stream"))
    return entries


def missed_layers(known: Mapping[str, Any]) -> str:
    """Name the layers that do not balance; empty where all do."""
    rows: list[dict[str, Any]] = value_at(known, "anatomy", "balance_missed") or []
    layers = [str(row["layer"]) for row in rows]
    if not layers:
        return ""
    noun = "layer" if len(layers) == 1 else "layers"
    return f"{noun} {', '.join(layers)} {'misses' if len(layers) == 1 else 'miss'}"


def balance_sentence(known: Mapping[str, Any]) -> str:
    """Say how well the books balance, and where worst."""
    if missed := missed_layers(known):
        return f"The books do not balance: {missed}."
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


def structure_sentence(record: Record) -> str:
    """Say what the model is: its stacks, their depth and where the norms stand."""
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
