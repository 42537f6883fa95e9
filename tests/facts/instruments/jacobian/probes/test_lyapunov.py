"""The probe `lyapunov`: against determinants and by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

import leadline
from leadline.anatomy import Stack
from leadline.errors import ProbeError
from leadline.instruments.jacobian.probes.lyapunov import LyapunovProbe
from leadline.instruments.passes.probe import At, Single
from leadline.numerics.linear.linear_maps import Dense
from leadline.record import Site
from leadline.testing.tiny import Linear

DECLARED = leadline.declare(blocks="layers", writes=["attention", "mlp"])


def _stack(depth: int) -> Stack:
    x = torch.randn(1, 3, 2, generator=torch.Generator().manual_seed(0))
    stack = leadline.anatomy_of(Linear(depth), x, anatomy=DECLARED).stacks[0]
    return replace(stack, name="decoder")


def _chain(matrices: list[torch.Tensor], k: int) -> dict[tuple[str, int, int | None], float]:
    depth = len(matrices)
    links = [(layer, Dense(matrices[layer - 1], tokens=3)) for layer in range(depth, 0, -1)]
    at = At(_stack(depth), Site("decoder", 0))
    found = list(LyapunovProbe(k=k).chain(at, iter(links), lambda step, products: None))
    return {
        (one.quantity.name, one.site.layer, one.site.rank): float(one.value)
        for one in found
        if isinstance(one, Single) and one.statistic == "mean" and one.site is not None
    }


def _matrices(depth: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [
        torch.eye(6, dtype=torch.float64)
        + 0.4 * torch.randn(2, 6, 6, generator=generator, dtype=torch.float64)
        for _ in range(depth)
    ]


def test_all_growths_of_a_block_add_up_to_its_determinant() -> None:
    matrices = _matrices(3)
    found = _chain(matrices, 6)
    for layer, matrix in enumerate(matrices, start=1):
        total = sum(found["lyapunov.growth", layer, rank] for rank in range(1, 7))
        assert total == pytest.approx(float(matrix.det().abs().log().mean()), abs=1e-9)


def test_exponents_are_the_mean_growth_behind_a_site() -> None:
    matrices = [m[:1] for m in _matrices(3)]
    found = _chain(matrices, 6)
    for site in range(3):
        behind = range(site + 1, 4)
        growth = [
            sum(found["lyapunov.growth", layer, rank] for layer in behind) / len(behind)
            for rank in range(1, 7)
        ]
        exponents = [found["lyapunov.exponent", site, rank] for rank in range(1, 7)]
        assert exponents == pytest.approx(sorted(growth, reverse=True), abs=1e-12)
        assert found["lyapunov.exponent", site, None] == exponents[0]


def test_exponents_tend_to_the_logarithms_of_the_singular_values_of_the_product() -> None:
    diagonal = torch.tensor([4.0, 2.0, 1.0, 0.5, 0.25, 0.125], dtype=torch.float64)
    turn = torch.linalg.qr(
        torch.randn(6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    ).Q
    matrix = (turn @ diagonal.diag() @ turn.T).unsqueeze(0)
    found = _chain([matrix] * 60, 3)
    for rank in (1, 2, 3):
        expected = math.log(float(diagonal[rank - 1]))
        assert found["lyapunov.exponent", 0, rank] == pytest.approx(expected, abs=0.05)
        assert found["lyapunov.growth", 1, rank] == pytest.approx(expected, abs=1e-9)


def test_a_chain_whose_product_leaves_the_range_of_numbers_has_its_exponents() -> None:
    matrix = (1e100 * torch.eye(6, dtype=torch.float64)).unsqueeze(0)
    found = _chain([matrix] * 5, 2)
    expected = pytest.approx(100 * math.log(10))
    assert found["lyapunov.exponent", 0, 1] == expected
    assert found["lyapunov.exponent", 0, 2] == expected


def test_a_measured_model_has_the_exponents_that_follow_by_hand() -> None:
    # 1 + beta in every direction without attention.
    x = torch.randn(2, 4, 5, generator=torch.Generator().manual_seed(0))
    record = leadline.measure(
        Linear(3, alpha=1e-6, beta=0.5), x, probes="lyapunov(k=2)", anatomy=DECLARED, loss="random"
    )
    assert set(record.quantities) == {"lyapunov.growth", "lyapunov.exponent"}
    assert record.by_layer("lyapunov.growth").layers == (1, 2, 3)
    exponents = record.by_layer("lyapunov.exponent")
    assert exponents.layers == (0, 1, 2)
    assert exponents.values == pytest.approx(math.log(1.5), rel=1e-4)
    ranks = {r.site.rank for r in record.select("lyapunov.exponent")}
    assert ranks == {None, 1, 2}


def test_no_direction_is_refused() -> None:
    with pytest.raises(ProbeError, match="whole number from 1 on"):
        LyapunovProbe(k=0)


def test_more_directions_than_the_stream_has_are_refused_beside_other_probes() -> None:
    model = leadline.Transformer(depth=2, width=4, heads=1, vocabulary=5, context=4)
    ids = torch.zeros(1, 1, dtype=torch.long)
    record = leadline.measure(model, ids, probes="stream,lyapunov(k=5)")
    assert "stream.norm" in record and "lyapunov.growth" not in record
    whys = {r["why"] for r in record.provenance["coverage"]["refused"] if "lyapunov" in r["what"]}
    assert whys == {"5 directions were asked for; 1 x 4 (tokens x width) has 4"}
    with pytest.raises(ProbeError, match="5 directions were asked for"):
        leadline.measure(model, ids, probes="lyapunov(k=5)")


def test_one_step_per_block_is_told() -> None:
    assert LyapunovProbe().steps("chain", _stack(3))[0] == "layer 3 backwards"
    assert len(LyapunovProbe().steps("chain", _stack(3))) == 3
    assert LyapunovProbe().steps("block", _stack(3)) == ()
    assert LyapunovProbe().gives("block") == ()
