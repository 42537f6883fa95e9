"""The equation of the residual connection, written once.

    x = read(state);    u = exit(branch(enter(x)));    state = settle(write(state, u))

`read`, `write` and `settle` are the connection's, the norms `enter`, `exit` and `settle` the
placement's; a norm that is absent is None and costs nothing. A block is a row of sublayers.

A connection that drops whole updates in training (`drops`) says before the branch runs which
examples it keeps, and norms and branch run for these alone. They run for all examples where this
would change numbers or is impossible: a branch that shares values between layers, a cache of keys,
torch.compile, and tensors without values (meta).
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from leadline.parts.branches import Branch, Run
from leadline.parts.connections import Connection, State

__all__ = ["Sublayer", "TransformerBlock"]


class Sublayer(nn.Module):
    """Runs a branch on the stream and writes its update: read, branch with norms, write, settle."""

    def __init__(
        self,
        branch: Branch,
        connection: Connection,
        *,
        enter: nn.Module | None,
        exit: nn.Module | None,  # noqa: A002 - the name of the noun
        settle: nn.Module | None,
    ) -> None:
        super().__init__()
        self.enter = enter
        self.branch = branch
        self.exit = exit
        self.connection = connection
        self.settle = settle
        # The values of the first layer are shared even where that layer is dropped.
        self.shares = any(part.shares for part in branch.modules() if isinstance(part, Branch))

    def forward(self, state: State, run: Run) -> State:
        connection, enter, exit_, settle = self.connection, self.enter, self.exit, self.settle
        if connection.drops and connection.training and self._may_skip_branch(state, run):
            return self._forward_dropping(state, run)
        x: Tensor = connection.read(state)
        u: Tensor = self.branch(x if enter is None else enter(x), run)
        state = connection.write(state, u if exit_ is None else exit_(u))
        return state if settle is None else connection.settle(state, settle)

    def _forward_dropping(self, state: State, run: Run) -> State:
        """Run the same equation, with the update computed only for the examples that are kept."""
        connection, enter, exit_, settle = self.connection, self.enter, self.exit, self.settle

        def update(index: Tensor | None) -> Tensor:
            x: Tensor = connection.read(state)
            run_of_some = run
            if index is not None:
                run_of_some = _of_examples(run, index, examples=x.shape[0])
                x = x.index_select(0, index)
            u: Tensor = self.branch(x if enter is None else enter(x), run_of_some)
            return u if exit_ is None else exit_(u)

        after = connection.write_kept(state, update)
        return after if settle is None else connection.settle(after, settle)

    def _may_skip_branch(self, state: State, run: Run) -> bool:
        """Whether no other part needs what the branch would have computed."""
        is_needed = self.shares or bool(run.shared) or run.cache is not None
        return not (
            is_needed or torch.compiler.is_compiling() or self.connection.stream(state).is_meta
        )


class TransformerBlock(nn.Module):
    """One layer: its sublayers by name, in their order."""

    def __init__(self, sublayers: dict[str, Sublayer]) -> None:
        super().__init__()
        for name, sublayer in sublayers.items():
            self.add_module(name, sublayer)
        self.order = tuple(sublayers)

    def forward(self, state: State, run: Run) -> State:
        modules = self._modules
        for name in self.order:
            state = modules[name](state, run)  # pyright: ignore[reportOptionalCall]
        return state


def _of_examples(run: Run, index: Tensor, *, examples: int) -> Run:
    """Return the running pass restricted to the examples of an index."""
    mask, rotate = run.mask, run.rotate
    if mask is not None and mask.shape[0] > 1:
        mask = mask.index_select(0, index)
    if rotate is None:
        return replace(run, mask=mask)

    def rotate_some(x: Tensor) -> Tensor:
        if rotate(x[:1]).shape[0] == 1:
            return rotate(x)
        # Every example has positions of its own, which match only the full batch.
        batch = x.new_zeros((examples, *x.shape[1:])).index_copy(0, index, x)
        return rotate(batch).index_select(0, index)

    return replace(run, mask=mask, rotate=rotate_some)
