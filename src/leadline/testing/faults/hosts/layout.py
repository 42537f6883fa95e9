"""Where things stand in the models of a family: blocks, branches, norms, weights, additions.

A fault is written once and put into any family, so it needs their common nouns: "the query weight
of layer 3", "the statement in which the MLP is added". All paths but those of `Outer` are inside
of a block. Texts of code are as `ast.unparse` prints them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

__all__ = ["Layout", "Outer", "Role", "Slot", "WriteCode"]


@dataclass(frozen=True)
class Slot:
    """Where a weight stands. `part` is its place in a fused matrix."""

    path: str
    part: int | None = None
    fused: Literal["thirds", "halves", "by head", "grouped"] = "thirds"
    turned: bool = False
    """Whether the matrix is stored as [in, out], as GPT-2 does."""
    tensor: str = "weight"
    """What the module calls the matrix."""

    @property
    def bias(self) -> str:
        """What the module calls the bias that belongs to the matrix."""
        return self.tensor.replace("weight", "bias")


Role = Literal["attention", "mlp", "both"]


@dataclass(frozen=True)
class WriteCode:
    """The code in which a sublayer's update joins the stream."""

    role: Role
    add: str
    stream: str
    update: str
    owner: str = ""
    """The module inside the block whose `forward` holds the code; empty for the block itself."""
    place: int = 0
    normed: str = ""
    """An expression with the norm of the sublayer; empty where it is not known."""
    bare: str = "hidden_states"
    """The same without the norm."""
    norm: str = ""
    """The norm in that expression, as it is called."""
    after_norm: tuple[str, str] | None = None
    """A statement, and what it becomes when the skip is taken after the norm by mistake."""


@dataclass(frozen=True)
class Outer:
    """Paths in the model, outside of the blocks."""

    blocks: str
    embedding: str
    head: str = ""
    positions: str = ""
    rotary: str = ""
    final: str = ""


@dataclass(frozen=True)
class Layout:
    """A family of models, as faults see it."""

    outer: Outer
    attention: str
    """The module that holds the attention kernel."""
    kernel: str
    """The callee of the attention kernel in that module's `forward`; empty where it has none."""
    mlp: str
    weights: dict[str, Slot]
    """query, key, value, output, up, gate, down."""
    norms: dict[str, str]
    """The norms of a block by the role of the branch that they belong to, in order."""
    additions: tuple[WriteCode, ...] = ()
    argument: str = "hidden_states"
    """What the block's `forward` calls the stream."""
    placement: Literal["pre", "post", "output", "sandwich"] = "pre"
    stack: str = "decoder"
    causal: bool = True
    is_hf: bool = True
    scale: str = "scaling"
    """The attribute of the attention module that multiplies the logits."""
    is_scaled: bool = True
    """Whether the logits are divided by sqrt(head width) at all."""
    gain_offset: float = 0.0
    """What is added to a stored gain: 1 where gains are stored less one."""
    depth_scaled: bool = False
    """Whether the weights that write are drawn smaller by sqrt(2 depth)."""
    adapted: tuple[str, str] = ("output", "down")
    """The matrices that adapters are put beside."""
    rotated_key: str = ""
    """The expression of the keys before they are turned, where the code is not the library's."""
    traits: frozenset[str] = field(default_factory=frozenset[str])

    def addition(self, role: str) -> WriteCode | None:
        """How the attention or the MLP is added, or None where both are added at once."""
        return next((one for one in self.additions if one.role == role), None)
