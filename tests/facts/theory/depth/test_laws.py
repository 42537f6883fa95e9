"""Laws of depth: constants by hand, and every condition by a case in which it fails."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from leadline.theory import LAWS, DepthFacts, Law
from leadline.theory.depth._stream_law import grown
from leadline.theory.depth._writes import (
    ACTIVATIONS,
    attention_write,
    mlp_write,
    second_moment,
)
from leadline.theory.depth.deepnorm import DeepNormLaw, deepnorm_alpha, deepnorm_beta

DEPTH = 8
PRE = DepthFacts(
    depth=DEPTH,
    width=32,
    connection="identity",
    placement="pre",
    init="xavier",
    init_scale=1.0,
    norm="layernorm",
    norm_eps=1e-5,
    mlp="relu",
    hidden_ratio=1.0,
    attention="multihead",
    branches=("attention", "mlp"),
    final_norm=True,
    initial=True,
    keep=1.0,
    gain=1.0,
    mean_square=(1.0,),
)
SCALED = replace(PRE, connection="weighted", gain=(2 * DEPTH) ** -0.5)
BARE = replace(PRE, placement="none")
FITTING = {
    "xiong-stream": PRE,
    "gpt2-scaling": replace(PRE, init="gpt2", init_scale=0.02),
    "layernorm-scaling": replace(PRE, placement="layernorm_scaling"),
    "unnormed-stream": BARE,
    "noci": replace(SCALED, placement="none"),
    "xiong-last-gradient": PRE,
    "deepnorm": replace(
        PRE,
        connection="deepnorm",
        placement="post",
        init="deepnorm",
        keep=(2 * DEPTH) ** 0.25,
    ),
    "residual-product": replace(PRE, branch_norms=(0.5,) * DEPTH),
}


def law(name: str) -> Law:
    return LAWS.get(name)()


def bands(name: str, facts: DepthFacts) -> list[tuple[float, float]]:
    found = law(name).predicted(facts)
    assert found is not None
    assert len(found) == facts.depth + 1
    return list(found)


def reasons(name: str, facts: DepthFacts) -> list[str]:
    return [
        condition.because or f"not given: {condition.assumption}"
        for condition in law(name).conditions(facts)
        if not condition.holds
    ]


# --- constants -----------------------------------------------------------------------------------


def test_xiong_gives_a_half_to_three_halves_per_block() -> None:
    expected = [(1 + layer / 2, 1 + 3 * layer / 2) for layer in range(DEPTH + 1)]
    np.testing.assert_allclose(bands("xiong-stream", PRE), expected)


def test_an_mlp_of_four_times_the_width_writes_8_of_25() -> None:
    last = bands("xiong-stream", replace(PRE, hidden_ratio=4.0))[-1]
    assert last == pytest.approx((1 + 8 * 8 / 25, 1 + 8 * 33 / 25))


def test_what_a_block_adds_does_not_depend_on_the_start() -> None:
    last = bands("xiong-stream", replace(PRE, mean_square=(3.0,)))[-1]
    assert last == pytest.approx((3 + 4.0, 3 + 12.0))


def test_the_gain_of_xavier_enters_with_its_fourth_power() -> None:
    last = bands("xiong-stream", replace(PRE, init_scale=2.0))[-1]
    assert last == pytest.approx((1 + 16 * 4.0, 1 + 16 * 12.0))


def test_scaled_writes_add_a_quarter_to_three_quarters_over_the_whole_depth() -> None:
    shares = [layer / (4 * DEPTH) for layer in range(DEPTH + 1)]
    expected = [(1 + share, 1 + 3 * share) for share in shares]
    np.testing.assert_allclose(bands("gpt2-scaling", SCALED), expected)
    assert bands("gpt2-scaling", SCALED)[-1] == pytest.approx((1.25, 1.75))


def test_gpt2_writes_by_its_standard_deviation() -> None:
    # d s² = 32 * 0.0004 = 0.0128: attention 0.0128², ReLU of four times the width twice that.
    facts = replace(FITTING["gpt2-scaling"], hidden_ratio=4.0)
    a = 0.0128**2
    assert attention_write(facts) == pytest.approx(a)
    assert mlp_write(facts) == pytest.approx(2 * a)
    assert bands("gpt2-scaling", facts)[-1] == pytest.approx((1 + a, 1 + 1.5 * a), rel=1e-12)


def test_layernorm_scaling_grows_with_the_harmonic_numbers() -> None:
    found = bands("layernorm-scaling", FITTING["layernorm-scaling"])
    harmonic = [0.0, 1.0, 1.5, 11 / 6, 25 / 12]
    np.testing.assert_allclose(found[:5], [(1 + h / 2, 1 + 3 * h / 2) for h in harmonic])


def test_without_norms_every_block_multiplies_by_3_halves_to_3() -> None:
    found = bands("unnormed-stream", BARE)
    np.testing.assert_allclose(found, [(1.5**layer, 3.0**layer) for layer in range(DEPTH + 1)])


def test_scaled_branches_without_norms_stay_below_e_to_three_quarters() -> None:
    for depth in (8, 512):
        facts = replace(FITTING["noci"], depth=depth, gain=(2 * depth) ** -0.5)
        low, high = bands("noci", facts)[-1]
        assert high == pytest.approx(((1 + 0.5 / depth) * (1 + 0.25 / depth)) ** depth)
        assert low == pytest.approx((1 + 0.25 / depth) ** depth)
        assert high < math.exp(0.75)
    assert high == pytest.approx(math.exp(0.75), rel=1e-3)
    assert math.exp(0.75) == pytest.approx(2.12, abs=0.005)


def test_the_last_gradient_is_flat_for_post_and_falls_with_the_root_for_pre() -> None:
    found = law("xiong-last-gradient")
    assert found.exponent(PRE) == -0.5
    assert found.exponent(replace(PRE, placement="post")) == 0.0
    assert found.exponent(replace(PRE, placement="sandwich")) is None
    assert found.exponent(replace(PRE, placement=None)) is None


def test_deepnorm_has_the_constants_of_a_decoder() -> None:
    assert deepnorm_alpha(8) == pytest.approx(2.0)
    assert deepnorm_beta(2) == pytest.approx(0.5)


@pytest.mark.parametrize("depth", [1, 12, 1000])
def test_deepnorm_makes_the_paper_s_sum_one(depth: int) -> None:
    alpha, beta = deepnorm_alpha(depth), deepnorm_beta(depth)
    assert 2 * depth * (beta**2 + beta**2) / alpha**2 == pytest.approx(1.0)
    relative = 8**-0.5 * 2**-0.25 * depth**-0.75
    assert beta**2 / alpha == pytest.approx(relative)


def test_deepnorm_s_mlp_writes_with_the_inverse_root_of_the_depth() -> None:
    found = DeepNormLaw()
    facts = FITTING["deepnorm"]
    assert found.exponent(facts) == -0.5
    assert found.mlp_ratio(facts) == pytest.approx(math.sqrt(0.5 / (8 * DEPTH)))
    assert found.mlp_ratio(replace(facts, hidden_ratio=None)) is None


def test_the_product_of_branches_is_predicted_in_powers_of_ten() -> None:
    found = bands("residual-product", FITTING["residual-product"])
    assert found[0] == (0.0, 0.0)
    assert found[-1] == pytest.approx((8 * math.log10(0.5), 8 * math.log10(1.5)))
    big = bands("residual-product", replace(PRE, branch_norms=(1.0,) * DEPTH))
    assert big[1] == pytest.approx((-math.inf, math.log10(2.0)))


# --- what a write adds ---------------------------------------------------------------------------


def test_relu_leaves_half_of_the_mean_square() -> None:
    z = np.random.default_rng(0).normal(size=1_000_000)
    assert second_moment("relu", 3.0) == 1.5
    assert np.mean(np.maximum(math.sqrt(3.0) * z, 0) ** 2) == pytest.approx(1.5, rel=0.01)


@pytest.mark.parametrize("name", ["gelu", "gelu_tanh", "silu"])
@pytest.mark.parametrize("variance", [0.01, 1.0, 4.0])
def test_the_second_moment_is_that_of_torch_s_activation(name: str, variance: float) -> None:
    import torch
    from torch.nn import functional

    known: dict[str, Any] = {
        "gelu": functional.gelu,
        "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
        "silu": functional.silu,
    }
    # The trapezium rule over 12 standard deviations, fine enough for ten digits.
    z = torch.linspace(-12, 12, 20001, dtype=torch.float64)
    density = torch.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    expected = torch.trapezoid(known[name](math.sqrt(variance) * z) ** 2 * density, z)
    assert second_moment(name, variance) == pytest.approx(float(expected), rel=1e-9)


def test_every_activation_halves_at_least_what_relu_would_leave() -> None:
    for name in ACTIVATIONS:
        assert 0.0 < second_moment(name, 1.0) <= 0.5


def test_an_init_that_is_not_known_has_no_mean_squares() -> None:
    for facts in (replace(PRE, init="mup"), replace(PRE, init=None), replace(PRE, width=None)):
        assert attention_write(facts) is None
        assert mlp_write(facts) is None
        assert law("xiong-stream").predicted(facts) is None
    assert mlp_write(replace(PRE, mlp="swiglu")) is None
    assert law("xiong-stream").predicted(replace(PRE, mlp="swiglu")) is None


def test_without_a_measured_start_nothing_is_predicted() -> None:
    for start in ((), (math.nan,), (math.inf,)):
        assert law("xiong-stream").predicted(replace(PRE, mean_square=start)) is None


def test_squares_add_with_twice_the_product() -> None:
    x, u = np.array([1.0, 2.0, -1.0]), np.array([0.5, -3.0, 2.0])
    parts = (float(one) for one in (x @ x, u @ u, x @ u))
    assert grown(*parts) == pytest.approx((x + u) @ (x + u))


# --- conditions ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LAWS.names())
def test_every_law_has_facts_to_which_it_applies(name: str) -> None:
    assert reasons(name, FITTING[name]) == []
    assert law(name).applies(FITTING[name])


def test_scaled_writes_under_xavier_are_gpt2_s_scaling_too() -> None:
    assert law("gpt2-scaling").applies(SCALED)


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("xiong-stream", {"placement": "post"}, "the placement is post"),
    ("xiong-stream", {"gain": 0.5}, "a write keeps 1 of the stream and adds 0.5 of the update"),
    ("xiong-stream", {"keep": 2.0}, "a write keeps 2 of the stream and adds 1 of the update"),
    ("xiong-stream", {"init": "gpt2"}, "the init is gpt2"),
    ("xiong-stream", {"initial": False}, "the weights were trained"),
    ("xiong-stream", {"norm": "dyt"}, "the norm is dyt"),
    ("xiong-stream", {"branches": ("attention",)}, "a block writes attention"),
    ("xiong-stream", {"attention": "grouped"}, "attention is grouped"),
    ("xiong-stream", {"mlp": "swiglu"}, "the MLP is swiglu"),
    ("gpt2-scaling", {"placement": "post"}, "the placement is post"),
    ("gpt2-scaling", {"init": "mup"}, "the init is mup"),
    ("gpt2-scaling", {"gain": 0.5}, "a write keeps 1 of the stream and adds 0.5 of the update"),
    ("gpt2-scaling", {"initial": False}, "the weights were trained"),
    ("gpt2-scaling", {"norm": "none"}, "the norm is none"),
    ("gpt2-scaling", {"mlp": "swiglu"}, "the MLP is swiglu"),
    ("layernorm-scaling", {"placement": "pre"}, "the placement is pre"),
    ("layernorm-scaling", {"gain": 0.5}, "a write keeps 1 of the stream and adds 0.5 of the "
     "update"),
    ("layernorm-scaling", {"init": "gpt2"}, "the init is gpt2"),
    ("layernorm-scaling", {"initial": False}, "the weights were trained"),
    ("layernorm-scaling", {"norm": "dyt"}, "the norm is dyt"),
    ("layernorm-scaling", {"mlp": "swiglu"}, "the MLP is swiglu"),
    ("unnormed-stream", {"placement": "pre"}, "the placement is pre"),
    ("unnormed-stream", {"gain": 0.5}, "a write keeps 1 of the stream and adds 0.5 of the "
     "update"),
    ("unnormed-stream", {"init": "gpt2"}, "the init is gpt2"),
    ("unnormed-stream", {"initial": False}, "the weights were trained"),
    ("unnormed-stream", {"mlp": "gelu"}, "the MLP is gelu"),
    ("unnormed-stream", {"attention": "grouped"}, "attention is grouped"),
    ("noci", {"placement": "pre"}, "the placement is pre"),
    ("noci", {"gain": 1.0}, "a write keeps 1 of the stream and adds 1 of the update"),
    ("noci", {"keep": 2.0}, "a write keeps 2 of the stream and adds 0.25 of the update"),
    ("noci", {"init": "gpt2"}, "the init is gpt2"),
    ("noci", {"initial": False}, "the weights were trained"),
    ("noci", {"mlp": "gelu"}, "the MLP is gelu"),
    ("noci", {"attention": "grouped"}, "attention is grouped"),
    ("xiong-last-gradient", {"placement": "sandwich"}, "the placement is sandwich"),
    ("xiong-last-gradient", {"gain": 0.5}, "a write keeps 1 of the stream and adds 0.5 of the "
     "update"),
    ("xiong-last-gradient", {"init": "gpt2"}, "the init is gpt2"),
    ("xiong-last-gradient", {"initial": False}, "the weights were trained"),
    ("xiong-last-gradient", {"norm": "dyt"}, "the norm is dyt"),
    ("xiong-last-gradient", {"mlp": "swiglu"}, "the MLP is swiglu"),
    ("xiong-last-gradient", {"final_norm": False}, "no norm stands after the last block"),
    ("deepnorm", {"placement": "pre"}, "the placement is pre"),
    ("deepnorm", {"keep": 1.0}, "a write keeps 1 times the stream and adds 1 of the update"),
    ("deepnorm", {"gain": 0.5}, "a write keeps 2 times the stream and adds 0.5 of the update"),
    ("deepnorm", {"init": "xavier"}, "the init is xavier"),
    ("deepnorm", {"initial": False}, "the weights were trained"),
    ("deepnorm", {"norm": "none"}, "the norm is none"),
    ("deepnorm", {"mlp": "gelu"}, "the MLP is gelu"),
    ("deepnorm", {"attention": "grouped"}, "attention is grouped"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "change", "because"), WRONG)
def test_an_assumption_that_fails_is_said(name: str, change: dict[str, Any], because: str) -> None:
    facts = replace(FITTING[name], **change)
    assert reasons(name, facts) == [because]
    assert not law(name).applies(facts)


def test_a_post_norm_stack_needs_no_norm_after_its_last_block() -> None:
    facts = replace(PRE, placement="post", final_norm=False)
    assert law("xiong-last-gradient").applies(facts)


NORMED = ("xiong-stream", "gpt2-scaling", "layernorm-scaling", "xiong-last-gradient", "deepnorm")


@pytest.mark.parametrize("name", NORMED)
def test_an_eps_that_is_not_small_against_the_stream_is_said(name: str) -> None:
    # m / (m + eps) is to be 1 to 5 %: eps = m / 20 is still small.
    at_most, more = (replace(FITTING[name], norm_eps=eps) for eps in (0.05, 0.0501))
    assert law(name).applies(at_most)
    assert reasons(name, more) == ["eps is 0.0501, and the stream has a mean square of 1"]
    assert not law(name).applies(more)
    # Of every site, not of the first alone: behind a norm the stream may be smaller.
    small = replace(at_most, mean_square=(1000.0, 1.0, math.nan, 0.9))
    assert reasons(name, small) == ["eps is 0.05, and the stream has a mean square of 0.9"]
    assert reasons(name, replace(more, norm_eps=0.0, mean_square=(0.0,))) == []


def test_an_eps_or_a_stream_that_is_not_known_is_not_given() -> None:
    for unknown in ({"norm_eps": None}, {"mean_square": ()}, {"mean_square": (math.nan,)}):
        assert reasons("xiong-last-gradient", replace(PRE, **unknown)) == [
            "not given: eps is small against the mean square that is normed"
        ]


def test_laws_without_norms_do_not_ask_for_eps() -> None:
    for name in ("unnormed-stream", "noci"):
        assert law(name).applies(replace(FITTING[name], norm="none", norm_eps=None))


@pytest.mark.parametrize(
    ("name", "field"), [("gpt2-scaling", "gain"), ("noci", "gain"), ("deepnorm", "keep")]
)
def test_a_scale_may_be_off_by_a_millionth(name: str, field: str) -> None:
    facts = SCALED if name == "gpt2-scaling" else FITTING[name]
    exact = getattr(facts, field)
    for off, holds in ((0.9e-6, True), (-0.9e-6, True), (1.1e-6, False), (-1.1e-6, False)):
        assert law(name).applies(replace(facts, **{field: exact * (1 + off)})) is holds


def test_a_norm_called_none_is_no_norm() -> None:
    assert law("unnormed-stream").applies(replace(PRE, norm="none"))


@pytest.mark.parametrize("name", [name for name in LAWS.names() if name != "residual-product"])
def test_what_is_not_known_is_not_given(name: str) -> None:
    told = reasons(name, DepthFacts(depth=DEPTH))
    assert told
    assert all(one.startswith("not given: ") for one in told)


@pytest.mark.parametrize("norms", [(), (0.5,), (0.5,) * (DEPTH - 1) + (math.nan,)])
def test_a_product_needs_the_norm_of_every_block(norms: tuple[float, ...]) -> None:
    facts = replace(PRE, branch_norms=norms)
    assert reasons("residual-product", facts) == [
        "not given: |J_k - I| of every block was measured"
    ]
    assert not law("residual-product").applies(facts)


@pytest.mark.parametrize("name", LAWS.names())
def test_every_law_tells_its_statement_and_its_proof(name: str) -> None:
    found = LAWS.get(name)
    assert found.title and found.statement and found.source and found.quantity
    told = found.__doc__ or ""
    assert "Assumptions: " in told
    assert "Proof. " in told or "Derived here" in told
    assert found.along == ("depth" if law(name).exponent(FITTING[name]) is not None else "layers")
