"""Explain in words why the output of a block is not its stream plus outputs of its modules.

The block is run again on its own, on the arguments of a real pass, and its output is compared
with what a mistake would give: outputs of its modules without the stream (a missing skip
connection), the stream alone, or something else on every run (dropout that is switched on).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from leadline.anatomy.find.fit import Replacement, fit_block, fit_stream_alone, fit_without_stream
from leadline.anatomy.find.replay import (
    UNRUNNABLE,
    Arguments,
    Replay,
    branch_shares,
    capture_arguments,
    replay_block,
    zero_gates,
)
from leadline.anatomy.find.unusual import layers_in_words
from leadline.errors import join_words

__all__ = ["DECLARE", "BlockCall", "Cause", "causes_in_words", "explain_blocks"]

DECLARE = "leadline.declare(blocks='...', writes=['...']), or --declare on the command line"

_MOST_BLOCKS = 32
"""At most this many blocks are run again, because their arguments are in memory together."""


@dataclass(frozen=True)
class BlockCall:
    """A block by its layer and its call: the path of its module, and the number of the call."""

    layer: int
    path: str
    number: int


@dataclass(frozen=True)
class Cause:
    """What the output of one block is (`words`), and what to do about it (`advice`).

    `number` belongs to this block: another block with the same words has its own number.
    """

    call: BlockCall
    words: str
    advice: str
    number: str = ""

    @property
    def anonymous(self) -> tuple[str, str]:
        """Words and advice without the block's path, equal for layers with the same fault."""
        return self.words.replace(f"'{self.call.path}.", "'"), self.advice


def explain_blocks(
    model: nn.Module,
    forward: Callable[[], object],
    calls: Sequence[BlockCall],
    shape: torch.Size,
    *,
    updates: Collection[str] = (),
) -> list[Cause]:
    """The cause for each block whose fault can be named.

    `updates` are modules, as seen from a block, that other layers are known to add to the stream.
    """
    calls = calls[:_MOST_BLOCKS]
    captured = capture_arguments(model, forward, {(call.path, call.number) for call in calls})
    modules = dict(model.named_modules())
    causes = [
        _cause_in(call, modules[call.path], captured[call.path, call.number], shape, updates)
        for call in calls
        if (call.path, call.number) in captured
    ]
    return [cause for cause in causes if cause is not None]


def causes_in_words(causes: Sequence[Cause], *, where: str, missed: int, depth: int) -> str:
    """The first cause, the layers that share it, and the others; what to do at the end.

    `where` begins the first sentence. `missed` counts the layers, of `depth`, that do not balance.
    """
    first, *rest = causes
    text = f"{where} {first.words}{first.number}."
    same = [cause.call.layer for cause in rest if cause.anonymous == first.anonymous]
    if len(same) == depth - 1 > 0:
        text += " The same is true of all other layers."
    elif same:
        text += f" The same is true of {layers_in_words(same, depth)}."
    for other in [cause for cause in rest if cause.anonymous != first.anonymous][:2]:
        text += f" In layer {other.call.layer} {other.words}{other.number}."
    others = depth - missed
    if others > 0:
        text += (
            f" The other {f'{others} layers add' if others > 1 else 'layer adds'} to the stream."
        )
    return f"{text} {first.advice}"


def _cause_in(
    call: BlockCall,
    block: nn.Module,
    arguments: Arguments,
    shape: torch.Size,
    updates: Collection[str],
) -> Cause | None:
    try:
        replay, again = (replay_block(call.path, block, arguments, shape) for _ in range(2))
    except UNRUNNABLE:
        return None
    look = f"Look at the forward of {type(block).__name__}."
    if not torch.equal(replay.after, again.after):
        return Cause(
            call, "two runs on the same input give different outputs", _chance_advice(block)
        )
    if fit_block(replay) is not None:  # nothing is wrong with it
        return None
    factor = fit_stream_alone(replay)
    if factor == 1.0:
        return _unchanged_stream(call, replay, look)
    if factor is not None:
        words = f"the output is {factor:.6g} x the stream that entered: nothing is written"
        return Cause(call, words, look)
    replacement = fit_without_stream(replay)
    if replacement is None:
        return None
    inside = {part.path.removeprefix(f"{call.path}.") for _, part in replacement.parts}
    certain = replacement.certain or inside <= set(updates)
    if not certain:
        look += f" If that is so, declare what writes to the stream: {DECLARE}."
    return Cause(call, _replacement_in_words(replacement, certain), look)


def _unchanged_stream(call: BlockCall, replay: Replay, look: str) -> Cause:
    """The cause of a stream that leaves as it entered: tiny updates, a shut gate, or no write."""
    same = "the output is the stream that entered"
    eps = torch.finfo(replay.after.dtype).eps
    shares = branch_shares(replay)
    if shares and 0.0 < max(shares) < eps:
        return Cause(
            call,
            f"{same}: its updates are smaller than rounding",
            "The weights may have been drawn with a tiny std, or scaled down: measure trained "
            "weights, or draw them larger (initializer_range=0.02 in the configuration, or in the "
            "part of it that belongs to these layers).",
            f" (the largest is {max(shares):.2g} of the stream)",
        )
    gates = zero_gates(replay)
    if gates:
        names = join_words([f"'{name}'" for name in gates])
        what = "parameter" if len(gates) == 1 else "parameters"
        verb = "is exactly 0 and may be the gate that closes it"
        if len(gates) > 1:
            verb = "are exactly 0 and may be the gates that close it"
        return Cause(
            call,
            f"{same}: nothing is written; the {what} {names} {verb}",
            "Measure after a step of training, or set what is 0 to a small value such as 0.01.",
        )
    return Cause(call, f"{same}: nothing is written", look)


def _replacement_in_words(replacement: Replacement, certain: bool) -> str:
    names = [f"'{part.path}'" for _, part in replacement.parts]
    factors = [f"{gain:.6g} x " if gain != 1.0 else "" for gain, _ in replacement.parts]
    if any(factors):
        what = join_words([f"{f}what {n} returned" for f, n in zip(factors, names, strict=True)])
    else:
        what = f"what {join_words(names)} returned"
    added = ", added up" if len(names) > 1 else ""
    settle = replacement.settle
    subject = "the output is" if settle is None else f"'{settle.path}' takes in"
    diagnosis = (
        "its skip connection is missing" if len(names) == 1 else "a skip connection is missing"
    )
    if certain:
        return f"{subject} {what}{added}, without the stream that entered: {diagnosis}"
    within = f"{names[0]} adds" if len(names) == 1 else "one of them adds"
    return (
        f"{subject} {what}{added}, and the block does not add the stream to it: {diagnosis}, "
        f"unless {within} the stream inside"
    )


def _chance_advice(block: nn.Module) -> str:
    """What to do about a block that draws at random."""
    if any(module.training for module in block.modules()):
        return "The block is in training mode: call model.eval() first."
    return (
        "The model is in eval mode, so look for a dropout function that is called without "
        "training=self.training, or for another random draw."
    )
