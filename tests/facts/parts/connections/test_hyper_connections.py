"""Hyper-connections: lanes by hand, and a start that is exactly the plain connection."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import leadline
from leadline.errors import RecipeError
from tests.facts.parts.connections.trial import (
    EXAMPLES,
    TOKENS,
    WIDTH,
    Array,
    array,
    built,
    lanes,
    model,
    place,
    same,
    stirred,
    streams,
)


def layer_norm(x: Array, weight: Array, bias: Array) -> Array:
    centred = x - x.mean()
    return weight * centred / np.sqrt((centred**2).mean() + 1e-5) + bias


def by_hand(hyper: nn.Module, state: Tensor, update: Tensor) -> tuple[Array, Array]:
    """What is read and what the lanes become, number by number."""
    p = {name: array(parameter) for name, parameter in hyper.named_parameters()}
    dynamic = "to_read" in p
    n = state.shape[2]
    read = np.zeros(update.shape)
    after = np.zeros(state.shape)
    for e, t in np.ndindex(EXAMPLES, TOKENS):
        h, u = array(state)[e, t], array(update)[e, t]
        a_m, a_r, b = p["static_read"].copy(), p["static_mix"].copy(), p["static_write"].copy()
        if dynamic:
            for j in range(n):
                normed = layer_norm(h[j], p["norm.weight"], p["norm.bias"])
                a_m[j] += p["scale_in"] * np.tanh(normed @ p["to_read"][0])
                b[j] += p["scale_out"] * np.tanh(normed @ p["to_write"][0])
                for i in range(n):
                    a_r[j, i] += p["scale_in"] * np.tanh(normed @ p["to_mix"][i])
        for j in range(n):
            read[e, t] += a_m[j] * h[j]
        for i in range(n):
            after[e, t, i] = b[i] * u
            for j in range(n):
                after[e, t, i] += a_r[j, i] * h[j]
    return read, after


@pytest.mark.parametrize(
    "choice", ["hyper", "hyper(dynamic=false)", "hyper(lanes=3)", "hyper(lanes=1)"]
)
def test_lanes_are_read_mixed_and_written_as_in_the_paper(choice: str) -> None:
    hyper = stirred(built(choice))
    (u,) = streams(1)
    state = lanes(hyper.lanes)
    read, after = by_hand(hyper, state, u)
    assert same(hyper.read(state), read)
    assert same(hyper.write(state, u), after)
    kept, written = hyper.split(state, u)
    assert same(kept + written, after)
    assert same(written, by_hand(hyper, state, u)[1] - by_hand(hyper, state, 0 * u)[1])


def test_four_lanes_that_open_as_copies_and_close_as_their_mean() -> None:
    hyper = built("hyper")
    (x,) = streams(1)
    assert hyper.lanes == 4
    state = hyper.open(x)
    assert state.shape == (EXAMPLES, TOKENS, 4, WIDTH)
    assert all(torch.equal(state[:, :, lane], x) for lane in range(4))
    other = lanes(4)
    assert same(hyper.close(other), array(other).mean(2))
    assert same(built("hyper(close=sum)").close(other), array(other).sum(2))


@pytest.mark.parametrize("write", range(1, 9))
def test_where_every_number_of_a_hyper_connection_starts(write: int) -> None:
    where = place(1 + (write - 1) // 2, 1 + (write - 1) % 2)
    assert where.write == write
    hyper = built("hyper", where)
    start = {name: array(p) for name, p in hyper.named_parameters() if "norm" not in name}
    assert start["static_read"].tolist() == [float(j == (write - 1) % 4) for j in range(4)]
    assert np.array_equal(start["static_mix"], np.eye(4))
    assert start["static_write"].tolist() == [1.0, 1.0, 1.0, 1.0]
    for name, shape in (("to_read", (1, WIDTH)), ("to_mix", (4, WIDTH)), ("to_write", (1, WIDTH))):
        assert np.array_equal(start[name], np.zeros(shape))
    assert start["scale_in"] == start["scale_out"] == pytest.approx(0.01, rel=1e-7)


def test_what_a_hyper_connection_costs() -> None:
    def count(choice: str) -> int:
        hyper = built(choice, place(norm=lambda _: None))
        return sum(p.numel() for p in hyper.parameters())

    assert count("hyper(dynamic=false)") == 4**2 + 2 * 4
    assert count("hyper") == 4**2 + 2 * 4 + (4 + 2) * WIDTH + 2


@pytest.mark.parametrize("placement", ["pre", "post", "sandwich", "parallel"])
@pytest.mark.parametrize("choice", ["hyper", "hyper(dynamic=false)"])
def test_a_model_of_hyper_connections_starts_exactly_as_the_plain_one(
    choice: str, placement: str
) -> None:
    plain, hyper = model("identity", placement), model(choice, placement)
    ids = torch.arange(16).view(2, 8)
    assert torch.equal(hyper(ids), plain(ids))


@pytest.mark.parametrize("choice", ["hyper(lanes=3)", "hyper(close=sum)", "hyper(lanes=1)"])
def test_other_numbers_of_lanes_and_a_sum_start_as_the_plain_model_to_rounding(choice: str) -> None:
    plain, hyper = model("identity", "pre"), model(choice, "pre")
    with torch.no_grad():  # a stream of unit size, so that the closing norm's eps is nothing
        for each in (plain, hyper):
            table = each.get_parameter("embedding.tokens.weight")
            table.normal_(generator=torch.Generator().manual_seed(0))
    ids = torch.arange(16).view(2, 8)
    assert torch.allclose(hyper(ids), plain(ids), atol=1e-6)


def test_without_a_norm_in_the_recipe_the_lanes_are_read_as_they_are() -> None:
    hyper = stirred(built("hyper", place(norm=lambda _: None)))
    state = lanes(4)
    p = {name: array(parameter) for name, parameter in hyper.named_parameters()}
    share = p["static_read"] + p["scale_in"] * np.tanh(array(state) @ p["to_read"][0])
    assert same(hyper.read(state), (share[..., None] * array(state)).sum(2))


def test_autocast_does_not_round_the_lanes() -> None:
    hyper = built("hyper").float()
    state, u = lanes(4).float(), streams(1)[0].float()
    with torch.autocast("cpu", torch.bfloat16):
        after = hyper.write(state, u.bfloat16())
        read = hyper.read(state)
    assert after.dtype == read.dtype == torch.float32
    assert torch.equal(after, state + u.bfloat16().float().unsqueeze(2))
    assert torch.equal(read, state[:, :, 0])


def test_the_facts_of_a_hyper_connection() -> None:
    hyper = built("hyper")
    assert hyper.starts_as == "plain"
    assert built("hyper(close=sum)").starts_as is None  # four times x + u
    assert hyper.keeps_identity is False  # once a_r moves
    assert hyper.mixes is None


def test_lanes_that_are_equal_have_a_cosine_of_one_and_others_less() -> None:
    ids = leadline.random_tokens(model("hyper"), examples=2, length=8, seed=0)
    equal = leadline.measure(model("hyper"), ids, probes="lanes")
    moved = leadline.measure(model("hyper", stir=True), ids, probes="lanes")
    at_the_end = [r.value for r in equal.select("lane.cosine") if r.site.layer == 3]
    assert at_the_end and all(value == pytest.approx(1.0, abs=1e-5) for value in at_the_end)
    assert min(r.value for r in moved.select("lane.cosine") if r.site.layer == 3) < 0.99
    assert {r.site.lane for r in moved.select("lane.norm")} == {1, 2, 3, 4}


@pytest.mark.parametrize(
    ("choice", "sentence"),
    [
        ("hyper(lanes=0)", "The option lanes of hyper is 0; give a whole number from 1 on."),
        ("hyper(lanes=true)", "The option lanes of hyper is True; give a whole number from 1 on."),
        ("hyper(dynamic=1)", "The option dynamic of hyper is 1; give true or false."),
        ("hyper(close=max)", "The option close of hyper is 'max'; choose mean or sum."),
    ],
)
def test_a_hyper_connection_refuses_an_impossible_option(choice: str, sentence: str) -> None:
    with pytest.raises(RecipeError) as caught:
        built(choice)
    assert str(caught.value) == sentence
