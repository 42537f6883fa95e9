"""How a wild fault is described: the thread, what was wrong there, and the tiny model that has it.

A wild fault is one function of a flag. It builds the model as its author had it, or, with the flag,
as the author repaired it. Both are built from the same random state, so the weights that both have
are equal and whatever differs between them is the fault.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from leadline.testing.faults.answer import Answer
from leadline.testing.faults.wild.modules import token_ids

__all__ = ["WildFault", "wild_fault"]

Maker = Callable[[bool], nn.Module]


@dataclass(frozen=True)
class WildFault:
    """A fault that somebody had, with the thread in which it was explained.

    `causes` are the names of rules that would be right, the best one first. `layers` is empty where
    every layer has the fault. `intended` and `by_reference` say what a user has to give beside the
    model for the fault to be visible at all: a description of the design, or the repaired model.
    """

    name: str
    thread: str
    trouble: str
    causes: tuple[str, ...]
    make: Maker
    layers: tuple[int, ...] = ()
    sublayer: str | None = None
    parameter: str | None = None
    stack: str | None = None
    feed: Callable[[], Any] = token_ids
    intended: str = ""
    by_reference: bool = False
    repair_changes_output: bool = True
    finite: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.causes:
            raise ValueError(f"The wild fault {self.name} names no cause; give at least one.")

    @property
    def answer(self) -> Answer:
        """What a diagnosis has to say."""
        return Answer(
            causes=frozenset(self.causes),
            stack=self.stack,
            layers=self.layers,
            sublayer=self.sublayer,
            parameter=self.parameter,
        )

    def build(self) -> tuple[nn.Module, Any, Answer]:
        """The sick model in evaluation mode, inputs for it, and the answer."""
        return self._made(repaired=False), self.feed(), self.answer

    def healthy(self) -> nn.Module:
        """The model as the thread repaired it."""
        return self._made(repaired=True)

    def means(self) -> Mapping[str, Any]:
        """What a user gives to the diagnosis beside model and inputs."""
        given: dict[str, Any] = {}
        if self.intended:
            given["intended"] = self.intended
        if self.by_reference:
            given["reference"] = self.healthy()
        return given

    def _made(self, *, repaired: bool) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            return self.make(repaired).eval()


def wild_fault(
    shelf: list[WildFault], thread: str, trouble: str, causes: tuple[str, ...], **details: Any
) -> Callable[[Maker], Maker]:
    """Put the fault that a function builds on a shelf, under the function's name."""

    def register(make: Maker) -> Maker:
        name = make.__name__.strip("_").replace("_", "-")
        shelf.append(WildFault(name, thread, trouble, causes, make, **details))
        return make

    return register
