"""The blocks of a model as its record holds them, and how equal ones are folded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from leadline.record import Record

__all__ = ["BlockFacts", "Fold", "WriteFacts", "fold_blocks", "module_paths", "read_blocks"]

_LONGEST_PATTERN = 8
"""How many blocks a pattern that repeats may have."""


@dataclass(frozen=True, slots=True)
class WriteFacts:
    """One sublayer of a block: what is added to the stream, and how.

    `gain` is a number, or the path of a parameter that multiplies every feature on its own.
    `parallel`: it reads the stream where the write before it did. `law` is the formula of a write
    that is more than keep and gain.
    """

    role: str
    module: str
    gain: float | str | None
    keep: float | None
    settle: bool
    parallel: bool
    placement: str
    law: str


@dataclass(frozen=True, slots=True)
class BlockFacts:
    """One block of a stack. `opening` is a norm through which the stream itself goes first."""

    stack: str
    layer: int
    module: str
    opening: str
    writes: tuple[WriteFacts, ...]

    @property
    def placement(self) -> str:
        """The placement of its norms, or all of them where the writes differ."""
        return "/".join(dict.fromkeys(write.placement for write in self.writes)) or "none"

    @property
    def parallel(self) -> bool:
        """True where two writes read the same stream."""
        return any(write.parallel for write in self.writes)

    @property
    def shape(self) -> tuple[object, ...]:
        """What makes two blocks look alike: everything but names and the size of gains."""
        return (
            self.opening != "",
            tuple(
                (write.role, write.placement, write.parallel, write.settle, write.law)
                for write in self.writes
            ),
        )


@dataclass(frozen=True, slots=True)
class Fold:
    """A pattern of blocks and how often it comes: `turns[i]` holds the i-th repetition."""

    turns: tuple[tuple[BlockFacts, ...], ...]


def read_blocks(anatomy: Mapping[str, Any]) -> list[BlockFacts]:
    """Read the blocks from the anatomy entry of a record's provenance."""
    return [
        BlockFacts(
            stack=str(block.get("stack", "")),
            layer=int(block.get("layer", 0)),
            module=str(block.get("module", "")),
            opening=str(block.get("opening") or ""),
            writes=tuple(
                _read_write(write, block, first=at == 0)
                for at, write in enumerate(_mappings(block.get("sublayers")))
            ),
        )
        for block in _mappings(anatomy.get("layers"))
    ]


def module_paths(record: Record) -> dict[tuple[str, int, str, int | None], str]:
    """Map (stack, layer, point, sublayer) to the path of the module that stands there.

    The stream and whole blocks have no sublayer. A role is also found without its sublayer.
    """
    paths: dict[tuple[str, int, str, int | None], str] = {}
    for block in read_blocks(record.provenance.get("anatomy") or {}):
        stack, layer = block.stack, block.layer
        paths[stack, layer, "block", None] = block.module
        paths[stack, layer, "stream", None] = block.module
        for sublayer, write in enumerate(block.writes, start=1):
            paths[stack, layer, write.role, sublayer] = write.module
            paths.setdefault((stack, layer, write.role, None), write.module)
    return paths


def fold_blocks(blocks: Sequence[BlockFacts]) -> list[Fold]:
    """Fold the blocks of one stack: from the top, always the pattern that covers most layers.

    Of patterns that cover as much, the shortest is taken.
    """
    shapes = [block.shape for block in blocks]
    folds: list[Fold] = []
    start = 0
    while start < len(blocks):
        length, turns = 1, 1
        for pattern in range(1, min(_LONGEST_PATTERN, (len(blocks) - start) // 2) + 1):
            often = _repetitions(shapes, start, pattern)
            if often > 1 and often * pattern > turns * length:
                length, turns = pattern, often
        stops = range(start, start + turns * length, length)
        folds.append(Fold(tuple(tuple(blocks[at : at + length]) for at in stops)))
        start += turns * length
    return folds


def _repetitions(shapes: Sequence[object], start: int, pattern: int) -> int:
    """How often the pattern of this length comes in a row from `start`."""
    end = start + pattern
    while end < len(shapes) and shapes[end] == shapes[end - pattern]:
        end += 1
    return (end - start) // pattern


def _read_write(write: Mapping[str, Any], block: Mapping[str, Any], *, first: bool) -> WriteFacts:
    gain = write.get("gain")
    return WriteFacts(
        role=str(write.get("role") or "branch"),
        module=str(write.get("module", "")),
        gain=gain if isinstance(gain, str) else _factor(gain),
        keep=_factor(write.get("keep")),
        settle=bool(write.get("settle")),
        parallel=not first and bool(write.get("parallel", block.get("parallel"))),
        placement=str(write.get("placement") or block.get("placement") or "none"),
        law=str(write.get("law") or ""),
    )


def _factor(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _mappings(value: object) -> list[Mapping[str, Any]]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        return []
    return [
        cast("Mapping[str, Any]", one)
        for one in cast("Sequence[object]", value)
        if isinstance(one, Mapping)
    ]
