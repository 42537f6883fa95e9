"""Why the output of a block is not its stream plus outputs of its modules, in words.

The block is run again on its own, on the arguments of a real pass, and its output is compared
with what a mistake would give: outputs of its modules without the stream (a missing skip
connection), the stream alone, or something else on every run (dropout that is switched on).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from leadline.anatomy.fit import Replacement, fit_block, fit_stream_alone, fit_without_stream
from leadline.anatomy.replay import (
    Arguments,
    Replay,
    branch_shares,
    capture_arguments,
    replay_block,
    zero_gates,
)
from leadline.anatomy.unusual import joined, layers_in_words

__all__ = ["DECLARE", "UNRUNNABLE", "Diagnosis", "Place", "diagnose", "told"]

DECLARE = "leadline.declare(blocks='...', writes=['...']), or --declare on the command line"
UNRUNNABLE = (RuntimeError, TypeError, ValueError, LookupError, AttributeError, AssertionError)
"""What a block may raise when it is called on its own."""

_MOST_BLOCKS = 32
"""So many blocks are run again; their arguments are in memory at once."""


@dataclass(frozen=True)
class Place:
    """A block by its layer and its call: the path of its module, and the number of the call."""

    layer: int
    path: str
    number: int


@dataclass(frozen=True)
class Diagnosis:
    """What the output of one block is (`words`), and what to do about it (`advice`).

    `number` is said of this block alone: another with the same words has a number of its own.
    """

    place: Place
    words: str
    advice: str
    number: str = ""

    @property
    def anonymous(self) -> tuple[str, str]:
        """The same for every layer in which the same is wrong."""
        return self.words.replace(f"'{self.place.path}.", "'"), self.advice


def diagnose(
    model: nn.Module,
    forward: Callable[[], object],
    places: Sequence[Place],
    shape: torch.Size,
    *,
    updates: Collection[str] = (),
) -> list[Diagnosis]:
    """What is wrong with each of the blocks, as far as it can be told.

    `updates` are modules, as seen from a block, that other layers are known to add to the stream.
    """
    places = places[:_MOST_BLOCKS]
    captured = capture_arguments(model, forward, {(p.path, p.number) for p in places})
    modules = dict(model.named_modules())
    found = [
        _of_block(place, modules[place.path], captured[place.path, place.number], shape, updates)
        for place in places
        if (place.path, place.number) in captured
    ]
    return [diagnosis for diagnosis in found if diagnosis is not None]


def told(found: Sequence[Diagnosis], *, where: str, missed: int, depth: int) -> str:
    """The first diagnosis, the layers that share it, and the others; what to do at the end.

    `where` begins the first sentence. `missed` counts the layers, of `depth`, that do not balance.
    """
    first, *rest = found
    text = f"{where} {first.words}{first.number}."
    same = [d.place.layer for d in rest if d.anonymous == first.anonymous]
    if len(same) == depth - 1 > 0:
        text += " The same is true of all other layers."
    elif same:
        text += f" The same is true of {layers_in_words(same, depth)}."
    for other in [d for d in rest if d.anonymous != first.anonymous][:2]:
        text += f" In layer {other.place.layer} {other.words}{other.number}."
    others = depth - missed
    if others > 0:
        text += (
            f" The other {f'{others} layers add' if others > 1 else 'layer adds'} to the stream."
        )
    return f"{text} {first.advice}"


def _of_block(
    place: Place,
    block: nn.Module,
    arguments: Arguments,
    shape: torch.Size,
    updates: Collection[str],
) -> Diagnosis | None:
    try:
        replay, again = (replay_block(place.path, block, arguments, shape) for _ in range(2))
    except UNRUNNABLE:
        return None
    look = f"Look at the forward of {type(block).__name__}."
    if not torch.equal(replay.after, again.after):
        return Diagnosis(place, "two runs on the same input give different outputs", _chance(block))
    if fit_block(replay) is not None:  # nothing is wrong with it
        return None
    factor = fit_stream_alone(replay)
    if factor == 1.0:
        return _unchanged(place, replay, look)
    if factor is not None:
        words = f"the output is {factor:.6g} x the stream that entered: nothing is written"
        return Diagnosis(place, words, look)
    replacement = fit_without_stream(replay)
    if replacement is None:
        return None
    inside = {seen.path.removeprefix(f"{place.path}.") for _, seen in replacement.parts}
    certain = replacement.certain or inside <= set(updates)
    if not certain:
        look += f" If that is so, declare what writes to the stream: {DECLARE}."
    return Diagnosis(place, _replaced(replacement, certain), look)


def _unchanged(place: Place, replay: Replay, look: str) -> Diagnosis:
    """A stream that leaves as it entered: its updates are too small, a gate is shut, or neither."""
    same = "the output is the stream that entered"
    eps = torch.finfo(replay.after.dtype).eps
    shares = branch_shares(replay)
    if shares and 0.0 < max(shares) < eps:
        return Diagnosis(
            place,
            f"{same}: its updates are smaller than rounding",
            "The weights may have been drawn with a tiny std, or scaled down: measure trained "
            "weights, or draw them larger (initializer_range=0.02 in the configuration, or in the "
            "part of it that belongs to these layers).",
            f" (the largest is {max(shares):.2g} of the stream)",
        )
    gates = zero_gates(replay)
    if gates:
        names = joined([f"'{name}'" for name in gates])
        what = "parameter" if len(gates) == 1 else "parameters"
        verb = "is exactly 0 and may be the gate that closes it"
        if len(gates) > 1:
            verb = "are exactly 0 and may be the gates that close it"
        return Diagnosis(
            place,
            f"{same}: nothing is written; the {what} {names} {verb}",
            "Measure after a step of training, or set what is 0 to a small value such as 0.01.",
        )
    return Diagnosis(place, f"{same}: nothing is written", look)


def _replaced(replacement: Replacement, certain: bool) -> str:
    names = [f"'{seen.path}'" for _, seen in replacement.parts]
    factors = [f"{gain:.6g} x " if gain != 1.0 else "" for gain, _ in replacement.parts]
    if any(factors):
        what = joined([f"{f}what {n} returned" for f, n in zip(factors, names, strict=True)])
    else:
        what = f"what {joined(names)} returned"
    added = ", added up" if len(names) > 1 else ""
    settle = replacement.settle
    subject = "the output is" if settle is None else f"'{settle.path}' takes in"
    missing = (
        "its skip connection is missing" if len(names) == 1 else "a skip connection is missing"
    )
    if certain:
        return f"{subject} {what}{added}, without the stream that entered: {missing}"
    within = f"{names[0]} adds" if len(names) == 1 else "one of them adds"
    return (
        f"{subject} {what}{added}, and the block does not add the stream to it: {missing}, "
        f"unless {within} the stream inside"
    )


def _chance(block: nn.Module) -> str:
    """What to do about a block that draws at random."""
    if any(module.training for module in block.modules()):
        return "The block is in training mode: call model.eval() first."
    return (
        "The model is in eval mode, so look for a dropout function that is called without "
        "training=self.training, or for another random draw."
    )
