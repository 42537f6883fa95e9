"""DenseFormer and attention over depth: whole stacks by hand, from the paper's indices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from leadline.errors import RecipeError
from leadline.parts import Recipe
from tests.facts.parts.connections.trial import (
    WIDTH,
    Array,
    array,
    built,
    model,
    place,
    same,
    stack,
    streams,
)


def walked(connections: list[Any], x: Tensor, updates: list[Tensor]) -> tuple[list[Tensor], Tensor]:
    """The stream after every write, and what the last connection closes to."""
    state = connections[0].open(x)
    assert torch.equal(connections[0].read(state), x)
    seen: list[Tensor] = []
    for connection, update in zip(connections, updates, strict=True):
        kept, written = connection.split(state, update)
        state = connection.write(state, update)
        assert torch.allclose(kept + written, connection.stream(state), atol=1e-13)
        assert torch.equal(connection.read(state), connection.stream(state))
        seen.append(connection.stream(state))
    return seen, connections[-1].close(state)


# --- denseformer --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("choice", "dilation", "period"),
    [
        ("denseformer", 1, 1),
        ("denseformer(dilation=2)", 2, 1),
        ("denseformer(dilation=3)", 3, 1),
        ("denseformer(period=2)", 1, 2),
        ("denseformer(dilation=2, period=3)", 2, 3),
    ],
)
@pytest.mark.parametrize("sublayers", [1, 2])
def test_after_each_layer_comes_an_average_of_what_the_layers_returned(
    choice: str, dilation: int, period: int, sublayers: int
) -> None:
    depth = 6
    connections = stack(choice, depth=depth, sublayers=sublayers)
    x, *updates = streams(1 + depth * sublayers)
    seen, closed = walked(connections, x, updates)
    raw: dict[int, Any] = {0: array(x)}  # X_j of the paper: what layer j returned, before averaging
    stream: Any = array(x)
    for layer in range(1, depth + 1):
        for sublayer in range(1, sublayers + 1):
            write = (layer - 1) * sublayers + sublayer
            stream = stream + array(updates[write - 1])
            if sublayer < sublayers:
                assert same(seen[write - 1], stream)
        raw[layer] = stream
        connection = connections[layer * sublayers - 1]
        if layer % period == 0:
            # a_ij for j = i, i - k, i - 2k, ...: the last number is the layer's own.
            chosen = [j for j in range(layer + 1) if (layer - j) % dilation == 0]
            assert connection.alpha.shape == (layer // dilation + 1,) == (len(chosen),)
            a = array(connection.alpha)
            stream = sum((a[m] * raw[j] for m, j in enumerate(chosen)), np.zeros_like(stream))
        else:
            assert connection.alpha is None
        assert same(seen[layer * sublayers - 1], stream)
    assert same(closed, stream)


def test_the_own_layer_starts_at_one_and_the_others_at_zero() -> None:
    for connection in stack("denseformer", stir=False):
        where = connection.place
        if where.sublayer == 1:
            assert connection.alpha is None
        else:
            assert connection.alpha.tolist() == [0.0] * where.layer + [1.0]


@pytest.mark.parametrize("placement", ["pre", "post"])
@pytest.mark.parametrize("choice", ["denseformer", "denseformer(dilation=2, period=2)"])
def test_a_denseformer_starts_exactly_as_the_plain_model(choice: str, placement: str) -> None:
    ids = torch.arange(16).view(2, 8)
    plain = model("identity", placement, depth=4)
    dense = model(choice, placement, depth=4)
    assert torch.equal(dense(ids), plain(ids))
    stirred_model = model(choice, placement, depth=4, stir=True)
    assert not torch.equal(stirred_model(ids), plain(ids))


def test_what_is_kept_and_written_at_the_end_of_a_layer() -> None:
    *_, last = stack("denseformer", depth=2, sublayers=1)
    x0, x1, u = streams(3)
    kept, written = last.split((x1, x0, x1), u)
    a = array(last.alpha)
    assert same(kept, a[0] * array(x0) + a[1] * array(x1) + a[2] * array(x1))
    assert same(written, a[2] * array(u))


def test_a_shorter_history_takes_the_newest_numbers() -> None:
    last = stack("denseformer", depth=3, sublayers=1)[-1]
    x0, x2, u = streams(3)
    after = last.write((x2, x0, x2), u)  # one layer was left out
    a = array(last.alpha)
    expected = a[3] * array(x2 + u) + a[2] * array(x2) + a[1] * array(x0)
    assert same(after[0], expected)


# --- attention over depth -----------------------------------------------------------------------


def softmax_over(values: list[Array], query: Array) -> tuple[Array, list[Array]]:
    """sum_i p_i v_i and the p_i, token by token."""
    mixed = np.zeros_like(values[0])
    shares = [np.zeros((*mixed.shape[:2], 1)) for _ in values]
    for e, t in np.ndindex(*mixed.shape[:2]):
        weights = []
        for value in values:
            v = value[e, t]
            weights.append(math.exp(query @ v / math.sqrt((v @ v) / len(v) + 1e-6)))
        for share, weight, value in zip(shares, weights, values, strict=True):
            share[e, t] = weight / sum(weights)
            mixed[e, t] += weight / sum(weights) * value[e, t]
    return mixed, shares


@pytest.mark.parametrize("size", [1.0, 1e-3])
@pytest.mark.parametrize("choice", ["depth_attention", "depth_attention(blocks=none)"])
def test_the_stream_is_a_softmax_over_the_embedding_and_all_updates(
    choice: str, size: float
) -> None:
    connections = stack(choice, depth=3)
    x, *updates = (size * s for s in streams(7))
    seen, closed = walked(connections, x, updates)
    values = [array(x)]
    expected = values[0]
    for connection, update, found in zip(connections, updates, seen, strict=True):
        values.append(array(update))
        expected, _ = softmax_over(values, array(connection.query))
        assert same(found, expected)
    assert same(closed, expected)


@pytest.mark.parametrize(
    ("blocks", "depth", "sums"),
    [
        (1, 3, [(1, 6)]),
        (2, 3, [(1, 3), (4, 6)]),
        (3, 3, [(1, 2), (3, 4), (5, 6)]),
        (4, 3, [(1, 2), (3, 4), (5, 6)]),  # ceil(6 / 4) = 2 writes each
        (6, 3, [(k, k) for k in range(1, 7)]),
        (2, 2, [(1, 2), (3, 4)]),
        (3, 4, [(1, 3), (4, 6), (7, 8)]),
    ],
)
def test_blocks_of_writes_are_summed_before_they_are_attended_to(
    blocks: int, depth: int, sums: list[tuple[int, int]]
) -> None:
    connections = stack(f"depth_attention(blocks={blocks})", depth=depth)
    x, *updates = streams(1 + 2 * depth)
    state = connections[0].open(x)
    for number, (connection, update) in enumerate(zip(connections, updates, strict=True), 1):
        values = [array(x)]
        for first, last in sums:
            if first <= number:
                members = updates[first - 1 : min(last, number)]
                values.append(sum((array(u) for u in members), np.zeros_like(array(x))))
        expected, shares = softmax_over(values, array(connection.query))
        kept, written = connection.split(state, update)
        state = connection.write(state, update)
        assert same(state[0], expected)
        assert len(state) == 1 + len(values)
        assert same(written, shares[-1] * array(update))
        assert same(kept, expected - shares[-1] * array(update))


def test_one_block_per_write_is_the_full_form() -> None:
    full, blocked = (
        stack(f"depth_attention(blocks={blocks})", depth=2, stir=False) for blocks in (0, 4)
    )
    for a, b in zip(full, blocked, strict=True):
        with torch.no_grad():
            a.query.copy_(streams(1, seed=a.place.write)[0][0, 0])
            b.query.copy_(a.query)
    x, *updates = streams(5)
    assert torch.equal(walked(full, x, updates)[1], walked(blocked, x, updates)[1])


def test_the_query_starts_at_zero_and_the_stream_as_a_plain_mean() -> None:
    connections = stack("depth_attention", depth=2, stir=False)
    assert all(torch.equal(c.query, torch.zeros(WIDTH).double()) for c in connections)
    assert sum(p.numel() for c in connections for p in c.parameters()) == 4 * WIDTH
    x, *updates = streams(5)
    seen, _ = walked(connections, x, updates)
    for number, found in enumerate(seen, 1):
        assert same(found, sum(map(array, updates[:number]), array(x)) / (number + 1))


def test_shares_of_half_precision_are_computed_in_float32() -> None:
    connection = stack("depth_attention", depth=1, sublayers=1)[0].bfloat16()
    x, u = (s.bfloat16() for s in streams(2))
    after = connection.write((x, x), u)
    assert all(tensor.dtype == torch.bfloat16 for tensor in after)
    wide = built("depth_attention", place(1, 1, depth=1, sublayers=1))
    wide.query.data.copy_(connection.query.double())
    exact = wide.shares((x.double(), u.double()))
    for found, expected in zip(connection.shares((x, u)), exact, strict=True):
        assert torch.allclose(found.double(), expected, rtol=2.0**-8, atol=0)


def test_where_its_first_blocks_were_left_out_a_sum_begins_after_the_embedding() -> None:
    third = stack("depth_attention(blocks=1)", depth=2)[2]
    x, u = streams(2)
    after = third.write((x, x), u)
    assert len(after) == 3 and torch.equal(after[1], x) and torch.equal(after[2], u)


@pytest.mark.parametrize("placement", ["post", "keel", "mix", "mix(share=0.01)", "hybrid"])
def test_attention_over_depth_refuses_placements_that_norm_the_stream(placement: str) -> None:
    with pytest.raises(RecipeError) as caught:
        Recipe(connection="depth_attention", placement=placement)
    name = placement.partition("(")[0]
    assert str(caught.value) == (
        f"The connection 'depth_attention' makes no sense with the placement '{name}': its stream "
        "is computed anew from all updates at every write, so a norm on the stream would be lost "
        "(choose a placement such as pre or sandwich)."
    )


@pytest.mark.parametrize(
    "placement", ["pre", "sandwich", "output", "parallel", "none", "subln", "layernorm_scaling"]
)
def test_attention_over_depth_takes_placements_that_leave_the_stream_alone(placement: str) -> None:
    assert Recipe(connection="depth_attention", placement=placement).depth == 12


@pytest.mark.parametrize(
    ("choice", "keeps", "starts"),
    [("denseformer", False, "plain"), ("depth_attention", False, None)],
)
def test_the_facts_of_a_history(choice: str, keeps: bool, starts: str | None) -> None:
    connection = type(built(choice))
    assert (connection.keeps_identity, connection.starts_as) == (keeps, starts)


@pytest.mark.parametrize(
    ("choice", "sentence"),
    [
        (
            "denseformer(dilation=0)",
            "The option dilation of denseformer is 0; give a whole number from 1 on.",
        ),
        (
            "denseformer(period=1.5)",
            "The option period of denseformer is 1.5; give a whole number from 1 on.",
        ),
        (
            "depth_attention(blocks=-1)",
            "The option blocks of depth_attention is -1; give a whole number from 0 on.",
        ),
        (
            "depth_attention(blocks=9)",
            "The option blocks of depth_attention is 9, and the stack has 8 writes; choose at "
            "most as many, or 0 for no blocks.",
        ),
    ],
)
def test_a_history_refuses_an_impossible_option(choice: str, sentence: str) -> None:
    with pytest.raises(RecipeError) as caught:
        built(choice)
    assert str(caught.value) == sentence
