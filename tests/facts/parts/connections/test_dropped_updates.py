"""Connections that leave something out in training: what is drawn, how often, and what remains."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import leadline
from leadline.errors import RecipeError
from leadline.parts.branches import Run
from leadline.parts.connections import CONNECTIONS
from leadline.parts.place import Place


def place(depth: int = 4, layer: int = 4, sublayer: int = 1, sublayers: int = 2) -> Place:
    return Place(width=4, heads=2, depth=depth, layer=layer, sublayer=sublayer, sublayers=sublayers)


def built(choice: str, where: Place | None = None) -> Any:
    return CONNECTIONS.build(choice, place=where or place())


def ones(examples: int, tokens: int = 2, width: int = 4) -> Tensor:
    return torch.ones(examples, tokens, width, dtype=torch.float64)


# --- dropout of features ----------------------------------------------------------------------


def test_dropout_divides_what_it_keeps_in_training() -> None:
    torch.manual_seed(0)
    u = 3 * ones(2000)
    written = built("dropout(rate=0.25)").write(torch.zeros_like(u), u)
    assert sorted(written.unique().tolist()) == [0.0, 4.0]  # 3 / (1 - 1/4)
    assert (written == 0).double().mean().item() == pytest.approx(0.25, abs=0.02)
    assert written.mean().item() == pytest.approx(3.0, abs=0.1)


def test_rescaled_dropout_keeps_as_it_is_in_training() -> None:
    torch.manual_seed(0)
    u = 3 * ones(2000)
    connection = built("rescaled_dropout(rate=0.25)")
    written = connection.write(torch.zeros_like(u), u)
    assert sorted(written.unique().tolist()) == [0.0, 3.0]
    assert (written == 0).double().mean().item() == pytest.approx(0.25, abs=0.02)
    # The expectation of training is the write of evaluation.
    evaluated = connection.eval().write(torch.zeros_like(u), u)
    assert torch.equal(evaluated, torch.full_like(u, 2.25))
    assert written.mean().item() == pytest.approx(2.25, abs=0.1)


@pytest.mark.parametrize("name", ["dropout", "rescaled_dropout"])
def test_every_feature_of_every_token_draws_on_its_own(name: str) -> None:
    torch.manual_seed(1)
    written = built(f"{name}(rate=0.5)").write(0 * ones(500), ones(500))
    heard = (written != 0).double().flatten(1)
    # Two features of one token, and one feature of two tokens, agree half the time.
    for other in (1, 4):
        assert (heard[:, 0] == heard[:, other]).double().mean().item() == pytest.approx(
            0.5, abs=0.1
        )


@pytest.mark.parametrize("name", ["dropout", "rescaled_dropout"])
def test_a_tenth_is_dropped_unless_told(name: str) -> None:
    torch.manual_seed(2)
    written = built(name).write(0 * ones(4000), ones(4000))
    assert (written == 0).double().mean().item() == pytest.approx(0.1, abs=0.01)


@pytest.mark.parametrize(
    "choice",
    ["dropout(rate=0.9)", "rescaled_dropout(rate=0.9)", "stochastic_depth(rate=0.9)"],
)
def test_a_zero_update_leaves_the_stream_in_training_too(choice: str) -> None:
    x = torch.randn(3, 2, 4)
    assert torch.equal(built(choice).write(x, torch.zeros_like(x)), x)


@pytest.mark.parametrize("choice", ["dropout(rate=0)", "stochastic_depth(rate=0)"])
def test_nothing_is_dropped_at_rate_zero(choice: str) -> None:
    x, u = torch.randn(2, 3, 2, 4)
    assert torch.equal(built(choice).write(x, u), x + u)


# --- stochastic depth -------------------------------------------------------------------------


def test_stochastic_depth_drops_whole_examples_and_divides_the_others() -> None:
    torch.manual_seed(3)
    u = ones(4000) * torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64)
    written = built("stochastic_depth(rate=0.2)").write(torch.zeros_like(u), u)
    heard = written[:, 0, 0] != 0
    assert torch.equal(written[~heard], torch.zeros_like(written[~heard]))
    assert torch.allclose(written[heard], u[heard] / 0.8, rtol=1e-12)
    assert heard.double().mean().item() == pytest.approx(0.8, abs=0.02)
    assert torch.allclose(written.mean((0, 1)), u[0, 0], rtol=0.03)


@pytest.mark.parametrize(
    ("choice", "where", "rate"),
    [
        ("stochastic_depth", place(4, 4), 0.1),
        ("stochastic_depth", place(4, 1), 0.025),
        ("stochastic_depth(rate=0.4)", place(4, 3), 0.3),
        ("stochastic_depth(rate=0.4)", place(4, 3, sublayer=2), 0.3),
        ("stochastic_depth(rate=0.4, schedule=linear)", place(4, 3, sublayers=1), 0.3),
        ("stochastic_depth(rate=0.4, schedule=constant)", place(4, 1), 0.4),
        ("layerdrop", place(4, 1), 0.1),
        ("layerdrop(rate=0.2, schedule=constant)", place(4, 1), 0.2),
        ("layerdrop(rate=0.2, schedule=linear)", place(4, 2), 0.1),
    ],
)
def test_the_rate_of_a_layer(choice: str, where: Place, rate: float) -> None:
    assert built(choice, where).rate == pytest.approx(rate, rel=1e-14)


def test_a_batch_of_another_rank_is_drawn_by_its_first_axis() -> None:
    torch.manual_seed(4)
    u = torch.ones(50, 2, 3, 4)
    written = built("stochastic_depth(rate=0.5)").write(torch.zeros_like(u), u)
    assert torch.equal(written, written[:, :1, :1, :1].expand_as(u))
    assert sorted(written.unique().tolist()) == [0.0, 2.0]


# --- LayerDrop --------------------------------------------------------------------------------


def test_layerdrop_draws_once_for_both_writes_of_a_layer_and_the_whole_batch() -> None:
    torch.manual_seed(5)
    first, second = (built("layerdrop(rate=0.3)", place(4, 2, s)) for s in (1, 2))
    x, u, v = ones(3), 2 * ones(3), 4 * ones(3)
    heard = []
    for _ in range(2000):
        middle = first.write(x, u)
        assert isinstance(middle, tuple)
        after = second.write(middle, v)
        assert isinstance(after, Tensor)
        # Not rescaled, and all or nothing: 1 + 2 + 4 or 1.
        assert torch.equal(after, 7 * x) or torch.equal(after, x)
        assert torch.equal(first.read(middle), 3 * x if after[0, 0, 0] == 7 else x)
        heard.append(after[0, 0, 0].item() == 7)
    assert sum(heard) / 2000 == pytest.approx(0.7, abs=0.03)


def test_layerdrop_drops_a_tenth_of_the_layers_unless_told() -> None:
    torch.manual_seed(6)
    connection = built("layerdrop", place(4, 1, sublayers=1))
    x = ones(1)
    dropped = [torch.equal(connection.write(x, x), x) for _ in range(4000)]
    assert sum(dropped) / 4000 == pytest.approx(0.1, abs=0.015)


def test_the_state_of_layerdrop_is_a_stream_at_the_borders_of_a_layer() -> None:
    model = leadline.Transformer(
        depth=2, width=8, heads=2, connection="layerdrop(rate=0.5)", context=4
    )
    x = torch.randn(2, 4, 8)
    for block in model.blocks:
        assert isinstance(block(x, Run(causal=True)), Tensor)
    single = built("layerdrop", place(4, 1, sublayers=1))
    assert isinstance(single.write(x, x), Tensor)
    first = built("layerdrop", place(4, 1)).eval()
    assert isinstance(first.write(x, x), Tensor)


def test_a_dropped_layer_is_the_identity_and_gives_its_weights_no_gradient() -> None:
    torch.manual_seed(0)
    model = leadline.Transformer(
        depth=1, width=8, heads=2, connection="layerdrop(rate=0.999)", context=4
    )
    x = torch.randn(2, 4, 8)
    after = model.blocks[0](x, Run(causal=True))
    assert torch.equal(after, x)
    after.requires_grad and after.sum().backward()
    grads = [p.grad for p in model.blocks[0].parameters()]
    assert all(g is None or not g.any() for g in grads)


def test_a_norm_after_the_addition_stays_when_its_layer_is_dropped() -> None:
    torch.manual_seed(0)
    connection = built("layerdrop(rate=0.999)", place(4, 1))
    x = torch.randn(2, 4, 4)
    norm = nn.LayerNorm(4)
    state = connection.settle(connection.write(x, x), norm)
    assert torch.equal(connection.stream(state), norm(x))
    assert len(state) == 2


@pytest.mark.parametrize(
    "choice",
    [
        "dropout(rate=0.5)",
        "rescaled_dropout(rate=0.5)",
        "stochastic_depth(rate=0.5)",
        "layerdrop(rate=0.5)",
    ],
)
def test_only_training_is_random_and_only_by_the_global_generator(choice: str) -> None:
    model = leadline.Transformer(
        depth=3, width=8, heads=2, connection=choice, context=4, init="xavier"
    )
    ids = torch.arange(8).reshape(2, 4)

    def run(seed: int) -> Tensor:
        torch.manual_seed(seed)
        return model(ids)

    assert torch.equal(run(0), run(0))
    assert len({run(seed).sum().item() for seed in range(12)}) > 1
    model.eval()
    state = torch.get_rng_state()
    assert torch.equal(model(ids), model(ids))
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("name", ["dropout", "rescaled_dropout", "stochastic_depth", "layerdrop"])
@pytest.mark.parametrize("rate", [-0.1, 1.0, "often", True])
def test_a_rate_is_a_number_from_0_to_less_than_1(name: str, rate: object) -> None:
    with pytest.raises(RecipeError) as caught:
        CONNECTIONS.get(name)(place(), rate=rate)  # type: ignore[call-arg]
    assert str(caught.value) == (
        f"The option rate of {name} is {rate!r}; give a number from 0 to less than 1."
    )


@pytest.mark.parametrize("name", ["stochastic_depth", "layerdrop"])
def test_a_schedule_is_linear_or_constant(name: str) -> None:
    with pytest.raises(RecipeError) as caught:
        built(f"{name}(schedule=cosine)")
    assert str(caught.value) == (
        f"The option schedule of {name} is 'cosine'; choose linear or constant."
    )
