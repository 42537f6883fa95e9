"""The equation of the residual connection, written once.

    x = read(state);    u = exit(branch(enter(x)));    state = settle(write(state, u))

`read`, `write` and `settle` are the connection's, the norms `enter`, `exit` and `settle` the
placement's; a norm that does not stand is None and costs nothing. A block is a row of sublayers.
"""

from __future__ import annotations

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

    def forward(self, state: State, run: Run) -> State:
        connection, enter, exit_, settle = self.connection, self.enter, self.exit, self.settle
        x: Tensor = connection.read(state)
        u: Tensor = self.branch(x if enter is None else enter(x), run)
        state = connection.write(state, u if exit_ is None else exit_(u))
        return state if settle is None else connection.settle(state, settle)


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
