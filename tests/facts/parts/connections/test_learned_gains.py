"""Connections with parameters of their own: the write in numpy, the start, the gradient."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import leadline
from leadline.errors import InputError, RecipeError
from leadline.parts.connections import CONNECTIONS
from leadline.parts.connections.admin import profile
from leadline.parts.place import Place

WIDTH = 4


def place(depth: int = 6, sublayers: int = 2, sublayer: int = 1) -> Place:
    return Place(width=WIDTH, heads=2, depth=depth, layer=1, sublayer=sublayer, sublayers=sublayers)


def built(choice: str, where: Place | None = None) -> Any:
    return CONNECTIONS.build(choice, place=where or place()).double()


def streams(seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x, u = torch.randn(2, 2, 3, WIDTH, generator=generator, dtype=torch.float64)
    return x, u


def drawn(connection: nn.Module, seed: int = 1) -> Any:
    """The connection with numbers other than those it starts with."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in connection.parameters():
        parameter.data.normal_(generator=generator)
    return connection


def sigmoid(z: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-z))


def array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().numpy()


# --- one number -------------------------------------------------------------------------------


@pytest.mark.parametrize("choice", ["rezero", "skipinit", "weighted(learned=true)"])
def test_one_learned_number_multiplies_the_update(choice: str) -> None:
    connection = drawn(built(choice))
    x, u = streams()
    alpha = connection.alpha.item()
    assert connection.alpha.shape == ()
    np.testing.assert_allclose(array(connection.write(x, u)), array(x) + alpha * array(u))
    kept, written = connection.split(x, u)
    assert kept is x
    np.testing.assert_allclose(array(written), alpha * array(u))
    assert (connection.keep, connection.gain) == (1.0, "alpha")


@pytest.mark.parametrize(
    ("choice", "start"),
    [
        ("rezero", 0.0),
        ("skipinit", 0.0),
        ("skipinit(start=0.125)", 0.125),
        ("weighted(learned=true)", 1.0),
        ("weighted(learned=true, alpha=0.375)", 0.375),
        ("weighted(learned=true, alpha=depth)", 0.25),
    ],
)
def test_where_the_learned_number_starts(choice: str, start: float) -> None:
    assert built(choice, place(depth=8)).alpha.item() == start


@pytest.mark.parametrize("choice", ["rezero", "skipinit", "weighted(learned=true)"])
def test_the_gradient_of_the_number_is_the_update_seen_from_the_loss(choice: str) -> None:
    connection = built(choice)
    x, u = streams()
    seen = streams(9)[0]
    (connection.write(x, u) * seen).sum().backward()
    assert connection.alpha.grad.item() == pytest.approx((array(seen) * array(u)).sum())


# --- LayerScale -------------------------------------------------------------------------------


def test_layerscale_multiplies_every_feature_by_its_own_gain() -> None:
    connection = drawn(built("layerscale"))
    x, u = streams()
    g = array(connection.scale)
    assert g.shape == (WIDTH,)
    np.testing.assert_allclose(array(connection.write(x, u)), array(x) + g * array(u))
    np.testing.assert_allclose(array(connection.split(x, u)[1]), g * array(u))
    assert connection.split(x, u)[0] is x
    assert (connection.keep, connection.gain) == (1.0, "scale")


@pytest.mark.parametrize(
    ("depth", "start"), [(1, 0.1), (18, 0.1), (19, 1e-5), (24, 1e-5), (25, 1e-6), (48, 1e-6)]
)
def test_layerscale_starts_by_depth_as_in_cait(depth: int, start: float) -> None:
    connection = CONNECTIONS.build("layerscale", place=place(depth=depth))
    assert torch.equal(connection.scale, torch.full((WIDTH,), start))


def test_layerscale_starts_where_it_is_told() -> None:
    connection = CONNECTIONS.build("layerscale(start=0.5)", place=place(depth=30))
    assert torch.equal(connection.scale, torch.full((WIDTH,), 0.5))


