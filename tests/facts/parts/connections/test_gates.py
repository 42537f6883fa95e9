"""Highway, GTrXL and the orthogonal update: the write in numpy, where they start, what they refuse."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from leadline.errors import RecipeError
from tests.facts.parts.connections.trial import (
    WIDTH,
    array,
    built,
    model,
    place,
    same,
    sigmoid,
    stirred,
    streams,
)

# --- highway ------------------------------------------------------------------------------------


def test_a_highway_takes_from_the_stream_what_it_lets_in_of_the_update() -> None:
    highway = stirred(built("highway"))
    x, u = streams(2)
    w, b = array(highway.transform.weight), array(highway.transform.bias)
    gate = sigmoid(array(x) @ w.T + b)
    assert same(highway.write(x, u), (1 - gate) * array(x) + gate * array(u))
    kept, written = highway.split(x, u)
    assert same(kept, (1 - gate) * array(x))
    assert same(written, gate * array(u))
    assert torch.equal(highway.read(x), x)


@pytest.mark.parametrize(("choice", "start"), [("highway", -2.0), ("highway(bias=-3)", -3.0)])
def test_the_bias_of_a_highway_starts_below_zero(choice: str, start: float) -> None:
    highway = built(choice)
    assert torch.equal(highway.transform.bias, torch.full((WIDTH,), start, dtype=torch.float64))
    with torch.no_grad():
        highway.transform.weight.zero_()
    x, u = streams(2)
    _, written = highway.split(x, u)
    assert same(written, array(u) / (1 + math.exp(-start)))


def test_an_undecided_highway_lets_0_119_of_the_update_in() -> None:
    assert built("highway").transform.bias[0].sigmoid().item() == pytest.approx(0.119, abs=5e-4)


def test_a_highway_has_a_matrix_and_a_bias() -> None:
    assert sum(p.numel() for p in built("highway").parameters()) == WIDTH**2 + WIDTH


# --- gtrxl --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("choice", "relu"), [("gtrxl", True), ("gtrxl(relu=false)", False)])
def test_the_gate_of_gtrxl_is_the_recurrent_unit_of_the_paper(choice: str, relu: bool) -> None:
    gate = stirred(built(choice))
    x, u = streams(2)
    w_r, w_z, w_g = np.split(array(gate.from_update.weight), 3)
    u_r, u_z = np.split(array(gate.from_stream.weight), 2)
    u_g, b_g = array(gate.from_reset.weight), array(gate.bias)
    y = np.maximum(array(u), 0.0) if relu else array(u)
    r = sigmoid(y @ w_r.T + array(x) @ u_r.T)
    z = sigmoid(y @ w_z.T + array(x) @ u_z.T - b_g)
    h = np.tanh(y @ w_g.T + (r * array(x)) @ u_g.T)
    assert same(gate.write(x, u), (1 - z) * array(x) + z * h)
    kept, written = gate.split(x, u)
    assert same(kept, (1 - z) * array(x))
    assert same(written, z * h)


@pytest.mark.parametrize(("choice", "start"), [("gtrxl", 2.0), ("gtrxl(bias=0.5)", 0.5)])
def test_the_gate_of_gtrxl_starts_nearly_closed(choice: str, start: float) -> None:
    gate = built(choice)
    assert torch.equal(gate.bias, torch.full((WIDTH,), start, dtype=torch.float64))
    with torch.no_grad():
        for layer in (gate.from_update, gate.from_stream, gate.from_reset):
            layer.weight.zero_()
    x, u = streams(2)
    open_share = 1 / (1 + math.exp(start))
    assert same(gate.write(x, u), (1 - open_share) * array(x))


def test_gtrxl_has_six_matrices_and_one_bias() -> None:
    gate = built("gtrxl")
    assert sum(p.numel() for p in gate.parameters()) == 6 * WIDTH**2 + WIDTH
    named = dict(gate.weights())
    assert list(named) == [
        f"{n} of the connection" for n in ("W_r", "W_z", "W_g", "U_r", "U_z", "U_g")
    ]
    assert all(matrix.shape == (WIDTH, WIDTH) for matrix in named.values())
    stacked = torch.cat(list(named.values()))
    held = [gate.from_update.weight, gate.from_stream.weight, gate.from_reset.weight]
    assert torch.equal(stacked, torch.cat(held))


@pytest.mark.parametrize(
    "choice", ["highway", "gtrxl", "manifold_hyper", "laurel(kind=lr, rank=4)"]
)
def test_the_two_writes_of_a_layer_draw_different_matrices(choice: str) -> None:
    small = model(choice)
    drawn = [
        weight.flatten()
        for sublayer in small.sublayers()
        for _, weight in sublayer.connection.weights()
    ]
    for i, first in enumerate(drawn):
        assert first.std() > 0.01
        assert all(first.shape != o.shape or not torch.equal(first, o) for o in drawn[i + 1 :])


# --- orthogonal ---------------------------------------------------------------------------------


def test_only_what_is_orthogonal_to_the_stream_is_added() -> None:
    orthogonal = built("orthogonal")
    x, u = streams(2)
    expected = np.empty_like(array(x))
    for place_ in np.ndindex(expected.shape[:-1]):
        a, b = array(x)[place_], array(u)[place_]
        basis, _ = np.linalg.qr(np.column_stack([a, np.eye(WIDTH)[:, :-1]]))
        rest = basis[:, 1:] @ (basis[:, 1:].T @ b)  # all directions but that of x
        expected[place_] = a + rest
    assert same(orthogonal.write(x, u), expected)
    kept, written = orthogonal.split(x, u)
    assert torch.equal(kept, x)
    assert same(written, expected - array(x))


@pytest.mark.parametrize("size", [1e-2, 1.0, 100.0])
def test_what_is_written_is_orthogonal_to_rounding_whatever_the_size_of_the_stream(
    size: float,
) -> None:
    x, u = streams(2)
    x = size * x
    _, written = built("orthogonal").split(x, u)
    cosine = (x * written).sum(-1) / (x.norm(dim=-1) * u.norm(dim=-1))
    assert cosine.abs().max() < 1e-14


def test_the_norm_of_the_stream_never_falls() -> None:
    x, u = streams(2)
    after = built("orthogonal").write(x, u)
    assert torch.all(after.norm(dim=-1) >= x.norm(dim=-1))


@pytest.mark.parametrize(("choice", "eps"), [("orthogonal", 1e-6), ("orthogonal(eps=0.5)", 0.5)])
def test_eps_stands_in_for_a_stream_that_is_shorter(choice: str, eps: float) -> None:
    orthogonal = built(choice)
    x, u = streams(2)
    x = x / x.norm(dim=-1, keepdim=True) * math.sqrt(eps / 4)  # <x, x> = eps / 4
    along = (array(x) * array(u)).sum(-1, keepdims=True)
    assert same(orthogonal.write(x, u), array(x) + array(u) - along / eps * array(x))
    longer = x * 4  # <x, x> = 4 eps: exact
    _, written = orthogonal.split(longer, u)
    assert ((longer * written).sum(-1) / longer.norm(dim=-1)).abs().max() < 1e-14


def test_a_stream_of_zeros_receives_the_whole_update() -> None:
    _, u = streams(2)
    assert torch.equal(built("orthogonal").write(torch.zeros_like(u), u), u)


def test_half_precision_is_projected_in_float32() -> None:
    x, u = (stream.bfloat16() for stream in streams(2))
    orthogonal = built("orthogonal")
    after = orthogonal.write(x, u)
    assert after.dtype == torch.bfloat16
    _, exact = orthogonal.split(x.double(), u.double())
    _, found = orthogonal.split(x, u)
    assert torch.equal(found, exact.bfloat16())  # the result alone is rounded


# --- facts and refusals -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("choice", "keeps"), [("highway", False), ("gtrxl", False), ("orthogonal", True)]
)
def test_whether_a_zero_update_leaves_the_stream_as_it_was(choice: str, keeps: bool) -> None:
    connection = built(choice)
    x, _ = streams(2)
    assert type(connection).keeps_identity is keeps
    assert torch.equal(connection.write(x, torch.zeros_like(x)), x) is keeps
    assert type(connection).starts_as is None
    assert connection.keep is None and connection.gain is None


@pytest.mark.parametrize(
    ("choice", "sentence"),
    [
        ("highway(bias=much)", "The option bias of highway is 'much'; give a number."),
        ("gtrxl(bias=true)", "The option bias of gtrxl is True; give a number."),
        ("gtrxl(relu=1)", "The option relu of gtrxl is 1; give true or false."),
        ("orthogonal(eps=0)", "The option eps of orthogonal is 0; give a number above 0."),
    ],
)
def test_a_gate_refuses_an_impossible_option(choice: str, sentence: str) -> None:
    with pytest.raises(RecipeError) as caught:
        built(choice, place())
    assert str(caught.value) == sentence
