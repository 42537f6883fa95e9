"""The probe `jacobian`: against matrices that are taken apart in float64, and by hand."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

import leadline
from leadline.anatomy import Stack
from leadline.errors import ProbeError
from leadline.instruments.jacobian.leak import leak_of
from leadline.instruments.jacobian.probes.jacobian import JacobianProbe
from leadline.instruments.passes.probe import At, Refused, Single
from leadline.numerics.linear.linear_maps import Dense, LinearMap, dense
from leadline.numerics.linear.linearised import Linearised
from leadline.record import Record, Site
from leadline.testing.tiny import Linear

DECLARED = leadline.declare(blocks="layers", writes=["attention", "mlp"])
TOKENS, WIDTH = 4, 16
SIZE = TOKENS * WIDTH


def _stack(depth: int = 3) -> Stack:
    x = torch.randn(1, TOKENS, WIDTH, generator=torch.Generator().manual_seed(0))
    stack = leadline.anatomy_of(Linear(depth), x, anatomy=DECLARED).stacks[0]
    return replace(stack, name="decoder")


def _matrices(seed: int, *, examples: int = 2, spread: float = 0.1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(examples, SIZE, SIZE, generator=generator, dtype=torch.float64)
    return torch.eye(SIZE, dtype=torch.float64) + spread * noise


def _block(layer: int = 1) -> At:
    return At(_stack(), Site("decoder", layer, None, "block"))


def _silent(step: str, products: int) -> None:
    """Nobody listens."""


def _table(results: Iterator[Any]) -> dict[tuple[str, str, int | None], Single]:
    found = list(results)
    assert all(isinstance(one, Single) for one in found), found
    return {
        (one.quantity.name, one.statistic, one.site.rank): one
        for one in found
        if isinstance(one, Single) and one.site is not None
    }


def _ends(one: Single) -> tuple[float, float]:
    """The interval of a number."""
    assert one.lower is not None and one.upper is not None
    return float(one.lower), float(one.upper)


def _refusals(results: Iterator[Any]) -> list[Refused]:
    return [one for one in results if isinstance(one, Refused)]


def test_singular_values_are_those_of_the_matrix_rank_by_rank() -> None:
    matrices = _matrices(0)
    found = _table(JacobianProbe(k=3).linear(_block(), Dense(matrices, tokens=TOKENS), _silent))
    exact = torch.linalg.svdvals(matrices)
    for rank in (1, 2, 3):
        values = exact[:, rank - 1]
        mean, most = (found["jacobian.singular", s, rank] for s in ("mean", "max"))
        assert float(mean.value) == pytest.approx(float(values.mean()), rel=1e-6)
        assert float(most.value) == pytest.approx(float(values.max()), rel=1e-6)
        for one, exactly in ((mean, values.mean()), (most, values.max())):
            lower, upper = _ends(one)
            assert lower <= float(exactly) <= upper
    # Without a rank it is the largest.
    alone = found["jacobian.singular", "mean", None]
    assert float(alone.value) == float(found["jacobian.singular", "mean", 1].value)
    assert ("jacobian.singular", "mean", 4) not in found


def test_the_branch_is_what_is_left_without_the_identity() -> None:
    matrices = _matrices(1)
    found = _table(JacobianProbe().linear(_block(), Dense(matrices, tokens=TOKENS), _silent))
    exact = torch.linalg.matrix_norm(matrices - torch.eye(SIZE).double(), 2)
    assert float(found["jacobian.branch", "mean", None].value) == pytest.approx(
        float(exact.mean()), rel=1e-6
    )
    assert float(found["jacobian.branch", "max", None].value) == pytest.approx(
        float(exact.max()), rel=1e-6
    )


def test_norm_and_distance_are_root_mean_squares_within_their_standard_errors() -> None:
    matrices = _matrices(2)
    given = Dense(matrices, tokens=TOKENS)
    found = _table(JacobianProbe(probes=512).linear(_block(), given, _silent))
    identity = torch.eye(SIZE).double()
    for name, exact in (
        ("jacobian.norm", torch.linalg.matrix_norm(matrices)),
        ("jacobian.distance", torch.linalg.matrix_norm(matrices - identity)),
    ):
        one = found[name, "mean", None]
        error = (_ends(one)[1] - _ends(one)[0]) / 2
        expected = float(exact.mean()) / math.sqrt(SIZE)
        assert 0 < error < 0.05 * expected
        assert float(one.value) == pytest.approx(expected, abs=4 * error)


def test_the_identity_is_at_no_distance_from_itself() -> None:
    given = Dense(torch.eye(SIZE).double().expand(1, -1, -1), tokens=TOKENS)
    found = _table(JacobianProbe(smallest=2).linear(_block(), given, _silent))
    for name in ("singular", "norm", "smallest", "product_of_norms"):
        assert float(found[f"jacobian.{name}", "mean", None].value) == pytest.approx(1.0)
    for name in ("distance", "branch", "leak"):
        assert float(found[f"jacobian.{name}", "mean", None].value) == pytest.approx(0, abs=1e-12)


def test_smallest_values_come_smallest_first_where_they_are_asked_for() -> None:
    matrices = _matrices(3)
    given = Dense(matrices, tokens=TOKENS)
    found = _table(JacobianProbe(smallest=2).linear(_block(), given, _silent))
    exact = torch.linalg.svdvals(matrices).flip(1)
    for rank in (1, 2):
        value = float(found["jacobian.smallest", "mean", rank].value)
        assert value == pytest.approx(float(exact[:, rank - 1].mean()), rel=1e-6)
    plain = _table(JacobianProbe().linear(_block(), given, _silent))
    assert not any(name == "jacobian.smallest" for name, *_ in plain)


def test_a_map_in_which_no_token_is_reached_by_later_ones_leaks_nothing() -> None:
    matrices = _matrices(4, examples=1)
    blocks = torch.ones(TOKENS, TOKENS).tril().repeat_interleave(WIDTH, 0)
    causal = matrices * blocks.repeat_interleave(WIDTH, 1)
    probe = JacobianProbe(seed=5)
    quiet = _table(probe.linear(_block(), Dense(causal, tokens=TOKENS), _silent))
    assert float(quiet["jacobian.leak", "max", None].value) == 0.0
    loud = _table(JacobianProbe(seed=5).linear(_block(), Dense(matrices, tokens=TOKENS), _silent))
    expected = float(leak_of(Dense(matrices, tokens=TOKENS), seed=5).values[0])
    assert expected > 0.0
    assert float(loud["jacobian.leak", "max", None].value) == pytest.approx(expected)


def test_one_token_has_no_later_ones() -> None:
    (refused,) = _refusals(JacobianProbe().linear(_block(), Dense(_matrices(0)), _silent))
    assert refused.quantities[0].name == "jacobian.leak" and "one token" in refused.why


def test_the_product_of_norms_runs_over_the_blocks_example_by_example() -> None:
    probe = JacobianProbe()
    product = torch.ones(2, dtype=torch.float64)
    for layer in (1, 2, 3):
        matrices = _matrices(10 + layer)
        found = _table(probe.linear(_block(layer), Dense(matrices, tokens=TOKENS), _silent))
        product = product * torch.linalg.matrix_norm(matrices, 2)
        one = found["jacobian.product_of_norms", "mean", None]
        assert one.site == Site("decoder", layer)
        assert float(one.value) == pytest.approx(float(product.mean()), rel=1e-6)
        most = found["jacobian.product_of_norms", "max", None]
        assert float(most.value) == pytest.approx(float(product.max()), rel=1e-6)


def test_the_product_of_norms_goes_on_from_what_was_carried() -> None:
    first, second, whole = JacobianProbe(), JacobianProbe(), JacobianProbe()
    maps = [Dense(_matrices(20 + n), tokens=TOKENS) for n in range(2)]
    list(first.linear(_block(1), maps[0], _silent))
    second.carry_on(first.carried())
    list(whole.linear(_block(1), maps[0], _silent))
    key = ("jacobian.product_of_norms", "mean", None)
    found, expected = (
        _table(one.linear(_block(2), maps[1], _silent))[key].value for one in (second, whole)
    )
    assert float(found) == float(expected)


def test_a_product_with_a_gap_is_refused() -> None:
    probe = JacobianProbe()
    (refused,) = _refusals(probe.linear(_block(2), Dense(_matrices(0), tokens=TOKENS), _silent))
    assert refused.quantities[0].name == "jacobian.product_of_norms"
    assert refused.why == "the norm of layer 1 is not known"


def test_a_product_beyond_the_range_of_numbers_is_refused_and_the_next_one_too() -> None:
    probe = JacobianProbe(branch=False)
    huge = Dense(1e120 * torch.eye(SIZE).double().expand(1, -1, -1), tokens=TOKENS)
    for layer in (1, 2):
        assert not _refusals(probe.linear(_block(layer), huge, _silent))
    for layer in (3, 4):
        (refused,) = _refusals(probe.linear(_block(layer), huge, _silent))
        assert "range of float64" in refused.why


def test_partial_norms_are_those_of_the_products_to_the_end() -> None:
    matrices = [_matrices(30 + n) for n in range(3)]
    links = [(n, Dense(matrices[n - 1], tokens=TOKENS)) for n in (3, 2, 1)]
    at = At(_stack(), Site("decoder", 0))
    found = [
        one
        for one in JacobianProbe(probes=60).chain(at, iter(links), _silent)
        if isinstance(one, Single) and one.statistic == "mean"
    ]
    assert [one.site for one in found] == [Site("decoder", layer) for layer in (2, 1, 0)]
    product = torch.eye(SIZE).double().expand(2, -1, -1)
    for one, matrix in zip(found, reversed(matrices), strict=True):
        product = product @ matrix
        expected = float(torch.linalg.matrix_norm(product).mean()) / math.sqrt(SIZE)
        error = (_ends(one)[1] - _ends(one)[0]) / 2
        assert 0 < error < 0.1 * expected
        assert float(one.value) == pytest.approx(expected, abs=4 * error)


def test_the_error_of_a_partial_norm_is_the_standard_error_over_the_directions() -> None:
    # |c u|^2 of Gaussian u: mean c^2 N, deviation c^2 sqrt(2 N); the root halves the relative error.
    given = Dense(9.0 * torch.eye(SIZE).double().expand(1, -1, -1), tokens=TOKENS)
    at = At(_stack(1), Site("decoder", 0))
    one = next(iter(JacobianProbe(probes=400).chain(at, iter([(1, given)]), _silent)))
    # 64 features have 64 independent directions and no 400.
    assert isinstance(one, Single) and one.upper is not None
    error = float(one.upper) - float(one.value)
    assert error == pytest.approx(9.0 * math.sqrt(2 / SIZE) / 2 / math.sqrt(SIZE), rel=0.3)
    assert float(one.value) == pytest.approx(9.0, abs=4 * error)


def test_the_norm_through_depth_is_that_of_the_map_it_is_given() -> None:
    matrices = _matrices(40)
    at = At(_stack(), Site("decoder", 2))
    found = _table(JacobianProbe(through=True).product(at, Dense(matrices, tokens=TOKENS), _silent))
    exact = torch.linalg.matrix_norm(matrices, 2)
    assert float(found["jacobian.through", "max", None].value) == pytest.approx(float(exact.max()))


class _WithoutForward(Dense):
    def forward(self, v: torch.Tensor) -> torch.Tensor:
        raise ProbeError("The operation fused has no second derivative.")


def test_where_only_adjoint_products_are_to_be_had_the_norms_are_still_measured() -> None:
    given = _WithoutForward(_matrices(0), tokens=TOKENS)
    found = list(JacobianProbe().linear(_block(), given, _silent))
    refused = {q.name for one in _refusals(iter(found)) for q in one.quantities}
    assert refused == {"jacobian.singular", "jacobian.product_of_norms", "jacobian.branch"}
    assert all("no second derivative" in one.why for one in _refusals(iter(found)))
    measured = {one.quantity.name for one in found if isinstance(one, Single)}
    assert measured == {"jacobian.norm", "jacobian.distance", "jacobian.leak"}


def test_every_step_is_told_once_and_in_its_order() -> None:
    probe = JacobianProbe(smallest=1)
    told: list[str] = []
    given = Dense(_matrices(0), tokens=TOKENS)
    list(probe.linear(_block(), given, lambda step, n: told.append(step)))
    assert tuple(dict.fromkeys(told)) == probe.steps("block", _stack())
    assert JacobianProbe(branch=False).steps("block", _stack()) == ("singular values", "norms")
    assert probe.steps("sublayer", _stack()) == probe.steps("product", _stack()) == ()
    assert probe.steps("chain", _stack(2)) == ("layer 2 backwards", "layer 1 backwards")


def test_quantities_are_those_that_were_asked_for() -> None:
    names = {q.name for q in JacobianProbe().quantities}
    assert not names & {"jacobian.smallest", "jacobian.through"}
    everything = JacobianProbe(smallest=1, through=True)
    assert everything.quantities == JacobianProbe.quantities
    assert {q.name for q in everything.gives("product")} == {"jacobian.through"}
    assert {q.name for q in everything.gives("chain")} == {"jacobian.partial"}
    assert "jacobian.product_of_norms" in {q.name for q in everything.gives("block")}
    assert "jacobian.product_of_norms" not in {q.name for q in everything.gives("sublayer")}
    kinds = ("block", "chain", "product")
    assert {q for kind in kinds for q in everything.gives(kind)} == set(everything.quantities)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"k": 0}, "k of the probe 'jacobian' is 0"),
        ({"k": True}, "k of the probe 'jacobian' is True"),
        ({"probes": 1}, "whole number from 2 on"),
        ({"smallest": -1}, "smallest"),
        ({"tolerance": 0.0}, "tolerance"),
        ({"through": 1}, "give true or false"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ProbeError, match=sentence):
        JacobianProbe(**options)


# --- measured ------------------------------------------------------------------------------------


def _measured(model: torch.nn.Module, x: torch.Tensor, probes: str) -> Record:
    return leadline.measure(model, x, probes=probes, anatomy=DECLARED, loss="random")


def test_a_model_with_answers_known_by_hand() -> None:
    # J = (1 + beta) (I + alpha 11'/n): (1 + alpha)(1 + beta) along the mean token, else 1 + beta.
    alpha, beta, tokens, width, depth = 0.5, -0.25, 6, 5, 3
    x = torch.randn(2, tokens, width, generator=torch.Generator().manual_seed(0))
    probes = "jacobian(through=true,smallest=1,sublayers=true,probes=512)"
    record = _measured(Linear(depth, alpha=alpha, beta=beta), x, probes)
    most, rest = (1 + alpha) * (1 + beta), 1 + beta
    for layer in range(1, depth + 1):
        (first,) = [
            r.value
            for r in record.select(
                "jacobian.singular", layer=layer, point="block", statistic="mean"
            )
            if r.site.rank == 1
        ]
        assert first == pytest.approx(most, rel=1e-5)
        through, product = (
            record.by_layer(f"jacobian.{name}").values[layer - 1]
            for name in ("through", "product_of_norms")
        )
        # The strongest directions of all blocks are one: here the product of norms is tight.
        assert through == pytest.approx(most**layer, rel=1e-5)
        assert product == pytest.approx(most**layer, rel=1e-5)
    by_hand = math.sqrt(((most - 1) ** 2 + (tokens - 1) * (rest - 1) ** 2) / tokens)
    (distance,) = record.select("jacobian.distance", layer=1, point="block", statistic="mean")
    assert distance.lower is not None and distance.upper is not None
    error = (distance.upper - distance.lower) / 2
    assert distance.value == pytest.approx(by_hand, abs=max(4 * error, 1e-5))
    assert record.by_layer("jacobian.smallest", point="block").values == pytest.approx(rest)
    partial = record.by_layer("jacobian.partial")
    assert partial.layers == (0, 1, 2)
    whole = math.sqrt((most**6 + (tokens - 1) * rest**6) / tokens)
    assert partial.values[0] == pytest.approx(whole, rel=0.05)
    # The attention writes alpha times the mean token, the MLP beta times the token.
    for point, first in (("attention", 1 + alpha), ("mlp", 1 + beta)):
        values = record.by_layer("jacobian.singular", point=point).values
        assert values == pytest.approx(first, rel=1e-5)
    assert record.by_layer("jacobian.leak", point="block").values.min() > 0


def test_blocks_of_a_transformer_have_the_singular_values_of_their_dense_jacobians() -> None:
    model = leadline.Transformer(depth=2, width=8, heads=2, vocabulary=11, context=8).eval()
    inputs = leadline.random_tokens(model, examples=2, length=5, seed=3)
    record = leadline.measure(model, inputs, probes="jacobian(through=true)")
    streams: list[torch.Tensor] = []
    beside: list[Any] = []

    def watch(_: torch.nn.Module, arguments: tuple[Any, ...]) -> None:
        streams.append(arguments[0])
        beside.append(arguments[1])

    hooks = [block.register_forward_pre_hook(watch) for block in model.blocks]
    with torch.no_grad():
        model(**inputs.tensors)
    for hook in hooks:
        hook.remove()

    def exact(f: Any, x: torch.Tensor) -> torch.Tensor:
        """By torch.func, in float64; plain attention is the one that it can vmap."""
        with sdpa_kernel(SDPBackend.MATH):
            rows = [
                torch.func.jacrev(lambda one: f(one.unsqueeze(0))[0])(x[e]).reshape(40, 40)
                for e in range(2)
            ]
        return torch.linalg.svdvals(torch.stack(rows).detach())

    wide = model.double()

    def block(x: torch.Tensor, index: int) -> torch.Tensor:
        return wide.blocks[index](x, beside[index])

    for layer in (1, 2):
        values = exact(lambda x, b=layer - 1: block(x, b), streams[layer - 1].double())
        for rank in range(1, 5):
            (row,) = [
                r
                for r in record.select("jacobian.singular", layer=layer, statistic="max")
                if r.site.rank == rank
            ]
            assert row.value == pytest.approx(float(values[:, rank - 1].max()), rel=1e-5)
    whole = exact(lambda x: block(block(x, 0), 1), streams[0].double())
    through = record.by_layer("jacobian.through").values
    assert through[1] == pytest.approx(float(whole[:, 0].mean()), rel=1e-5)
    # Unlike the toy, the product of the norms is above the norm of the product.
    assert record.by_layer("jacobian.product_of_norms").values[1] > 1.02 * through[1]
    assert record.by_layer("jacobian.leak").values.tolist() == [0.0, 0.0]
    assert record.provenance["coverage"]["refused"] == []


def test_more_values_than_features_are_refused_and_the_rest_is_measured() -> None:
    x = torch.randn(1, 2, 2, generator=torch.Generator().manual_seed(0))
    record = _measured(Linear(2), x, "jacobian(k=5,smallest=6)")
    assert "jacobian.norm" in record and "jacobian.branch" in record
    refused = {
        r["what"].split(" of ")[0]: r["why"] for r in record.provenance["coverage"]["refused"]
    }
    assert refused == {
        "jacobian.singular, jacobian.product_of_norms": "5 singular values were asked for; 2 x 2 "
        "(tokens x width) has 4",
        "jacobian.smallest": "6 smallest singular values were asked for; 2 x 2 (tokens x width) "
        "has 4",
    }


def test_the_dense_reference_sees_the_same_map() -> None:
    # That Dense and Linearised agree is what the tests above rest on.
    x = torch.randn(
        1, TOKENS, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    weight = torch.randn(WIDTH, WIDTH, dtype=torch.float64)
    given: LinearMap = Linearised(lambda t: torch.tanh(t @ weight), x)
    matrix = dense(given)
    v = torch.randn(2, 1, TOKENS, WIDTH, dtype=torch.float64)
    assert torch.allclose(Dense(matrix, tokens=TOKENS).forward(v), given.forward(v))