def test_the_gradient_of_a_gain_is_that_of_its_feature() -> None:
    connection = built("layerscale")
    x, u = streams()
    seen = streams(9)[0]
    (connection.write(x, u) * seen).sum().backward()
    np.testing.assert_allclose(
        array(connection.scale.grad), (array(seen) * array(u)).sum((0, 1)), rtol=1e-12
    )


# --- the gate ---------------------------------------------------------------------------------


@pytest.mark.parametrize("choice", ["gated", "gated(bias=true)"])
def test_the_gate_reads_the_stream_and_multiplies_the_update(choice: str) -> None:
    connection = drawn(built(choice))
    x, u = streams()
    z = array(x) @ array(connection.weight).T
    if connection.bias is not None:
        z = z + array(connection.bias)
    expected = array(x) + sigmoid(z) * array(u)
    np.testing.assert_allclose(array(connection.write(x, u)), expected, rtol=1e-13)
    kept, written = connection.split(x, u)
    assert kept is x
    np.testing.assert_allclose(array(written), sigmoid(z) * array(u), rtol=1e-13)


def test_the_gate_has_no_bias_unless_asked_and_starts_at_one_half() -> None:
    plain, biased = built("gated"), built("gated(bias=true)")
    assert plain.bias is None
    assert torch.equal(biased.bias, torch.zeros(WIDTH, dtype=torch.float64))
    assert plain.weight.shape == (WIDTH, WIDTH)
    x, u = streams()
    for connection in (plain, biased):
        assert torch.equal(connection.write(x, u), x + 0.5 * u)


def test_the_init_draws_another_gate_for_each_write_of_a_layer() -> None:
    model = leadline.Transformer(depth=2, width=16, heads=2, connection="gated")
    first, second, third, _ = (s.connection for s in model.sublayers())
    assert [role for role, _ in first.weights()] == ["gate of the connection"]
    assert [role for role, _ in second.weights()] == ["gate of the connection"]
    assert next(second.weights())[1] is second.weight
    assert not torch.equal(first.weight, second.weight)
    assert not torch.equal(first.weight, third.weight)
    # GPT-2's init: std 0.02, not less: the gate itself does not write to the stream.
    assert 0.016 < float(first.weight.detach().std()) < 0.024


def test_the_gate_learns() -> None:
    connection = built("gated(bias=true)")
    x, u = streams()
    connection.write(x, u).sum().backward()
    # sigmoid'(0) = 1/4
    expected = 0.25 * np.einsum("eto,eti->oi", array(u), array(x))
    np.testing.assert_allclose(array(connection.weight.grad), expected, rtol=1e-12)
    np.testing.assert_allclose(array(connection.bias.grad), 0.25 * array(u).sum((0, 1)))


# --- the variance-keeping gate ----------------------------------------------------------------


def test_the_variance_gate_by_its_formula() -> None:
    connection = built("variance_gate")
    connection.gate.data = torch.tensor([-0.9, -0.1, 0.2, 0.6], dtype=torch.float64)
    b = sigmoid(array(connection.gate) / 0.3)
    a = np.sqrt((1 - b) * (1 + b))
    x, u = streams()
    np.testing.assert_allclose(array(connection.write(x, u)), a * array(x) + b * array(u))
    kept, written = connection.split(x, u)
    np.testing.assert_allclose(array(kept), a * array(x), rtol=1e-12)
    np.testing.assert_allclose(array(written), b * array(u), rtol=1e-12)
    np.testing.assert_allclose(a**2 + b**2, 1, rtol=1e-15)
    assert connection.keep is None
    assert connection.gain is None


def test_the_variance_gate_agrees_with_the_one_of_muse_spark() -> None:
    module = pytest.importorskip("transformers.models.muse_spark.modeling_muse_spark")

    class Config:
        hidden_size = WIDTH
        residual_gate_temperature = 0.3

    theirs = module.MuseSparkResidualGate(Config()).double()
    theirs.gate.data = torch.tensor([-2.0, -0.1, 0.5, 3.0], dtype=torch.float64)
    ours = built("variance_gate")
    ours.gate.data = theirs.gate.data.clone()
    x, u = streams()
    np.testing.assert_allclose(array(ours.write(x, u)), array(theirs(x, u)), rtol=1e-14)


