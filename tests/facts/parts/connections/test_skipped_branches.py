"""What is dropped in training is not computed, and the numbers are those of the formula."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import leadline
from leadline.parts import sublayer as sublayer_file
from leadline.parts.branches import Run
from leadline.parts.connections import CONNECTIONS, Connection
from leadline.parts.sublayer import Sublayer

CHOICES = [
    "layerdrop(rate=0.5)",
    "stochastic_depth(rate=0.6, schedule=constant)",
    "stochastic_depth(rate=0.9)",
]
FIELDS: dict[str, dict[str, Any]] = {
    "pre": {},
    "post": {"placement": "post"},
    "sandwich": {"placement": "sandwich"},
    "parallel": {"placement": "parallel"},
    "rotary": {"positions": "rotary"},
    "value residual": {"attention": "multihead(value_residual=0.5)"},
}


def built(choice: str, **fields: Any) -> leadline.Transformer:
    return leadline.Transformer(
        **{
            "depth": 4,
            "width": 8,
            "heads": 2,
            "connection": choice,
            "context": 6,
            "vocabulary": 16,
            "init": "xavier",
            **fields,
        }
    ).double()


def as_written(sublayer: Sublayer, state: Any, run: Run) -> Any:
    """The equation with everything computed, whatever is dropped afterwards."""
    connection, enter, exit_ = sublayer.connection, sublayer.enter, sublayer.exit
    x = connection.read(state)
    u = sublayer.branch(x if enter is None else enter(x), run)
    state = connection.write(state, u if exit_ is None else exit_(u))
    return state if sublayer.settle is None else connection.settle(state, sublayer.settle)


def passed(model: leadline.Transformer, ids: Tensor, seed: int, **given: Any) -> list[Tensor]:
    """The logits and the gradients of a training pass; what got none is zero."""
    model.zero_grad()
    torch.manual_seed(seed)
    logits = model(ids, **given)
    weigh = torch.randn(logits.shape, generator=torch.Generator().manual_seed(1)).double()
    (logits * weigh).sum().backward()
    grads = [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in model.parameters()]
    return [logits.detach(), *grads]


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("name", FIELDS)
def test_numbers_and_gradients_are_those_of_a_branch_that_is_computed(
    name: str, choice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = built(choice, **FIELDS[name])
    ids = torch.arange(24).reshape(4, 6) % 16
    mask = torch.ones(4, 6)
    mask[1, 4:] = mask[2, 2:] = 0
    given = {
        "attention_mask": mask,
        "positions": torch.arange(6) + torch.tensor([[0], [3], [1], [7]]),
    }
    if name != "rotary":
        given.pop("positions")
    for seed in range(4):
        skipped = passed(model, ids, seed, **given)
        with monkeypatch.context() as patch:
            patch.setattr(Sublayer, "forward", as_written)
            computed = passed(model, ids, seed, **given)
        for mine, formula in zip(skipped, computed, strict=True):
            assert torch.allclose(mine, formula, rtol=1e-11, atol=1e-12)


def rows_seen(model: leadline.Transformer, examples: int, **given: Any) -> list[int]:
    """How many examples each call of a branch was given."""
    rows: list[int] = []
    hooks = [
        one.branch.register_forward_pre_hook(lambda _m, args: rows.append(args[0].shape[0]))
        for one in model.sublayers()
    ]
    model(torch.zeros(examples, 6, dtype=torch.long), **given)
    for hook in hooks:
        hook.remove()
    return rows


def test_a_dropped_layer_is_not_computed() -> None:
    torch.manual_seed(0)
    rows = [rows_seen(built("layerdrop(rate=0.5)", depth=8), 3) for _ in range(20)]
    assert all(set(seen) <= {3} and len(seen) % 2 == 0 for seen in rows)
    assert sum(map(len, rows)) / (20 * 16) == pytest.approx(0.5, abs=0.12)


def test_dropped_examples_are_not_computed() -> None:
    torch.manual_seed(0)
    model = built("stochastic_depth(rate=0.5, schedule=constant)", depth=8)
    rows = [seen for _ in range(20) for seen in rows_seen(model, 2)]
    # Of two examples a write computes both, one or none: 1/4, 1/2 and 1/4 of the 320 writes.
    assert rows.count(1) / 320 == pytest.approx(0.5, abs=0.1)
    assert rows.count(2) / 320 == pytest.approx(0.25, abs=0.1)
    assert len(rows) / 320 == pytest.approx(0.75, abs=0.1)


@pytest.mark.parametrize("choice", CHOICES)
def test_evaluation_computes_everything(choice: str) -> None:
    assert rows_seen(built(choice).eval(), 3) == [3] * 8


class Memory:
    """Keys and values that stay what they are."""

    length = 0

    def extend(self, _layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        return key, value


def test_what_others_need_is_computed_even_where_it_is_dropped() -> None:
    torch.manual_seed(0)
    shares = built("layerdrop(rate=0.9)", attention="multihead(value_residual=0.5)")
    # Attention leaves values for later layers; the MLPs leave nothing, but come after it.
    assert rows_seen(shares, 3) == [3] * 8
    cached = built("layerdrop(rate=0.9)")
    assert rows_seen(cached, 3, cache=Memory()) == [3] * 8


@pytest.mark.parametrize("choice", CHOICES)
def test_tensors_without_values_pass(choice: str) -> None:
    with torch.device("meta"):
        model = built(choice)
        logits = model(torch.zeros(2, 6, dtype=torch.long))
    assert logits.is_meta and list(logits.shape) == [2, 6, 16]


@pytest.mark.parametrize("choice", CHOICES)
def test_a_training_block_compiles_to_one_graph(choice: str) -> None:
    block = built(choice).blocks[1]
    x = torch.randn(3, 6, 8, dtype=torch.float64)
    torch._dynamo.reset()
    compiled = torch.compile(block, backend="aot_eager", fullgraph=True)
    after = compiled(x, Run(causal=True))
    torch._dynamo.reset()
    assert after.shape == x.shape


def test_under_autocast_the_stream_keeps_its_digits() -> None:
    torch.manual_seed(0)
    block = built("stochastic_depth(rate=0.5, schedule=constant)").float().blocks[0]
    x = torch.randn(16, 6, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert block(x, Run(causal=True)).dtype == torch.float32


def test_only_connections_that_drop_are_asked() -> None:
    droppers = {name for name in CONNECTIONS.names() if CONNECTIONS.get(name).drops}
    assert droppers == {"layerdrop", "stochastic_depth"}


def test_a_connection_that_leaves_nothing_out_writes_the_whole_update() -> None:
    model = built("identity")
    connection: Connection = model.first
    x, u = torch.randn(2, 3, 6, 8)
    asked: list[Tensor | None] = []

    def update(kept: Tensor | None) -> Tensor:
        asked.append(kept)
        return u

    assert torch.equal(connection.write_kept(x, update), x + u)
    assert asked == [None]


def test_positions_of_the_whole_batch_are_matched_with_the_kept_examples() -> None:
    tables = torch.randn(4, 1, 6, 2)
    run = Run(rotate=lambda x: x * tables)
    kept = torch.tensor([1, 3])
    x = torch.randn(2, 2, 6, 2)
    some = sublayer_file._of_examples(run, kept, examples=4)
    assert some.rotate is not None
    assert torch.equal(some.rotate(x), x * tables[kept])
    alone = torch.tensor([2])
    some = sublayer_file._of_examples(run, alone, examples=4)
    assert some.rotate is not None
    assert torch.equal(some.rotate(x[:1]), x[:1] * tables[alone])
