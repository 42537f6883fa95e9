"""The model that a fault changes, addressed by the nouns of its layout.

    subject.weight(3, "query")      a view of the weight, [out, in]; writing to it changes the model
    subject.norm(3, "mlp")          the norm module that belongs to a branch
    subject.edit(3, "attention", "{update}")      the addition of a sublayer, rewritten

Layers count from 1, as in records.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from leadline.errors import InputError
from leadline.testing.faults.hosts.entry import Host
from leadline.testing.faults.hosts.layout import Slot, WriteCode
from leadline.testing.faults.rewriting import Edit, rewrite

__all__ = ["Subject"]


class Subject:
    """A built host and a source of random choices."""

    def __init__(self, model: nn.Module, host: Host, seed: int, *, fault: str) -> None:
        self.model = model
        self.host = host
        self.layout = host.layout
        self.fault = fault
        self.random = random.Random(f"{fault} {host.name} {seed}")  # noqa: S311
        self.generator = torch.Generator().manual_seed(self.random.randrange(2**31))

    # --- modules -----------------------------------------------------------------------------

    @property
    def blocks(self) -> nn.ModuleList:
        """The blocks of the stack that is changed."""
        blocks = self.model.get_submodule(self.layout.outer.blocks)
        assert isinstance(blocks, nn.ModuleList)
        return blocks

    @property
    def depth(self) -> int:
        """How many layers there are."""
        return len(self.blocks)

    @property
    def layers(self) -> range:
        """All layers, from 1."""
        return range(1, self.depth + 1)

    def inner_layer(self) -> int:
        """A layer that has neighbours on both sides, by the seed."""
        return self.random.randrange(2, self.depth)

    def role(self) -> str:
        """Attention or the MLP, by the seed."""
        return self.random.choice(["attention", "mlp"])

    def block(self, layer: int) -> nn.Module:
        return self.blocks[layer - 1]

    def module(self, layer: int, path: str) -> nn.Module:
        """A module inside a block."""
        return self.block(layer).get_submodule(path)

    def path(self, layer: int, inside: str) -> str:
        """The full path of what stands inside a block."""
        return f"{self.layout.outer.blocks}.{layer - 1}.{inside}"

    def outer(self, name: str) -> nn.Module:
        """The embedding, the head, the final norm or another module outside of the blocks."""
        path = getattr(self.layout.outer, name)
        if not path:
            raise InputError(f"The host {self.host.name} has no {name}; choose another host.")
        return self.model.get_submodule(path)

    def norm(self, layer: int, role: str) -> nn.Module:
        return self.module(layer, self.layout.norms[role])

    def norms(self) -> Iterator[tuple[int, str, nn.Module]]:
        """Every norm of the blocks: layer, role, module."""
        for layer in self.layers:
            for role in self.layout.norms:
                yield layer, role, self.norm(layer, role)

    # --- weights -----------------------------------------------------------------------------

    def weight(self, layer: int, role: str) -> Tensor:
        """A view of a weight, [out, in]; of weights fused by head, [head, head width, in]."""
        slot = self.layout.weights[role]
        weight = getattr(self.module(layer, slot.path), slot.tensor)
        assert isinstance(weight, Tensor)
        weight = weight.detach()
        return self._part(weight.t() if slot.turned else weight, slot)

    def bias(self, layer: int, role: str) -> Tensor | None:
        """A view of the bias that belongs to a weight, or None."""
        slot = self.layout.weights[role]
        bias = getattr(self.module(layer, slot.path), slot.bias)
        return self._part(bias.detach(), slot) if isinstance(bias, Tensor) else None

    def _part(self, tensor: Tensor, slot: Slot) -> Tensor:
        if slot.part is None:
            return tensor
        if slot.fused == "thirds":
            return tensor.chunk(3)[slot.part]
        if slot.fused == "halves":
            return tensor.chunk(2)[slot.part]
        if slot.fused == "grouped":
            query = self.heads * self.head_width
            group = (tensor.shape[0] - query) // 2
            return tensor.split([query, group, group])[slot.part]
        heads = self.heads
        return tensor.view(heads, 3, tensor.shape[0] // (3 * heads), *tensor.shape[1:])[
            :, slot.part
        ]

    def by_head(self, tensor: Tensor) -> Tensor:
        """Rows of query, key or value as [head, head width, ...]: a view."""
        if tensor.ndim == 3 or (tensor.ndim == 2 and tensor.shape[0] == self.heads):
            return tensor
        return tensor.view(tensor.shape[0] // self.head_width, self.head_width, *tensor.shape[1:])

    @property
    def heads(self) -> int:
        """How many query heads a layer has."""
        config: Any = getattr(self.model, "config", None)
        if config is None:
            recipe: Any = self.model.recipe
            return recipe.heads
        names = ("num_attention_heads", "n_head", "n_heads", "num_heads")
        return next(getattr(config, name) for name in names if hasattr(config, name))

    @property
    def head_width(self) -> int:
        """The width of one head."""
        return self.weight(1, "output").shape[1] // self.heads

    def parameter(self, layer: int, role: str) -> str:
        """The full name of a weight."""
        slot = self.layout.weights[role]
        return f"{self.path(layer, slot.path)}.{slot.tensor}"

    @property
    def matrices(self) -> list[str]:
        """The roles of weights that the blocks have."""
        return list(self.layout.weights)

    # --- code --------------------------------------------------------------------------------

    def addition(self, role: str) -> WriteCode:
        """The code that adds a branch; that of both where they are added at once."""
        layout = self.layout
        found = layout.addition(role) or layout.addition("both")
        if found is None:
            raise InputError(f"The additions of {self.host.name} are not known; choose another.")
        return found

    def owner(self, layer: int, addition: WriteCode) -> nn.Module:
        """The module whose code adds."""
        return self.module(layer, addition.owner)

    def edit(self, layer: int, role: str, new: str, **names: Any) -> None:
        """Rewrite an addition: `new` may name {stream}, {update} and {add}."""
        one = self.addition(role)
        text = new.format(stream=one.stream, update=f"({one.update})", add=one.add)
        rewrite(self.owner(layer, one), Edit(one.add, text, place=one.place), names=names)

    def edit_all(self, layer: int, new: str, **names: Any) -> None:
        """Rewrite every addition of a layer alike."""
        # The last one first: equal additions are counted from the top of the source.
        for one in reversed(self.layout.additions):
            self.edit(layer, one.role, new, **names)

    def wrap(self, module: nn.Module, forward: Callable[..., Any]) -> None:
        """Give a module another forward, which gets the old one as its first argument."""
        old = type(module)

        def changed(self: Any, *args: Any, **kwargs: Any) -> Any:
            return forward(super(new, self).forward, self, *args, **kwargs)  # type: ignore[misc]

        new = type(old.__name__, (old,), {"forward": changed, "__module__": old.__module__})
        module.__class__ = new