def test_the_variance_gate_starts_at_one_half() -> None:
    connection = built("variance_gate")
    a, b = connection.factors()
    np.testing.assert_allclose(array(b), np.full(WIDTH, 0.5))
    np.testing.assert_allclose(array(a), np.full(WIDTH, math.sqrt(3) / 2))
    other = built("variance_gate(start=0.6, temperature=0.2)")
    np.testing.assert_allclose(array(other.factors()[1]), 1 / (1 + math.exp(-3)), rtol=1e-7)


def test_the_stream_is_never_closed_altogether() -> None:
    connection = built("variance_gate")
    connection.gate.data.fill_(30.0)
    assert array(connection.factors()[0]) == pytest.approx(math.sqrt(1e-3))
    other = built("variance_gate(eps=0.25)")
    other.gate.data.fill_(30.0)
    assert array(other.factors()[0]) == pytest.approx(0.5)


def test_the_variance_gate_learns() -> None:
    connection = built("variance_gate")
    x, u = streams()
    connection.write(x, u).sum().backward()
    # At w = 0: db/dw = (1/4)/T, da/dw = -(b/a) db/dw with a = sqrt(3)/2, b = 1/2.
    slope = 0.25 / 0.3
    expected = slope * (array(u) - array(x) / math.sqrt(3)).sum((0, 1))
    np.testing.assert_allclose(array(connection.gate.grad), expected, rtol=1e-12)


# --- Admin ------------------------------------------------------------------------------------


def test_admin_multiplies_every_feature_of_the_stream() -> None:
    connection = drawn(built("admin"))
    x, u = streams()
    w = array(connection.omega)
    np.testing.assert_allclose(array(connection.write(x, u)), w * array(x) + array(u))
    kept, written = connection.split(x, u)
    np.testing.assert_allclose(array(kept), w * array(x))
    assert written is u
    assert connection.keep is None


@pytest.mark.parametrize(
    ("choice", "where", "start"),
    [
        ("admin", place(depth=6), 2.01700922),  # sqrt(13 / ln 13 - 1)
        ("admin(growth=log)", place(depth=50, sublayers=1), 3.45992394),  # sqrt(51 / ln 51 - 1)
        ("admin(growth=constant)", place(depth=8), 4.0),
        ("admin(growth=constant)", place(depth=9, sublayers=1), 3.0),
    ],
)
def test_where_admin_starts(choice: str, where: Place, start: float) -> None:
    omega = CONNECTIONS.build(choice, place=where).omega.detach()
    assert omega.shape == (WIDTH,)
    np.testing.assert_allclose(omega.numpy(), start, rtol=1e-6)


def test_the_gradient_of_admin_is_the_stream_seen_from_the_loss() -> None:
    connection = built("admin")
    x, u = streams()
    seen = streams(9)[0]
    (connection.write(x, u) * seen).sum().backward()
    np.testing.assert_allclose(
        array(connection.omega.grad), (array(seen) * array(x)).sum((0, 1)), rtol=1e-12
    )


def admin_model(**fields: Any) -> Any:
    return leadline.Transformer(
        **{
            "depth": 3,
            "width": 16,
            "heads": 2,
            "vocabulary": 32,
            "context": 8,
            "connection": "admin",
            "placement": "post",
            "init": "xavier",
            **fields,
        }
    )


