"""What a connection is: how an update joins the stream, and what the stream is in between.

    open(stream) -> state        once, before the first sublayer
    read(state) -> x             what the branch sees
    write(state, update) -> state            the only method that must be written
    settle(state, norm) -> state             where a norm stands after the addition
    close(state) -> stream       once, after the last sublayer
    write_kept(state, update) -> state       for a connection that `drops`, in training

The state is a tensor, or a tuple whose first tensor is the stream as it stands now: lanes
[example, token, lane, width] or a growing history are the connection's own business. Every
sublayer has its own connection object, which knows its place.

A connection that leaves whole updates out in training sets `drops` and writes `write_kept`: it
decides before the branch runs, and asks for the update of the examples that it keeps, if there
are any. Its numbers are those of `write` for the same draws.

A connection declares facts, which `leadline check` proves. They are those of the default options;
a constructor sets its own where an option changes them:

    keeps_identity   a zero update leaves the stream exactly as it was
    starts_as        "identity": at initialisation the update adds nothing;
                     "plain": at initialisation it is x + u; None: neither
    keeps_variance   independent x and u of unit variance give unit variance
    mixes            "doubly stochastic": `mixing(state)` has rows and columns that sum to 1
    varies           the numbers of the connection change from write to write
    amplifies        the stream is multiplied by more than 1, so a norm must follow the addition
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from leadline.catalog import Catalog
from leadline.parts.place import Place

__all__ = ["CONNECTIONS", "Connection", "Scalar", "State"]

State = Any
"""A tensor, or a tuple that starts with one."""

CONNECTIONS: Catalog[type[Connection]] = Catalog(
    "connection",
    package="leadline.parts.connections",
    group="leadline.connections",
    arguments=("place",),
)


class Connection(nn.Module, ABC):
    """Joins updates to the stream; its options are the keyword arguments of the constructor."""

    formula: ClassVar[str] = ""
    """The write on one line, in x (the stream), u (the update) and the symbols of the file."""
    keeps_identity: bool = True
    starts_as: Literal["identity", "plain"] | None = None
    keeps_variance: ClassVar[bool] = False
    mixes: ClassVar[Literal["doubly stochastic"] | None] = None
    varies: bool = False
    amplifies: bool = False
    drops: ClassVar[bool] = False
    """Whether `write_kept` is asked instead of `write` in training."""
    init: ClassVar[str | None] = None
    """The initialisation of the branches that belongs to the design, where there is one."""

    keep: float | None = None
    gain: float | str | None = None
    """Where the write is keep x + gain u: two numbers, or for the gain the name of a parameter."""
    lanes: int = 1

    def __init__(self, place: Place) -> None:
        super().__init__()
        self.place = place

    def open(self, stream: Tensor) -> State:
        return stream

    def read(self, state: State) -> Tensor:
        return self.stream(state)

    @abstractmethod
    def write(self, state: State, update: Tensor) -> State:
        """The state after the update has joined it: the one method that every connection needs."""

    def write_kept(self, state: State, update: Callable[[Tensor | None], Tensor]) -> State:
        """The state after a write that may leave the update out.

        `update` computes the update of the examples of an index [kept], or of all for None.
        """
        return self.write(state, update(None))

    def settle(self, state: State, norm: nn.Module) -> State:
        if isinstance(state, tuple):
            return (norm(state[0]), *state[1:])
        return norm(state)

    def close(self, state: State) -> Tensor:
        return self.stream(state)

    def stream(self, state: State) -> Tensor:
        """The stream in a state."""
        return state[0] if isinstance(state, tuple) else state

    def split(self, state: State, update: Tensor) -> tuple[Tensor, Tensor]:
        """What is kept of the stream and what is written to it: their sum is the stream after.

        Unless a connection knows better, what is kept is what a zero update would have left.
        """
        kept = self.stream(self.write(state, torch.zeros_like(update)))
        return kept, self.stream(self.write(state, update)) - kept

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """The weights that the recipe's init draws: name and tensor. The others stay as built."""
        return iter(())

    @classmethod
    def refuses(cls, placement: Any, sublayers: int) -> str | None:
        """Why this connection makes no sense with a placement, or None."""
        if cls.amplifies and not placement.settles:
            return (
                "it multiplies the stream at every write, so a norm must follow each addition "
                "(placement post or keel)"
            )
        return None


class Scalar(Connection):
    """keep x + gain u with two numbers; a subclass only says which."""

    formula = "keep x + gain u"
    keep: float = 1.0  # pyright: ignore[reportIncompatibleVariableOverride]
    gain: float = 1.0  # pyright: ignore[reportIncompatibleVariableOverride]

    def write(self, state: Tensor, update: Tensor) -> Tensor:
        if self.keep == 1.0:
            return torch.add(state, update, alpha=self.gain)
        if self.gain == 1.0:
            return torch.add(update, state, alpha=self.keep)
        return torch.add(self.keep * state, update, alpha=self.gain)

    def split(self, state: Tensor, update: Tensor) -> tuple[Tensor, Tensor]:
        return self.keep * state, self.gain * update
