"""The anatomy that a Transformer declares of itself.

A write of the form keep x + gain u is declared as those two numbers (or the gain's parameter);
any other as a law, which asks the connection itself to split the stream after the write into
what was kept and what was written. `measure` proves either by the balance equation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from leadline.anatomy import Anatomy, Block, Port, Stack
from leadline.anatomy import Sublayer as Write
from leadline.anatomy.find.sublayer_roles import placement_name
from leadline.parts.branches.joined import Joined
from leadline.parts.connections import Connection

if TYPE_CHECKING:
    from leadline.parts.sublayer import Sublayer
    from leadline.parts.transformer import Transformer

__all__ = ["Joins", "declared_anatomy"]


@dataclass(frozen=True)
class Joins:
    """The law of a connection: its own `split`, on the state that entered the sublayer."""

    connection: Connection
    watches: tuple[Port, ...]
    formula: str

    def __call__(
        self, before: Tensor, returned: Tensor, watched: Mapping[Any, object]
    ) -> tuple[Tensor, Tensor]:
        return self.connection.split(watched[self.watches[0]], returned)


def declared_anatomy(model: Transformer) -> Anatomy:
    """Return one stack with every block as it was built."""
    blocks: list[Block] = []
    for index, block in enumerate(model.blocks):
        path = f"blocks.{index}"
        writes: list[Write] = []
        for name, sublayer in block.named_children():
            writes += _writes(sublayer, f"{path}.{name}", name, len(writes) + 1)  # type: ignore[arg-type]
        entry, leave = Port(path, "input"), Port(path, "output")
        blocks.append(Block(index + 1, path, entry, leave, tuple(writes)))
    name = {True: "decoder", False: "encoder", None: "stack"}[model.causal]
    stack = Stack(
        name, tuple(blocks), model.recipe.width, lanes=model.first.lanes, causal=model.causal
    )
    return Anatomy((stack,), "declaration of the model")


def _writes(sublayer: Sublayer, path: str, name: str, number: int) -> list[Write]:
    connection = sublayer.connection
    placement = _placement(sublayer)
    settle = f"{path}.settle" if sublayer.settle is not None else None
    owned = tuple(f"{path}.{parameter}" for parameter, _ in sublayer.named_parameters())
    if connection.keep is None or connection.gain is None:
        law = Joins(connection, (Port(path, "input"),), connection.formula)
        role = name if name in ("attention", "mlp") else "branch"
        return [
            Write(
                number,
                role,
                _last_module(sublayer, path),
                settle=settle,
                placement=placement,
                law=law,
                parameters=owned,
            )
        ]
    gain = connection.gain
    if isinstance(gain, str):
        gain = f"{path}.connection.{gain}"
    if isinstance(sublayer.branch, Joined) and sublayer.exit is None:
        first, second = (f"{path}.branch.{part}" for part in ("attention", "mlp"))
        inside = {
            part: tuple(p for p in owned if p.startswith(f"{path}.branch.{part}"))
            for part in ("attention", "mlp")
        }
        shared = tuple(p for p in owned if not p.startswith(f"{path}.branch."))
        return [
            Write(
                number,
                "attention",
                first,
                gain=gain,
                keep=connection.keep,
                placement=placement,
                parameters=shared + inside["attention"],
            ),
            Write(
                number + 1,
                "mlp",
                second,
                gain=gain,
                settle=settle,
                parallel=True,
                placement=placement,
                parameters=inside["mlp"],
            ),
        ]
    return [
        Write(
            number,
            name,
            _last_module(sublayer, path),
            gain=gain,
            keep=connection.keep,
            settle=settle,
            placement=placement,
            parameters=owned,
        )
    ]


def _placement(sublayer: Sublayer) -> str:
    """Where norms stand around the branch, in the words of discovery."""
    branch = sublayer.branch
    enters = sublayer.enter is not None or (
        isinstance(branch, Joined) and branch.attention_norm is not None
    )
    return placement_name(enters, sublayer.exit is not None, sublayer.settle is not None)


def _last_module(sublayer: Sublayer, path: str) -> str:
    """The module that returns the update: the norm on the branch's output, or the branch."""
    return f"{path}.exit" if sublayer.exit is not None else f"{path}.branch"
