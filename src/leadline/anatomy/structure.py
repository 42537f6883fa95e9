"""The nouns of an anatomy: a stack of blocks, each a row of sublayers that write to one stream.

For every sublayer

    settle(keep * before + gain * returned) = after

where `returned` is a tensor that the named module returned. Layers count from 1; stream site 0 is
what enters the first block. Where the write is no scalar equation (several lanes, gates) the
sublayer carries a `law`, which splits `after` into what was kept and what was written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

import torch

from leadline.anatomy.find.unusual import unusual_sentences

__all__ = [
    "Anatomy",
    "Balance",
    "Block",
    "Port",
    "Stack",
    "Sublayer",
    "WriteLaw",
    "equation",
    "relative",
]

Tensor = torch.Tensor


@dataclass(frozen=True)
class Port:
    """Where a tensor is read: what goes into a module, or what comes out of it."""

    module: str
    side: Literal["input", "output"]


class WriteLaw(Protocol):
    """A write that is no scalar equation.

    `watches` names the tensors that it needs: a module's path for its output, a port for the first
    argument of its call.
    """

    @property
    def watches(self) -> tuple[str | Port, ...]: ...

    @property
    def formula(self) -> str: ...

    def __call__(
        self, before: Tensor, returned: Tensor, watched: Mapping[Any, object]
    ) -> tuple[Tensor, Tensor]:
        """Return (kept, update): the stream after this write is their sum."""
        ...


@dataclass(frozen=True)
class Sublayer:
    """One write: the module that returned the update, and how it joins the stream.

    `gain` is a number, or the path of a parameter that multiplies every feature on its own.
    `call` counts the calls of the module within the block: one dropout may serve two writes.
    `parallel`: the branch reads the stream as it enters the block, not after the write before it.
    """

    sublayer: int
    role: str
    module: str
    gain: float | str = 1.0
    keep: float = 1.0
    settle: str | None = None
    settle_call: int = 0
    call: int = 0
    parallel: bool = False
    placement: str = "none"
    law: WriteLaw | None = None
    parameters: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "sublayer": self.sublayer,
            "role": self.role,
            "module": self.module,
            "gain": self.gain if self.law is None else None,
            "keep": self.keep if self.law is None else None,
            "settle": self.settle,
            "parallel": self.parallel,
            "placement": self.placement,
            "law": self.law.formula if self.law is not None else None,
        }


@dataclass(frozen=True)
class Block:
    """One layer: where the stream enters, the writes in their order, where it leaves.

    `opening` is a module through which the stream itself goes first (MiniMax norms the stream,
    not the branch's copy of it). `in_place`: the block changes its input tensor.
    """

    layer: int
    module: str
    entry: Port
    exit: Port
    sublayers: tuple[Sublayer, ...]
    opening: str | None = None
    in_place: bool = False

    @property
    def parallel(self) -> bool:
        return any(s.parallel for s in self.sublayers)

    @property
    def placement(self) -> str:
        """The placement that all sublayers of the block share, otherwise all of them by name."""
        return "/".join(dict.fromkeys(s.placement for s in self.sublayers)) or "none"

    def to_json(self, stack: str) -> dict[str, Any]:
        return {
            "stack": stack,
            "layer": self.layer,
            "module": self.module,
            "placement": self.placement,
            "parallel": self.parallel,
            "opening": self.opening,
            "sublayers": [s.to_json() for s in self.sublayers],
        }


@dataclass(frozen=True)
class Stack:
    """One stream and its blocks. `token_axis` is 0 for models that run [token, example, width]."""

    name: str
    blocks: tuple[Block, ...]
    width: int
    lanes: int = 1
    token_axis: int = 1
    causal: bool | None = None

    @property
    def depth(self) -> int:
        return len(self.blocks)

    @property
    def shared(self) -> bool:
        """True when one module serves several layers (ALBERT)."""
        return len({block.module for block in self.blocks}) < len(self.blocks)


@dataclass(frozen=True)
class Balance:
    """How well the books balance: the largest miss of any token, in units of rounding.

    The miss of a token is |predicted - after| over the larger of |before| and |after|, divided
    by eps of the stream's dtype. `unjudged` lists the layers whose stream was not finite.
    `uncalled` and `zero` list the writes (stack, layer, sublayer) whose module did not run, and
    those that added exactly zero: both balance, whatever the module is.
    """

    eps: float
    stack: str
    layer: int
    dtype: str
    layers: int
    per_layer: Mapping[tuple[str, int], float] = field(default_factory=dict)
    unjudged: tuple[tuple[str, int], ...] = ()
    faintest: float = float("inf")
    uncalled: tuple[tuple[str, int, int], ...] = ()
    zero: tuple[tuple[str, int, int], ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "balance_eps": self.eps,
            "balance_worst": {"stack": self.stack, "layer": self.layer},
            "balance_dtype": self.dtype,
            "balance_judged": self.layers,
            "balance_unjudged": [{"stack": s, "layer": n} for s, n in self.unjudged],
            "balance_faintest_update_eps": self.faintest,
            "balance_zero_updates": [
                {"stack": stack, "layer": layer, "sublayer": sublayer}
                for stack, layer, sublayer in self.zero
            ],
        }


@dataclass(frozen=True)
class Anatomy:
    """A model seen as streams and their sublayers, with where that knowledge comes from."""

    stacks: tuple[Stack, ...]
    source: str
    balance: Balance | None = None
    remarks: tuple[str, ...] = ()

    def stack(self, name: str) -> Stack:
        return next(s for s in self.stacks if s.name == name)

    @property
    def depth(self) -> int:
        return sum(s.depth for s in self.stacks)

    @property
    def sublayers(self) -> int:
        return sum(len(b.sublayers) for s in self.stacks for b in s.blocks)

    def proved(self, balance: Balance) -> Anatomy:
        return replace(self, balance=balance)

    @property
    def unusual(self) -> tuple[str, ...]:
        """What is unusual about the equations, one sentence each; empty for a usual design."""
        return unusual_sentences(self)

    def to_json(self) -> dict[str, Any]:
        out: dict[str, Any] = {
            "source": self.source,
            "depth": self.depth,
            "sublayers": self.sublayers,
            "stacks": {
                s.name: {
                    "depth": s.depth,
                    "width": s.width,
                    "lanes": s.lanes,
                    "causal": s.causal,
                    "shared": s.shared,
                }
                for s in self.stacks
            },
            "layers": [b.to_json(s.name) for s in self.stacks for b in s.blocks],
            "remarks": list(self.remarks),
            "unusual": list(self.unusual),
        }
        if self.balance is not None:
            out |= self.balance.to_json()
        return out

    def __str__(self) -> str:
        lines = [f"anatomy: {self.depth} layers, {self.sublayers} sublayers, by {self.source}"]
        if self.balance is not None:
            b = self.balance
            lines.append(
                f"balance: {b.eps:.2f} eps of {b.dtype}, worst at {b.stack} layer {b.layer}, "
                f"{b.layers} layers judged"
            )
        lines += [f"unusual: {sentence}" for sentence in self.unusual]
        for stack in self.stacks:
            lanes = f", {stack.lanes} lanes" if stack.lanes > 1 else ""
            lines.append(f"{stack.name}: depth {stack.depth}, width {stack.width}{lanes}")
            lines += [f"  {text}" for text in _folded(stack)]
        lines += [f"remark: {remark}" for remark in self.remarks]
        return "\n".join(lines)


def _folded(stack: Stack) -> list[str]:
    """One line per run of equal blocks, then one per sublayer of the first block of the run."""
    runs: list[list[Block]] = []
    for block in stack.blocks:
        if runs and _shape(runs[-1][0]) == _shape(block):
            runs[-1].append(block)
        else:
            runs.append([block])
    lines: list[str] = []
    for run in runs:
        first, last = run[0], run[-1]
        layers = f"layer {first.layer}" if len(run) == 1 else f"layers {first.layer}-{last.layer}"
        where = first.module if first.module == last.module else f"{first.module} ... {last.module}"
        kind = "parallel, " if first.parallel else ""
        norms = f"{first.placement} norm" if first.sublayers else "no write"
        lines.append(f"{layers}: {where} ({kind}{norms})")
        if first.opening is not None:
            lines.append(f"  x <- {relative(first.opening, first.module)}(x)")
        lines += [f"  {s.role}: {equation(s, first)}" for s in first.sublayers]
    return lines


def _shape(block: Block) -> tuple[Any, ...]:
    """What makes two blocks look the same on paper."""
    opening = None if block.opening is None else relative(block.opening, block.module)
    return (
        opening,
        *((s.role, equation(s, block), s.placement, s.parallel) for s in block.sublayers),
    )


def _gain(gain: float | str) -> str:
    return gain.rsplit(".", 1)[-1] if isinstance(gain, str) else f"{gain:.6g}"


def equation(s: Sublayer, block: Block) -> str:
    """The write as a formula, with names as seen from its block."""
    name = relative(s.module, block.module)
    if s.law is not None:
        return f"x <- {s.law.formula} with u = {name}"
    keep = "" if s.keep == 1.0 else f"{s.keep:.6g} "
    sign, gain = "+", _gain(s.gain)
    if gain.startswith("-"):
        sign, gain = "-", gain[1:]
    factor = "" if gain == "1" else f"{gain} "
    text = f"{keep}x {sign} {factor}{name}"
    if s.settle is not None:
        text = f"{relative(s.settle, block.module)}({text})"
    return f"x <- {text}"


def relative(path: str, parent: str) -> str:
    """The path as seen from a parent module."""
    return path[len(parent) + 1 :] if path.startswith(f"{parent}.") else path
