"""Find out whether anything bypasses the stream on its way from block to block.

Every stream x_l between two blocks is exchanged for a leaf of autograd with the same values. The
stream after block l may then depend on the leaf x_(l-1) alone. If its graph holds a leaf of an
earlier stream, something went past: a history, or first values that later blocks add. It may have
been kept in an argument, an attribute of a module, or an object that two blocks share. Constants and
detached tensors hold no leaf and have no part in a Jacobian.

The graph is inspected and never run, so nothing is saved for its gradients: the pass takes the time
and the memory of a pass without gradients.
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
        self._leaves: list[Tensor] = []

    def __len__(self) -> int:
        return len(self._leaves)

    def instead_of(self, stream: Tensor) -> Tensor:
        """A new leaf; what enters is a copy of it, because blocks may change it in place."""
        leaf = stream.detach().clone().requires_grad_()
        self._leaves.append(leaf)
        return leaf.clone()

    def look_behind(self, after: Tensor) -> None:
        """Look for leaves before the last one in the graph of a stream."""
        earlier = {id(leaf) for leaf in self._leaves[:-1]}
        waiting: list[Any] = [after.grad_fn]
        visited: set[Any] = set()
        while waiting and not self.passed:
            node = waiting.pop()
            if node is None or node in visited:
                continue
            visited.add(node)
            self.passed = id(getattr(node, "variable", None)) in earlier
            waiting += [inner for inner, _ in node.next_functions]


@contextmanager
def graphs_only() -> Iterator[None]:
    """Let autograd build its graphs without saving tensors for the gradients."""

    def refuse_to_run(_: object) -> Tensor:
        raise RuntimeError("This graph was built for inspection only and cannot be run backwards.")

    with (
        torch.enable_grad(),
        torch.autograd.graph.saved_tensors_hooks(lambda _: None, refuse_to_run),
    ):
        yield
