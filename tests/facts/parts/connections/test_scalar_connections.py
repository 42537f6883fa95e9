"""Connections of the form keep x + gain u: the two numbers, by hand, at several depths."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import leadline
from leadline.errors import RecipeError
from leadline.parts.connections import CONNECTIONS, Connection
from leadline.parts.place import Place


def place(depth: int, layer: int = 1, sublayer: int = 1, sublayers: int = 2) -> Place:
    return Place(width=4, heads=2, depth=depth, layer=layer, sublayer=sublayer, sublayers=sublayers)


def built(choice: str, where: Place) -> Connection:
    return CONNECTIONS.build(choice, place=where).eval()


def streams(seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x, u = torch.randn(2, 2, 3, 4, generator=generator, dtype=torch.float64)
    return x, u


NUMBERS: list[tuple[str, Place, float, float]] = [
    ("identity", place(7), 1.0, 1.0),
    ("none", place(7), 0.0, 1.0),
    ("weighted", place(7), 1.0, 1.0),
    ("weighted(alpha=0.3)", place(7), 1.0, 0.3),
    ("weighted(alpha=-2)", place(7), 1.0, -2.0),
    # 1/sqrt(2 L): 8 layers of two writes, 9 of one
    ("weighted(alpha=depth)", place(8), 1.0, 0.25),
    ("weighted(alpha=depth)", place(9, sublayers=1), 1.0, 1 / 3),
    ("multiplier", place(7), 1.0, 0.22),
    ("multiplier(value=0.5)", place(7), 1.0, 0.5),
    # 1.4 / sqrt(layers), whatever the number of writes
    ("multiplier(scale_depth=1.4)", place(49), 1.0, 0.2),
    ("multiplier(scale_depth=1.4)", place(49, sublayers=1), 1.0, 0.2),
    ("depth_mup", place(16), 1.0, 0.25),
    ("depth_mup", place(16, sublayers=1), 1.0, 0.25),
    ("depth_mup(reference=4)", place(16), 1.0, 0.5),
    ("completep", place(16), 1.0, 0.0625),
    ("completep", place(16, sublayers=1), 1.0, 0.0625),
    ("completep(reference=4)", place(16), 1.0, 0.25),
    # the paper's fourth root of 2 L: 16^(1/4) = 2, 81^(1/4) = 3
    ("deepnorm", place(8), 2.0, 1.0),
    ("deepnorm", place(81, sublayers=1), 3.0, 1.0),
    ("lambda_skip", place(6), 12.0, 1.0),
    ("lambda_skip(value=depth)", place(6), 12.0, 1.0),
    ("lambda_skip(value=sqrt_depth)", place(8), 4.0, 1.0),
    ("lambda_skip(value=1.5)", place(6), 1.5, 1.0),
    ("lambda_skip(value=-1)", place(6), -1.0, 1.0),
    # beta^2 = 2/N: 8 layers give 1/4, 32 layers give 1/16
    ("deepscalelm", place(8), 0.75**0.5, 0.5),
    ("deepscalelm", place(8, sublayers=1), 0.75**0.5, 0.5),
    ("deepscalelm", place(32), (15 / 16) ** 0.5, 0.25),
    ("deepscalelm(k=1)", place(4), 0.75**0.5, 0.5),
    # never more than one half
    ("deepscalelm", place(4), 0.5**0.5, 0.5**0.5),
    ("deepscalelm", place(1), 0.5**0.5, 0.5**0.5),
    # the first write is the second term, the third write (layer 2, attention) the fourth
    ("running_mean", place(5), 0.5**0.5, 0.5**0.5),
    ("running_mean", place(5, 1, 2), (2 / 3) ** 0.5, (1 / 3) ** 0.5),
    ("running_mean", place(5, 2, 1), 0.75**0.5, 0.5),
    ("running_mean", place(8, 8, 1), (15 / 16) ** 0.5, 0.25),
    ("running_mean", place(5, 3, 1, sublayers=1), 0.75**0.5, 0.5),
    ("dropout", place(7), 1.0, 1.0),
    ("rescaled_dropout", place(7), 1.0, 0.9),
    ("rescaled_dropout(rate=0.75)", place(7), 1.0, 0.25),
    ("stochastic_depth", place(7), 1.0, 1.0),
    ("layerdrop", place(7), 1.0, 1.0),
]


@pytest.mark.parametrize(("choice", "where", "keep", "gain"), NUMBERS)
def test_the_write_is_keep_x_plus_gain_u(
    choice: str, where: Place, keep: float, gain: float
) -> None:
    connection = built(choice, where)
    x, u = streams()
    expected = keep * x.numpy() + gain * u.numpy()
    np.testing.assert_allclose(connection.write(x, u).numpy(), expected, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize(("choice", "where", "keep", "gain"), NUMBERS)
def test_both_numbers_are_declared_and_split_follows_them(
    choice: str, where: Place, keep: float, gain: float
) -> None:
    connection = built(choice, where)
    assert connection.keep == pytest.approx(keep, rel=1e-15)
    assert connection.gain == pytest.approx(gain, rel=1e-15)
    x, u = streams(1)
    kept, written = connection.split(x, u)
    np.testing.assert_allclose(kept.numpy(), keep * x.numpy(), rtol=1e-14)
    np.testing.assert_allclose(written.numpy(), gain * u.numpy(), rtol=1e-14)


@pytest.mark.parametrize("choice", sorted({row[0] for row in NUMBERS}))
def test_fixed_numbers_are_no_parameters(choice: str) -> None:
    assert list(built(choice, place(6)).parameters()) == []


def test_deepnorm_multiplies_the_stream_and_not_the_update() -> None:
    connection = built("deepnorm", place(8))
    x, zero = streams()[0], torch.zeros(2, 3, 4, dtype=torch.float64)
    assert torch.equal(connection.write(x, zero), 2 * x)
    assert torch.equal(connection.write(zero, x), x)


def test_deepnorm_has_the_fourth_root_and_not_the_square_root_of_some_public_code() -> None:
    # 96 layers: 192^(1/4) = 3.72 by the paper, 192^(1/2) = 13.86 in the other design
    assert built("deepnorm", place(96)).keep == pytest.approx(3.7224, abs=1e-4)


def test_after_all_writes_of_a_running_mean_every_term_weighs_the_same() -> None:
    generator = torch.Generator().manual_seed(3)
    terms = torch.randn(7, 1, 1, 4, generator=generator, dtype=torch.float64)
    x = terms[0]
    for i in range(6):
        x = built("running_mean", place(3, i // 2 + 1, i % 2 + 1)).write(x, terms[i + 1])
    np.testing.assert_allclose(x.numpy(), terms.numpy().sum(0) / 7**0.5, rtol=1e-13)


@pytest.mark.parametrize("choice", ["deepscalelm", "deepscalelm(k=0.5)", "running_mean"])
@pytest.mark.parametrize("depth", [1, 3, 40])
def test_variance_keeping_numbers_lie_on_the_unit_circle(choice: str, depth: int) -> None:
    for layer in (1, depth):
        connection: Any = built(choice, place(depth, layer))
        assert connection.keep**2 + connection.gain**2 == pytest.approx(1.0, abs=1e-15)
        assert 0 < connection.keep < 1
        assert connection.gain > 0


FACTS: dict[str, dict[str, Any]] = {
    "identity": {"starts_as": "plain", "formula": "x + u"},
    "none": {"keeps_identity": False, "keeps_variance": True, "formula": "u"},
    "weighted": {"starts_as": "plain", "formula": "x + alpha u"},
    "multiplier": {"formula": "x + c u"},
    "depth_mup": {"formula": "x + (L / L_0)^(-1/2) u"},
    "completep": {"formula": "x + (L / L_0)^(-1) u"},
    "deepnorm": {
        "keeps_identity": False,
        "amplifies": True,
        "init": "deepnorm",
        "formula": "a x + u, a = writes^(1/4)",
    },
    "lambda_skip": {"keeps_identity": False, "amplifies": True, "formula": "lambda x + u"},
    "deepscalelm": {
        "keeps_identity": False,
        "keeps_variance": True,
        "formula": "lambda x + beta u, lambda^2 + beta^2 = 1, beta^2 = k / N",
    },
    "running_mean": {
        "keeps_identity": False,
        "keeps_variance": True,
        "varies": True,
        "formula": "sqrt((k - 1) / k) x + sqrt(1 / k) u, k = write + 1",
    },
    "dropout": {"formula": "x + m u / (1 - p) in training, x + u in evaluation"},
    "rescaled_dropout": {"formula": "x + m u in training, x + (1 - p) u in evaluation"},
    "stochastic_depth": {
        "varies": True,
        "formula": "x + b u / (1 - p_l) in training, x + u in evaluation",
    },
    "layerdrop": {
        "formula": "x + b u in training (one b for the layer), x + u in evaluation",
    },
    "rezero": {"starts_as": "identity", "formula": "x + a u, a = 0 at first"},
    "skipinit": {"starts_as": "identity", "formula": "x + a u, a = 0 at first"},
    "layerscale": {"formula": "x + g u, g small at first"},
    "gated": {"formula": "x + sigmoid(W x) u"},
    "admin": {
        "keeps_identity": False,
        "amplifies": True,
        "formula": "w x + u, w learned and large at first",
    },
    "variance_gate": {
        "keeps_identity": False,
        "keeps_variance": True,
        "formula": "a x + b u, b = sigmoid(w / T), a^2 + b^2 = 1",
    },
}
PLAIN = {
    "keeps_identity": True,
    "starts_as": None,
    "keeps_variance": False,
    "mixes": None,
    "varies": False,
    "amplifies": False,
    "init": None,
}


@pytest.mark.parametrize("name", sorted(FACTS))
def test_the_declared_facts(name: str) -> None:
    connection = CONNECTIONS.get(name)
    expected = {**PLAIN, **FACTS[name]}
    assert {fact: getattr(connection, fact) for fact in expected} == expected


@pytest.mark.parametrize("name", sorted(FACTS))
def test_a_zero_update_leaves_the_stream_exactly_where_that_is_declared(name: str) -> None:
    connection = built(name, place(6, 2))
    x = streams()[0].float()
    same = torch.equal(connection.write(x, torch.zeros_like(x)), x)
    assert same == {**PLAIN, **FACTS[name]}["keeps_identity"]


@pytest.mark.parametrize("name", sorted(FACTS))
def test_the_start_is_what_is_declared(name: str) -> None:
    connection = built(name, place(6, 2))
    x, u = (t.float() for t in streams(5))
    after = connection.write(x, u)
    if FACTS[name].get("starts_as") == "identity":
        assert torch.equal(after, x)
    elif FACTS[name].get("starts_as") == "plain":
        assert torch.equal(after, x + u)
    else:
        assert not torch.equal(after, x)


@pytest.mark.parametrize("name", ["deepnorm", "lambda_skip", "admin"])
def test_what_amplifies_is_refused_without_a_norm_after_the_addition(name: str) -> None:
    with pytest.raises(RecipeError, match=r"a norm must follow each addition"):
        leadline.Transformer(depth=2, width=8, heads=2, connection=name, placement="pre")


@pytest.mark.parametrize(
    ("choice", "sentence"),
    [
        ("weighted(alpha=much)", "The option alpha of weighted is 'much'; give a number or depth."),
        ("weighted(learned=1)", "The option learned of weighted is 1; give true or false."),
        ("multiplier(value=big)", "The option value of multiplier is 'big'; give a number."),
        (
            "multiplier(scale_depth=true)",
            "The option scale_depth of multiplier is True; give a number.",
        ),
        (
            "multiplier(value=1, scale_depth=2)",
            "The connection multiplier was given value=1 and scale_depth=2; give one of them: "
            "value is the multiplier itself, scale_depth is divided by sqrt(layers).",
        ),
        (
            "depth_mup(reference=0)",
            "The option reference of depth_mup is 0; give a number above 0.",
        ),
        (
            "completep(reference=0)",
            "The option reference of completep is 0; give a number above 0.",
        ),
        ("deepscalelm(k=0)", "The option k of deepscalelm is 0; give a number above 0."),
        (
            "lambda_skip(value=0)",
            "The option value of lambda_skip is 0; give a number other than 0 (that is the "
            "connection none), depth or sqrt_depth.",
        ),
        (
            "lambda_skip(value=width)",
            "The option value of lambda_skip is 'width'; give a number other than 0 (that is the "
            "connection none), depth or sqrt_depth.",
        ),
    ],
)
def test_a_wrong_option_gets_a_sentence(choice: str, sentence: str) -> None:
    with pytest.raises(RecipeError) as caught:
        built(choice, place(4))
    assert str(caught.value) == sentence


@pytest.mark.parametrize("choice", ["depth_mup(reference=0.5)", "completep(reference=0.5)"])
def test_a_reference_depth_may_be_any_number_above_zero(choice: str) -> None:
    assert built(choice, place(2)).gain == pytest.approx(0.5 if "mup" in choice else 0.25)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", [*sorted(set(FACTS) - {"none"}), "weighted(learned=true)"])
def test_the_stream_keeps_its_number_type_where_the_update_has_fewer_digits(
    name: str, training: bool
) -> None:
    connection = built(name, place(6, 2)).train(training)
    x, u = (t.float() for t in streams())
    torch.manual_seed(0)
    after = connection.stream(connection.write(x, u.bfloat16()))
    torch.manual_seed(0)
    full = connection.stream(connection.write(x, u))
    assert after.dtype == torch.float32
    torch.testing.assert_close(after, full, rtol=0.02, atol=0.02)
    half = connection.bfloat16()
    assert half.stream(half.write(x.bfloat16(), u.bfloat16())).dtype == torch.bfloat16


SETTLED = ("deepnorm", "lambda_skip", "admin")


@pytest.mark.parametrize("name", [*sorted(FACTS), "weighted(learned=true)"])
def test_the_books_of_a_model_balance(name: str) -> None:
    model = leadline.Transformer(
        depth=3,
        width=16,
        heads=2,
        vocabulary=32,
        context=8,
        connection=name,
        placement="post" if name in SETTLED else "pre",
        init="xavier",
    ).eval()
    ids = leadline.random_tokens(model, examples=2, length=8, seed=0)
    balance = leadline.anatomy_of(model, ids).balance
    assert balance is not None
    assert balance.eps < 4
