"""ResiDual, B2T and LAuReL: whole stacks by hand, where they start, what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from leadline.errors import RecipeError
from leadline.parts import Recipe, Transformer
from tests.facts.parts.connections.trial import (
    WIDTH,
    Array,
    array,
    built,
    model,
    place,
    same,
    stack,
    stirred,
    streams,
)


def layer_norm(norm: nn.Module, x: Array) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    return array(norm.get_parameter("weight")) * scaled + array(norm.get_parameter("bias"))


def norms(count: int) -> list[nn.Module]:
    return [stirred(nn.LayerNorm(WIDTH).double(), by=0.3, seed=50 + n) for n in range(count)]


# --- dual ---------------------------------------------------------------------------------------


def test_residual_norms_one_stream_at_every_write_and_the_other_in_the_end() -> None:
    connections = stack("dual", depth=2)
    x, *updates = streams(5)
    settles = norms(4)
    state: Any = connections[0].open(x)
    first, second = array(x), array(x)
    for connection, update, norm in zip(connections, updates, settles, strict=True):
        assert same(connection.read(state), first)
        state = connection.settle(connection.write(state, update), norm)
        first = layer_norm(norm, first + array(update))
        second = second + array(update)
        assert same(state[0], first) and same(state[1], second)
    last = connections[-1]
    assert same(last.close(state), first + layer_norm(last.norm, second))


def test_the_last_connection_alone_holds_the_last_norm() -> None:
    connections = stack("dual", depth=3, stir=False)
    assert [c.norm is not None for c in connections] == [False] * 5 + [True]
    assert all((c.keep, c.gain) == (1.0, 1.0) for c in connections)
    x, r, u = streams(3)
    kept, written = connections[0].split((x, r), u)
    assert kept is x and written is u


def _into(seen: list[Tensor]) -> Callable[[nn.Module, Any, Tensor], None]:
    return lambda module, given, returned: seen.append(returned)


def test_the_logits_of_residual_by_hand() -> None:
    small = model("dual", "post", stir=True)
    plain = small.with_(connection="identity")
    ids = torch.arange(8).view(1, 8)
    updates: list[Tensor] = []
    embedded: list[Tensor] = []
    hooks = [s.branch.register_forward_hook(_into(updates)) for s in small.sublayers()]
    hooks.append(small.embedding.register_forward_hook(_into(embedded)))
    with torch.no_grad():
        found = small.stream(ids)
        for hook in hooks:
            hook.remove()
        second = embedded[0] + torch.stack(updates).sum(0)
        norm = small.last.norm
        assert isinstance(norm, nn.LayerNorm)
        assert torch.allclose(found, plain.stream(ids) + norm(second), atol=1e-5)


@pytest.mark.parametrize(
    "placement", ["pre", "sandwich", "parallel", "keel", "mix", "hybrid", "none", "output"]
)
def test_residual_refuses_every_placement_but_post(placement: str) -> None:
    with pytest.raises(RecipeError) as caught:
        Recipe(connection="dual", placement=placement)
    assert str(caught.value) == (
        f"The connection 'dual' makes no sense with the placement '{placement}': its first stream "
        "is normed after every addition and nowhere else (choose the placement post)."
    )


def test_residual_needs_a_norm() -> None:
    with pytest.raises(RecipeError) as caught:
        Transformer(depth=1, width=8, heads=1, connection="dual", placement="post", norm="none")
    assert str(caught.value) == (
        "The connection 'dual' norms its second stream in the end, and the recipe's norm is none; "
        "choose layernorm or rmsnorm."
    )


def test_residual_runs_with_attention_alone() -> None:
    small = model("dual", "post", mlp="none")
    assert small(torch.arange(8).view(1, 8)).isfinite().all()


# --- b2t ----------------------------------------------------------------------------------------


def test_the_input_of_a_layer_runs_to_its_last_addition() -> None:
    connections = stack("b2t", depth=3)
    x, *updates = streams(7)
    settles = norms(6)
    state: Any = connections[0].open(x)
    entry = array(x)
    for layer in range(3):
        (attention, mlp), (a, m) = connections[2 * layer :][:2], updates[2 * layer :][:2]
        kept, written = attention.split(state, a)
        assert same(kept, entry) and torch.equal(written, a)
        state = attention.settle(attention.write(state, a), settles[2 * layer])
        h = layer_norm(settles[2 * layer], entry + array(a))
        assert same(state[0], h) and same(state[1], entry)
        assert same(mlp.read(state), h)
        kept, written = mlp.split(state, m)
        assert same(kept, h + entry) and torch.equal(written, m)
        state = mlp.settle(mlp.write(state, m), settles[2 * layer + 1])
        entry = layer_norm(settles[2 * layer + 1], entry + h + array(m))
        assert same(state, entry)
    assert same(connections[-1].close(state), entry)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (
            {"placement": "pre"},
            "it runs past the norm on the stream after the first addition to the one after the "
            "second, and not all of them stand here (choose the placement post or keel)",
        ),
        (
            {"placement": "mix"},
            "it runs past the norm on the stream after the first addition to the one after the "
            "second, and not all of them stand here (choose the placement post or keel)",
        ),
        (
            {"placement": "post", "mlp": "none"},
            "it runs from the bottom of a layer to the second of its two writes, and here a layer "
            "has 1",
        ),
        (
            {"placement": "parallel"},
            "it runs from the bottom of a layer to the second of its two writes, and here a layer "
            "has 1",
        ),
    ],
)
def test_b2t_refuses_layers_without_two_normed_writes(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(RecipeError) as caught:
        Recipe(connection="b2t", **fields)
    placement = fields["placement"]
    assert str(caught.value) == (
        f"The connection 'b2t' makes no sense with the placement '{placement}': {reason}."
    )


def test_b2t_needs_a_norm_because_the_stream_is_added_twice() -> None:
    with pytest.raises(RecipeError, match="needs a norm after each addition"):
        Recipe(connection="b2t", placement="post", norm="none")
    assert Recipe(connection="b2t", placement="keel").choice("connection").name == "b2t"


# --- laurel -------------------------------------------------------------------------------------


def test_residual_weights_are_a_doubled_softmax() -> None:
    laurel = stirred(built("laurel"))
    x, u = streams(2)
    first, second = np.exp(array(laurel.balance))
    a, b = 2 * first / (first + second), 2 * second / (first + second)
    assert abs(a - b) > 0.1
    assert same(laurel.write(x, u), b * array(x) + a * array(u))
    kept, written = laurel.split(x, u)
    assert same(kept, b * array(x)) and same(written, a * array(u))


@pytest.mark.parametrize(
    ("choice", "rank"), [("laurel(kind=lr)", 64), ("laurel(kind=lr, rank=2)", 2)]
)
def test_a_low_rank_map_stands_beside_the_stream(choice: str, rank: int) -> None:
    laurel = stirred(built(choice))
    x, u = streams(2)
    a, b = array(laurel.down.weight), array(laurel.up.weight)
    assert a.shape == (rank, WIDTH) and b.shape == (WIDTH, rank)
    assert same(laurel.write(x, u), array(x) + array(x) @ a.T @ b.T + array(u), tolerance=1e-11)
    kept, written = laurel.split(x, u)
    assert same(kept, array(x) + array(x) @ a.T @ b.T, tolerance=1e-11)
    assert torch.equal(written, u)


@pytest.mark.parametrize("previous", [1, 2, 3, 5])
def test_previous_activations_go_through_one_low_rank_map(previous: int) -> None:
    choice = (
        "laurel(kind=pa, rank=2)"
        if previous == 3
        else (f"laurel(kind=pa, rank=2, previous={previous})")
    )
    connections = stack(choice, depth=3)
    x, *updates = streams(7)
    settles = norms(6)
    state: Any = connections[0].open(x)
    history = [array(x)]  # the stream before every write, newest last
    for write, (connection, update) in enumerate(zip(connections, updates, strict=True), 1):
        g = array(connection.gamma)
        assert g.shape == (min(previous, write),)
        low_rank = array(connection.up.weight) @ array(connection.down.weight)
        heard = sum((g[j] * history[-1 - j] for j in range(len(g))), np.zeros_like(array(x)))
        kept, written = connection.split(state, update)
        assert same(kept, history[-1] + heard @ low_rank.T)
        assert torch.equal(written, update)
        assert same(connection.read(state), history[-1])
        state = connection.settle(connection.write(state, update), settles[write - 1])
        after = layer_norm(settles[write - 1], history[-1] + heard @ low_rank.T + array(update))
        assert same(state[0], after)
        history.append(after)
        assert len(state) == min(previous, write + 1)
    assert same(connections[-1].close(state), history[-1])


def test_a_shorter_history_of_laurel_takes_the_newest_numbers() -> None:
    last = stirred(built("laurel(kind=pa, rank=2)", place(4, 2)))
    x, older, u = streams(3)
    after = last.write((x, older), u)  # a block was left out
    g, low_rank = array(last.gamma), array(last.up.weight) @ array(last.down.weight)
    heard = g[0] * array(x) + g[1] * array(older)
    assert same(after[0], array(x) + heard @ low_rank.T + array(u))


def test_where_every_number_of_laurel_starts() -> None:
    assert built("laurel").balance.tolist() == [0.0, 0.0]
    assert sum(p.numel() for p in built("laurel").parameters()) == 2
    low = built("laurel(kind=lr)")
    assert torch.count_nonzero(low.up.weight) == 0
    assert torch.count_nonzero(low.down.weight) > 0
    assert sum(p.numel() for p in low.parameters()) == 2 * 64 * WIDTH
    assert list(dict(low.weights())) == ["low rank"]
    assert next(low.weights())[1] is low.down.weight
    assert list(built("laurel").weights()) == []
    third = built("laurel(kind=pa, rank=4)", place(2, 1))
    assert third.gamma.tolist() == [1.0, 1.0, 1.0]
    assert built("laurel(kind=pa, rank=4)", place(4, 2)).gamma.tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("choice", ["laurel", "laurel(kind=lr)", "laurel(kind=pa)"])
def test_every_kind_of_laurel_starts_as_the_plain_connection(choice: str) -> None:
    ids = torch.arange(16).view(2, 8)
    plain = model("identity")
    assert torch.equal(model(choice)(ids), plain(ids))
    assert not torch.allclose(model(choice, stir=True)(ids), plain(ids), atol=1e-3)


@pytest.mark.parametrize(
    ("choice", "keeps", "starts"),
    [("dual", True, None), ("b2t", False, None), ("laurel", False, "plain")],
)
def test_the_facts_of_a_second_stream(choice: str, keeps: bool, starts: str | None) -> None:
    connection = type(built(choice, place(4, 2)))
    assert (connection.keeps_identity, connection.starts_as) == (keeps, starts)
    assert connection.amplifies is (choice == "b2t")


@pytest.mark.parametrize(
    ("choice", "sentence"),
    [
        ("laurel(kind=best)", "The option kind of laurel is 'best'; choose rw, lr or pa."),
        (
            "laurel(kind=lr, rank=0)",
            "The option rank of laurel is 0; give a whole number from 1 on.",
        ),
        (
            "laurel(kind=pa, previous=0)",
            "The option previous of laurel is 0; give a whole number from 1 on.",
        ),
    ],
)
def test_laurel_refuses_an_impossible_option(choice: str, sentence: str) -> None:
    with pytest.raises(RecipeError) as caught:
        built(choice)
    assert str(caught.value) == sentence
