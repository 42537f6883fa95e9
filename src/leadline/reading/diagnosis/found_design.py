"""The design of a model as it was found: what intentions and families are held against."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from leadline.reading.diagnosis.case import Case
from leadline.reading.diagnosis.equations import BlockEquation, WriteTerm, block_equations

__all__ = ["StackDesign", "stack_designs"]


@dataclass(frozen=True)
class StackDesign:
    """One stack as it was found; None where nothing is known."""

    name: str
    depth: int
    width: int | None
    causal: bool | None
    parallel: bool | None
    placements: frozenset[str]
    norms: frozenset[str]
    final_norm: bool | None
    keeps: frozenset[float]
    gains: frozenset[float]
    settled: bool
    blocks: tuple[BlockEquation, ...]

    def layers_without(self, placement: str) -> list[tuple[int, WriteTerm]]:
        """The writes whose norms stand elsewhere."""
        return [
            (block.layer, write)
            for block in self.blocks
            for write in block.writes
            if write.placement != placement
        ]


def stack_designs(case: Case) -> Iterator[StackDesign]:
    """The stacks with the designs that survey and anatomy found."""
    final = case.fact("final_norm", {})
    design = case.design
    for name, blocks in block_equations(case).items():
        known = case.stacks.get(name) or {}
        writes = [write for block in blocks for write in block.writes]
        yield StackDesign(
            name=name,
            depth=case.depth(name),
            width=known.get("width"),
            causal=known.get("causal"),
            parallel=any(write.parallel for write in writes) if writes else None,
            placements=frozenset(write.placement for write in writes),
            norms=frozenset(design.get("norms", {}).get(name, ())),
            final_norm=None if name not in final else final[name] is not None,
            keeps=frozenset(w.keep for w in writes if isinstance(w.keep, float)),
            gains=frozenset(w.gain for w in writes if isinstance(w.gain, float)),
            settled=bool(writes) and all(w.settle is not None for w in writes),
            blocks=tuple(blocks),
        )
