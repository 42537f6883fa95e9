"""Conformance: does a part do what its protocol asks and what it declares?

    for check in check_part("connection", "deepnorm"):
        print(check.name, check.passed, check.detail)

`leadline check FILE.py` runs the same over the parts of a file. Every part is built into tiny
Transformers and run: shapes, gradients, save and load, number types, autocast, torch.compile,
state between calls, causality, cache, balance, random numbers. What a part declares of itself is
proved on top. Nothing here knows the formula of a part: that is for the tests of its own file.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

from leadline.catalog import Choice
from leadline.errors import Progress, UnknownName
from leadline.parts import PARTS
from leadline.testing.conformance import (
    branches,
    building,
    connections,
    documents,
    inits,
    norms,
    pairs,
    placements,
    positions,
    precision,
    running,
)
from leadline.testing.conformance._case import PartCase
from leadline.testing.conformance._check import PartCheck, Question, answer

__all__ = [
    "PartCheck",
    "check_attention",
    "check_connection",
    "check_embedding",
    "check_head",
    "check_init",
    "check_mlp",
    "check_norm",
    "check_part",
    "check_placement",
    "check_positions",
]

Spelling = str | Mapping[str, Any] | Choice
Questions = Callable[[PartCase], list[Question]]

FOR_EVERY_PART: tuple[Questions, ...] = (
    building.questions,
    documents.questions,
    running.questions,
    precision.questions,
)
"""The checks that every part takes."""

FOR_KIND: dict[str, tuple[Questions, ...]] = {
    "attention": (branches.questions,),
    "positions": (positions.questions,),
    "mlp": (branches.questions,),
    "norm": (norms.questions,),
    "connection": (connections.questions, pairs.questions),
    "placement": (placements.questions, pairs.questions),
    "init": (inits.questions,),
    "embedding": (),
    "head": (),
}
"""The further checks of each kind of part."""


def check_part(
    kind: str,
    choice: Spelling,
    *,
    only: Collection[str] | None = None,
    progress: Progress | None = None,
) -> list[PartCheck]:
    """Check one part. `kind` is a field of a recipe, `choice` a name, perhaps with options.

    `only` names the checks to run; whether it builds is always checked, and a part that does not
    build gets no other check. `progress` is called with the name of a check, the checks done and the checks in all.
    """
    if kind not in PARTS:
        raise UnknownName("kind of part", kind, PARTS)
    catalog, choice = PARTS[kind], Choice.parse(choice)
    if set(choice.options) - set(catalog.options(choice.name)):
        catalog.check(choice)  # raises, and lists the options
    case = PartCase(kind, choice)
    questions = [question for ask in (*FOR_EVERY_PART, *FOR_KIND[kind]) for question in ask(case)]
    if only is not None:
        names = [name for name, _ in questions]
        for name in only:
            if name not in names:
                raise UnknownName("check", name, names)
        questions = [(name, ask) for name, ask in questions if name in {"builds", *only}]
    return answer(questions, entry=case.entry, progress=progress)


check_connection = partial(check_part, "connection")
check_placement = partial(check_part, "placement")
check_norm = partial(check_part, "norm")
check_attention = partial(check_part, "attention")
check_mlp = partial(check_part, "mlp")
check_positions = partial(check_part, "positions")
check_init = partial(check_part, "init")
check_embedding = partial(check_part, "embedding")
check_head = partial(check_part, "head")
"""The same for one kind of part: `check_norm("rmsnorm")`."""
