"""The facts of passes with changed tokens, in the form that rules ask them.

Strings of 0 and 1 say which tokens moved. Of a mixer of tokens (an attention module) they say what it
does alone, of the output what the model does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from leadline.reading.diagnosis.case import OUTSIDE, Case
from leadline.reading.diagnosis.words import layers_text

__all__ = ["Mixer", "TokenPanel", "by_stack", "encoder_input", "panels_of", "place_text"]


@dataclass(frozen=True)
class Mixer:
    """What one mixer of tokens does alone: which tokens a change of one token moves."""

    path: str
    stack: str
    layer: int
    middle: str
    first: str
    last: str
    swap: str


class TokenPanel:
    """One pass over the variants of an example."""

    def __init__(self, facts: Mapping[str, Any]) -> None:
        self.facts = facts
        self.tokens: int = facts["tokens"]
        self.middle: int = facts["middle"]
        self.last: int = facts["last"]
        self.first: int = facts["first"]
        self.pair: tuple[int, int] = tuple(facts["pair"])

    @property
    def output(self) -> Mapping[str, str] | None:
        """What moved in the output, by row; None where the output has no tokens."""
        return self.facts.get("output")

    @property
    def rows_differ(self) -> bool:
        """Whether equal examples gave different outputs: then nothing else here can be read."""
        return bool(self.facts.get("rows_differ"))

    @property
    def twin(self) -> TokenPanel | None:
        """The same of the twin, whose mixers stand where this one's do."""
        facts = self.facts.get("twin")
        if facts is None:
            return None
        shared = {key: self.facts[key] for key in ("tokens", "middle", "first", "last", "pair")}
        places = {
            path: {key: entry[key] for key in ("stack", "layer") if key in entry}
            for path, entry in self.facts.get("mixers", {}).items()
        }
        mixers = {
            path: {**entry, **places.get(path, {})}
            for path, entry in facts.get("mixers", {}).items()
        }
        return TokenPanel({**facts, **shared, "mixers": mixers})

    @cached_property
    def mixers(self) -> list[Mixer]:
        """The mixers of the tokens of this input that could be judged alone."""
        return [
            Mixer(
                path,
                entry.get("stack", OUTSIDE),
                entry.get("layer", 0),
                *(entry[name] for name in ("middle", "first", "last", "swap")),
            )
            for path, entry in self.facts.get("mixers", {}).items()
            if "first" in entry
        ]

    def mixer(self, path: str) -> Mixer | None:
        """One mixer by its path."""
        return next((one for one in self.mixers if one.path == path), None)

    def placed(self, module: str) -> tuple[bool, bool] | None:
        """Whether queries and keys of an attention depend on the place of their token; None: unknown."""
        sides = self.facts.get("mixers", {}).get(module, {}).get("placed")
        return None if sides is None else (sides[0], sides[1])

    def turned_apart(self, module: str) -> str:
        """What is turned by angles of its own in an attention: queries and keys, or the values too."""
        entry = self.facts.get("mixers", {}).get(module, {})
        if entry.get("value_turned"):
            return "values"
        return "queries and keys" if entry.get("angles") == "different" else ""

    def looks_ahead(self, moved: Mapping[str, str] | Mixer) -> bool:
        """Whether tokens before the changed one moved."""
        middle, last = _strings(moved, "middle", "last")
        return "1" in middle[: self.middle] or "1" in last[: self.last]

    def mixes(self, mixer: Mixer) -> bool:
        """Whether a changed token moves any other token."""
        return any(
            "1" in bits[:at] + bits[at + 1 :]
            for bits, at in (
                (mixer.middle, self.middle),
                (mixer.first, self.first),
                (mixer.last, self.last),
            )
        )

    def tells_order(self, moved: Mapping[str, str] | Mixer) -> bool:
        """Whether two tokens that change places move others."""
        (bits,) = _strings(moved, "swap")
        return any(bit == "1" for at, bit in enumerate(bits) if at not in self.pair)


def _strings(moved: Mapping[str, str] | Mixer, *names: str) -> list[str]:
    if isinstance(moved, Mixer):
        return [getattr(moved, name) for name in names]
    return [moved[name] for name in names]


def panels_of(case: Case, *, with_rows: bool = False) -> Iterator[TokenPanel]:
    """The passes of the visit, without those whose rows cannot be compared unless asked for."""
    for facts in case.fact("token_panels", ()):
        panel = TokenPanel(facts)
        if with_rows or not panel.rows_differ:
            yield panel


def by_stack(mixers: Sequence[Mixer]) -> dict[str, list[Mixer]]:
    """Mixers by their stack."""
    stacks: dict[str, list[Mixer]] = {}
    for one in mixers:
        stacks.setdefault(one.stack, []).append(one)
    return stacks


def place_text(case: Case, stack: str, layers: Sequence[int]) -> str:
    """`layer 3 of the decoder`, `all 12 layers of the encoder`; nothing outside of blocks."""
    if stack == OUTSIDE or not layers:
        return "the model"
    return f"{layers_text(layers, case.depth(stack))} of the {stack}"


def encoder_input(case: Case, panel: TokenPanel) -> bool:
    """Whether a pass changed the tokens of the encoder of a pair."""
    names = {one["input"] for one in case.fact("token_panels", ())}
    return "decoder_input_ids" in names and panel.facts["input"] != "decoder_input_ids"