def test_profiling_sets_w_by_the_variances_of_what_came_before() -> None:
    model = admin_model().double()
    ids = torch.arange(16).reshape(2, 8)
    found = profile(model, ids)
    # The same pass by hand, sublayer by sublayer, with plain numpy variances.
    positions = torch.arange(8)
    from leadline.parts.branches import Run

    x = model.embedding(ids, positions, None)
    total, expected = np.var(array(x)), [1.0]
    for sublayer in model.sublayers():
        u = sublayer.branch(x, Run(causal=True))
        x = F.layer_norm(expected[-1] * x + u, (16,))
        total += np.var(array(u))
        expected.append(math.sqrt(total))
    np.testing.assert_allclose(found, expected[:-1], rtol=1e-12)
    for sublayer, w in zip(model.sublayers(), found, strict=True):
        assert torch.equal(sublayer.connection.omega, torch.full((16,), w, dtype=torch.float64))
    assert found[-1] > found[1] > found[0] == 1.0


def test_profiling_hears_the_norm_on_the_branch_where_one_stands() -> None:
    model = admin_model()
    for sublayer in model.sublayers():
        sublayer.exit = nn.LayerNorm(16)
    found = profile(model, torch.arange(16).reshape(2, 8))
    # Every normed update has variance 1 (but for eps).
    np.testing.assert_allclose(np.diff(np.square(found[1:])), 1.0, atol=1e-3)


def test_profiling_leaves_nothing_behind_but_the_numbers() -> None:
    model = admin_model()
    before = {k: v.clone() for k, v in model.state_dict().items() if "omega" not in k}
    profile(model, torch.arange(8).reshape(1, 8))
    assert all(torch.equal(model.state_dict()[k], v) for k, v in before.items())
    assert all(p.grad is None and p.requires_grad for p in model.parameters())
    assert model.training
    with pytest.raises(InputError, match="The ids reach from 99"):
        profile(model, torch.full((1, 8), 99))
    hooked = [m for m in model.modules() if m._forward_hooks or m._forward_pre_hooks]
    assert hooked == []


def test_only_a_model_with_admin_can_be_profiled() -> None:
    model = leadline.Transformer(depth=1, width=8, heads=2)
    with pytest.raises(RecipeError, match=r"no admin in it; build it with connection='admin'\.$"):
        profile(model, torch.zeros(1, 2, dtype=torch.long))


# --- bad options ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("choice", "sentence"),
    [
        ("skipinit(start=none)", "The option start of skipinit is None; give a number."),
        ("layerscale(start=small)", "The option start of layerscale is 'small'; give a number."),
        ("gated(bias=0)", "The option bias of gated is 0; give true or false."),
        ("admin(growth=linear)", "The option growth of admin is 'linear'; choose log or constant."),
        (
            "variance_gate(temperature=0)",
            "The option temperature of variance_gate is 0; give a number above 0.",
        ),
        (
            "variance_gate(eps=0)",
            "The option eps of variance_gate is 0; give a number above 0 and below 1.",
        ),
        (
            "variance_gate(eps=1)",
            "The option eps of variance_gate is 1; give a number above 0 and below 1.",
        ),
        ("variance_gate(start=x)", "The option start of variance_gate is 'x'; give a number."),
    ],
)
def test_a_wrong_option_gets_a_sentence(choice: str, sentence: str) -> None:
    with pytest.raises(RecipeError) as caught:
        built(choice)
    assert str(caught.value) == sentence


def test_a_small_temperature_and_eps_are_fine() -> None:
    connection = built("variance_gate(temperature=0.01, eps=0.99)")
    assert (connection.temperature, connection.eps) == (0.01, 0.99)


@pytest.mark.parametrize(
    "name", ["rezero", "skipinit", "layerscale", "gated", "variance_gate", "admin"]
)
def test_learned_numbers_survive_saving_and_another_seed(name: str) -> None:
    placement = "post" if name == "admin" else "pre"
    fields: dict[str, Any] = {"depth": 2, "width": 8, "heads": 2, "placement": placement}
    first = leadline.Transformer(connection=name, seed=0, **fields)
    drawn(first)
    second = leadline.Transformer(connection=name, seed=1, **fields)
    second.load_state_dict(first.state_dict())
    ids = torch.arange(6).reshape(2, 3)
    assert torch.equal(first(ids), second(ids))
