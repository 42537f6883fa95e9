"""The equation of the residual connection, written once.

    x = read(state);    u = exit(branch(enter(x)));    state = settle(write(state, u))

`read`, `write` and `settle` are the connection's, the norms `enter`, `exit` and `settle` the
placement's; a norm that does not stand is None and costs nothing. A block is a row of sublayers.

A connection that drops whole updates in training (`drops`) says before the branch runs which
examples it keeps, and norms and branch run for these alone. They run for all examples where that
would change numbers or cannot be: a branch that shares values between layers, a cache of keys,
torch.compile, and tensors without values (meta).
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from leadline.parts.branches import Branch, Run
from leadline.parts.connections import Connection, State

__all__ = ["Block", "Sublayer"]


class Sublayer(nn.Module):
    """Branch, connection and placement: see the module's first lines."""

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
        if connection.drops and connection.training and self._may_be_left_out(state, run):
            return self._dropping(state, run)
        x: Tensor = connection.read(state)
        u: Tensor = self.branch(x if enter is None else enter(x), run)
        state = connection.write(state, u if exit_ is None else exit_(u))
        return state if settle is None else connection.settle(state, settle)

    def _dropping(self, state: State, run: Run) -> State:
        """The same equation, with the update computed for the examples that are kept."""
        connection, enter, exit_, settle = self.connection, self.enter, self.exit, self.settle

        def update(kept: Tensor | None) -> Tensor:
            x: Tensor = connection.read(state)
            some = run
            if kept is not None:
                some = _of_examples(run, kept, examples=x.shape[0])
                x = x.index_select(0, kept)
            u: Tensor = self.branch(x if enter is None else enter(x), some)
            return u if exit_ is None else exit_(u)

        after = connection.write_kept(state, update)
        return after if settle is None else connection.settle(after, settle)

    def _may_be_left_out(self, state: State, run: Run) -> bool:
        """Whether nobody misses what the branch would have computed."""
        needed = self.shares or bool(run.shared) or run.cache is not None
        return not (
            needed or torch.compiler.is_compiling() or self.connection.stream(state).is_meta
        )


class Block(nn.Module):
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


def _of_examples(run: Run, kept: Tensor, *, examples: int) -> Run:
    """The running pass of some of its examples."""
    mask, rotate = run.mask, run.rotate
    if mask is not None and mask.shape[0] > 1:
        mask = mask.index_select(0, kept)
    if rotate is None:
        return replace(run, mask=mask)

    def rotate_kept(x: Tensor) -> Tensor:
        if rotate(x[:1]).shape[0] == 1:
            return rotate(x)
        # Every example has positions of its own, which only the whole batch can be matched with.
        whole = x.new_zeros((examples, *x.shape[1:])).index_copy(0, kept, x)
        return rotate(whole).index_select(0, kept)

    return replace(run, mask=mask, rotate=rotate_kept)
