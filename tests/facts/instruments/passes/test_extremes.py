"""The largest values of the stream, against numbers by hand and by numpy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import leadline
from leadline.instruments.passes.probe import At
from leadline.instruments.passes.probe_plan import DEFAULT
from leadline.instruments.passes.probes.extremes import ExtremesProbe
from leadline.numerics.tokens import Tokens
from leadline.record import Site
from leadline.testing.tiny import Linear


def _numbers(x: torch.Tensor, mask: torch.Tensor | None = None) -> dict[tuple[str, str], float]:
    tokens = Tokens(x, mask)
    results = ExtremesProbe().stream(At(None, Site("decoder", 1)), tokens, tokens)  # type: ignore[arg-type]
    return {
        (one.quantity.name, one.statistic): float(one.value)  # type: ignore[union-attr]
        for one in results
        if one.exists is None or bool(one.exists)  # type: ignore[union-attr]
    }


def test_largest_value_and_where_it_stands_and_the_head_room_above_it() -> None:
    x = torch.ones(2, 3, 4)
    x[1, 2, 3] = -32752.0
    numbers = _numbers(x)
    assert numbers["stream.largest", "value"] == 32752
    assert numbers["stream.largest", "token"] == 3
    assert numbers["stream.largest", "feature"] == 4
    assert numbers["stream.float16_room", "value"] == 2
    assert numbers["stream.float16_room", "bfloat16"] == pytest.approx((2 - 2**-7) * 2**127 / 32752)
    assert numbers["stream.massive", "value"] == 32752


def test_kurtosis_is_the_fourth_central_moment_over_the_squared_variance() -> None:
    x = np.random.default_rng(0).standard_t(5, size=(2, 7, 16))
    moments = [((x - x.mean()) ** power).mean() for power in (2, 4)]
    for scale in (1.0, 1e15, 1e-15):
        numbers = _numbers(torch.tensor(x * scale, dtype=torch.float32))
        assert numbers["stream.kurtosis", "value"] == pytest.approx(
            moments[1] / moments[0] ** 2, rel=1e-4
        )


def test_padding_does_not_count_and_tokens_are_those_of_their_example() -> None:
    x = torch.ones(2, 3, 2)
    x[0, 0] = 1e6
    x[1, 1, 1] = 7.0
    mask = torch.tensor([[False, True, True], [True, True, False]])
    numbers = _numbers(x, mask)
    assert numbers["stream.largest", "value"] == 7
    assert numbers["stream.largest", "token"] == 2
    assert numbers["stream.massive", "value"] == 7


def test_a_stream_of_zeros_has_a_largest_value_and_nothing_that_divides_by_it() -> None:
    numbers = _numbers(torch.zeros(1, 2, 4))
    assert set(numbers) == {("stream.largest", name) for name in ("value", "token", "feature")}
    x = torch.zeros(1, 2, 4)
    x[0, 0, 0] = 1.0
    assert ("stream.massive", "value") not in _numbers(x)


def test_median_of_many_entries_is_near_the_exact_one() -> None:
    x = torch.randn(4, 256, 768, generator=torch.Generator().manual_seed(0))
    exact = float(x.abs().max()) / float(np.median(x.abs().numpy()))
    assert _numbers(x)["stream.massive", "value"] == pytest.approx(exact, rel=0.01)


def test_measured_in_a_model_whose_writes_are_known() -> None:
    x = torch.arange(1.0, 7.0).reshape(1, 2, 3)
    declared = leadline.declare(blocks="layers", writes=["attention", "mlp"])
    record = leadline.measure(
        Linear(depth=2, alpha=1.0, beta=-0.5), x, probes="extremes", anatomy=declared
    )

    def value(quantity: str, layer: int, sublayer: int | None) -> float:
        return next(
            one.value
            for one in record.select(quantity, statistic="value")
            if (one.site.layer, one.site.sublayer) == (layer, sublayer)
        )

    # The mean token is (2.5, 3.5, 4.5); the tokens become (3.5, 5.5, 7.5) and (6.5, 8.5, 10.5).
    assert value("update.largest", 1, 1) == pytest.approx(4.5)
    assert value("update.largest", 1, 2) == pytest.approx(10.5 / 2)
    assert value("stream.largest", 1, 1) == pytest.approx(10.5)
    assert value("stream.largest", 1, None) == pytest.approx(10.5 / 2)
    assert math.isclose(value("stream.massive", 0, None), 6 / 3)


def test_extremes_are_measured_where_they_are_asked_for() -> None:
    assert "extremes" not in DEFAULT
