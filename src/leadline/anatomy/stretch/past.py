"""What goes from block to block past the stream, wherever it is kept meanwhile.

Every stream x_l between two blocks is exchanged for a leaf of autograd with the same values. The
stream after block l may then depend on the leaf x_(l-1) alone. Where the graph behind it holds a leaf
of an earlier stream, something went past: a history, first values that later blocks add, be they in
an argument, an attribute of a module, or an object that two blocks share. Constants and what is
detached hold no leaf, and have no part in a Jacobian.

The graph is only looked at and never run, so that nothing is saved for its gradients: the pass takes
the time and the memory of one without gradients.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

__all__ = ["Leaves", "graphs_only"]

Tensor = torch.Tensor


class Leaves:
    """The leaves of one pass in their order; `passed` says whether anything went past one."""

    def __init__(self) -> None:
        self.passed = False
        self._made: list[Tensor] = []

    def __len__(self) -> int:
        return len(self._made)

    def instead_of(self, stream: Tensor) -> Tensor:
        """A new leaf; what enters is a copy of it, because blocks may change it in place."""
        leaf = stream.detach().clone().requires_grad_()
        self._made.append(leaf)
        return leaf.clone()

    def look_behind(self, after: Tensor) -> None:
        """Look for leaves before the last one in the graph of a stream."""
        earlier = {id(leaf) for leaf in self._made[:-1]}
        waiting: list[Any] = [after.grad_fn]
        known: set[Any] = set()
        while waiting and not self.passed:
            node = waiting.pop()
            if node is None or node in known:
                continue
            known.add(node)
            self.passed = id(getattr(node, "variable", None)) in earlier
            waiting += [inner for inner, _ in node.next_functions]


@contextmanager
def graphs_only() -> Iterator[None]:
    """Autograd makes its graphs and saves nothing for their gradients."""

    def lost(_: object) -> Tensor:
        raise RuntimeError("a graph that is only looked at was run")

    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(lambda _: None, lost):
        yield
