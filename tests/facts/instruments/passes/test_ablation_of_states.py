"""Leaving out a block whose state is several tensors: all of the state is handed on."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from leadline.anatomy import Anatomy, Block, Port, Stack, Sublayer
from leadline.instruments.passes.ablation import ablate
from leadline.parts import Transformer
from leadline.parts.branches import Run

State = tuple[Tensor, Tensor]


class Adding(nn.Module):
    """A block of a state (x, r): x + 1 each time, and r counts the blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.branch = nn.Identity()

    def forward(self, state: State) -> State:
        x, r = state
        return x + self.branch(torch.ones_like(x)), r + 1


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Adding() for _ in range(3))

    def forward(self, x: Tensor) -> State:
        state: State = (x, torch.zeros(()))
        for block in self.blocks:
            state = block(state)
        return state


def test_every_tensor_of_the_state_passes_by_a_block_that_is_left_out() -> None:
    model = Counting()
    paths = [f"blocks.{index}" for index in range(3)]
    blocks = tuple(
        Block(
            index + 1,
            path,
            Port(path, "input"),
            Port(path, "output"),
            (Sublayer(1, "branch", f"{path}.branch"),),
        )
        for index, path in enumerate(paths)
    )
    anatomy = Anatomy((Stack("stack", blocks, 4),), "test")
    x = torch.zeros(1, 2, 4)
    assert model(x)[1] == 3

    def loss() -> Tensor:
        stream, count = model(x)
        return stream.mean() + 10 * count

    found = ablate(model, anatomy, loss, unit="block")
    # Without one block the stream lacks 1 and the count lacks 1: 1 + 10 less.
    assert [reading.value for reading in found.readings] == [-11.0, -11.0, -11.0]
    assert model(x)[1] == 3  # nothing stays behind


def test_a_block_left_out_of_residual_is_a_model_without_it() -> None:
    model = Transformer(
        depth=2, width=8, heads=1, vocabulary=16, context=8, connection="dual", placement="post"
    ).eval()
    ids = torch.arange(8).view(1, 8)

    def loss() -> Tensor:
        return model.stream(ids).square().sum()

    found = ablate(model, model.anatomy(), loss, unit="block")
    with torch.no_grad():
        whole = float(loss())
        state = model.first.open(model.embedding(ids, torch.arange(8), None))
        for index, reading in enumerate(found.readings):
            other = model.blocks[1 - index](state, Run(causal=True))
            assert reading.value == float(model.last.close(other).square().sum()) - whole
