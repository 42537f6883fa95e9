"""What all tensors of one carried pass share: components, hops, and where the pass is."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import torch

from leadline.instruments.paths.carried.books import Book, ByLength
from leadline.instruments.paths.carried.heads import heads_of_rows
from leadline.instruments.paths.carried.ledger import RowLedger
from leadline.instruments.paths.carried.rows import (
    ENTRY,
    ComponentRows,
    Ways,
    both_families,
    family,
)
from leadline.instruments.paths.carried.tokens import Meeting, Tokens

__all__ = ["Event", "FrozenBy", "Journey", "Parts", "storage_of"]

Tensor = torch.Tensor
T = TypeVar("T")


class Parts:
    """The components of a tensor. `activated`: it came through an activation or a gate.

    Inputs and sources may come as one stack, in which they are carried.
    """

    __slots__ = ("activated", "rows")

    def __init__(
        self,
        inputs: ComponentRows,
        sources: ComponentRows | None = None,
        activated: bool = False,
    ) -> None:
        self.rows = inputs if sources is None else both_families(inputs, sources)
        self.activated = activated

    @property
    def inputs(self) -> ComponentRows:
        """What came from the stream as it entered, by hops."""
        return family(self.rows, sources=False)

    @property
    def sources(self) -> ComponentRows | None:
        """What joined on the way, by hops since; None: nothing did."""
        return family(self.rows, sources=True) if self.rows.sources else None

    @property
    def coarsest(self) -> torch.dtype:
        """The number type with the largest eps that the components went through."""
        return self.rows.coarsest


class FrozenBy(NamedTuple):
    """The operation that froze a tensor, the module in which it ran, and what it did."""

    operation: str
    module: str
    deed: str = "affects it other than as a pattern, a norm's statistic or a gate"


@dataclass(frozen=True, eq=False)
class Event:
    """One product of a pattern with values, in the order in which they were met."""

    index: int
    module: str
    entered: int
    """Rows of the values before it: the hops that the longest path had behind it, plus one."""
    meeting: Meeting | None = None
    features: int = -1
    """The axis of the result along which features lie; rows (queries) lie along the other."""
    ways: Ways = ENTRY
    """By which paths the values were reached."""

    @property
    def numbers(self) -> Tensor | None:
        """The head of every row: how often the same token asked before in this product."""
        if self.meeting is None or self.meeting.queries is None:
            return None
        return heads_of_rows(self.meeting.queries)


@dataclass
class Journey:
    """What all tensors of one pass share: the book of rows, where the pass is, what it met."""

    book: Book = field(default_factory=ByLength)
    running: list[str] = field(default_factory=list[str])
    """The paths of the modules that are running, the innermost last."""
    events: list[Event] = field(default_factory=list[Event])
    taken: set[int] = field(default_factory=set[int])
    """The hops whose results were computed: scores of frozen queries and keys are no hops."""
    inside: bool = False
    """Whether a block is running: behind the last one tokens may be pooled."""
    joined: set[str] = field(default_factory=set[str])
    """Modules in which a plain tensor as large as the stream was added to it."""
    written: set[str] = field(default_factory=set[str])
    """Modules that changed the stream in place."""
    sheets: dict[int, Tensor] = field(default_factory=dict[int, Tensor])
    """The owners of memory that was made to be written into, by where they are stored."""
    ledger: RowLedger = field(default_factory=RowLedger)
    """What followed from owners so far."""

    @property
    def module(self) -> str:
        return self.running[-1] if self.running else ""

    def answer(self, question: Hashable, compute: Callable[[], T], *, about: Sequence[Tokens]) -> T:
        """What follows from these owners; it is remembered unless somebody writes into them."""
        if self.sheets and any(
            storage_of(one) in self.sheets for tokens in about for one in tokens
        ):
            return compute()
        return self.ledger.answer(question, compute, about=about)

    def hop(self, rows: ComponentRows, met: Meeting, *, features: int) -> Event:
        """Note a hop of these rows of values."""
        event = Event(len(self.events), self.module, rows.inputs, met, features, rows.ways)
        self.events.append(event)
        return event


def storage_of(tensor: Tensor) -> int:
    """Where the memory of a tensor begins."""
    return tensor.untyped_storage().data_ptr()
