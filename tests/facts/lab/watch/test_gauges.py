"""The watch's own way to a norm gives what `Tokens` gives, and keeps it there."""

from __future__ import annotations

import math

import mpmath
import pytest
import torch

import leadline
from leadline.lab.watch.gauges import SAFE, norms_of, without_endless_room
from leadline.lab.watch.gauges import _largest as largest
from leadline.lab.watch.watch import watch
from leadline.numerics.tokens import Tokens
from leadline.record import Reading, Site
from tests.plain_gpt import PlainGPT


def exact(row: torch.Tensor) -> float:
    return float(mpmath.sqrt(mpmath.fsum(mpmath.mpf(value) ** 2 for value in row.tolist())))


@pytest.mark.parametrize("scale", [1.0, 1e-30, 1e-22, 3e-15, 1e14, 1e18, 1e25, 1e30])
def test_norms_are_right_at_every_scale(scale: float) -> None:
    x = torch.randn(1, 5, 64, generator=torch.Generator().manual_seed(0)) * scale
    found = norms_of(Tokens(x))[0]
    for row, norm in zip(x[0], found, strict=True):
        assert float(norm) == pytest.approx(exact(row), rel=1e-6)


def test_rows_of_all_scales_stand_in_one_batch() -> None:
    rows = [
        torch.full((9,), value) for value in (0.0, 1e-40, 1e-25, 2.0, 1e25, torch.inf, torch.nan)
    ]
    found = norms_of(Tokens(torch.stack(rows)[None]))[0]
    assert found[:6].tolist() == pytest.approx([0.0, 3e-40, 3e-25, 6.0, 3e25, torch.inf], rel=1e-4)
    assert found[6].isnan()


def test_the_norm_is_kept_for_what_else_asks_for_it() -> None:
    tokens = Tokens(torch.randn(2, 3, 8))
    assert norms_of(tokens) is tokens.norm


def test_the_limit_leaves_room_for_a_sum_of_squares() -> None:
    assert SAFE == 1e15
    small, big = torch.finfo(torch.float32).tiny, torch.finfo(torch.float32).max
    assert big > SAFE**2 * 1e6
    assert small < SAFE**-2 / 1e6


@pytest.mark.parametrize("values", [[1.0, -3.0], [-1.0, 2.0], [0.0, 0.0], [-torch.inf, 1.0]])
def test_the_largest_value_is_the_infinity_norm(values: list[float]) -> None:
    x = torch.tensor(values)
    assert float(largest(x)) == float(torch.linalg.vector_norm(x, ord=torch.inf))


def test_the_largest_value_of_a_nan_is_a_nan() -> None:
    assert largest(torch.tensor([1.0, torch.nan])).isnan()


def test_room_without_an_end_is_left_out_and_everything_else_is_kept() -> None:
    rows = [
        Reading(quantity, Site("decoder", 1), "max", value)
        for quantity in ("stream.float16_room", "stream.largest")
        for value in (torch.inf, 2.0, 0.0, torch.nan)
    ]
    assert without_endless_room(rows) == rows[1:]


def test_a_stream_of_zeros_has_no_room_in_the_record() -> None:
    """The first stream is zero in every sample: its embeddings are, and nothing trains them."""
    model = PlainGPT(["none", "none"])
    anatomy = leadline.anatomy_of(model, torch.arange(8)[None])
    tables = [one for one in model.modules() if isinstance(one, torch.nn.Embedding)]
    assert tables
    for table in tables:
        torch.nn.init.zeros_(table.weight)
        table.weight.requires_grad_(False)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    with watch(model, optimizer, None, every=1, quiet=True, anatomy=anatomy) as one:
        model(torch.arange(8)[None]).square().mean().backward()
        optimizer.step()
        rows = {row.site.layer: row.value for row in one.record.select("stream.float16_room")}
        largest = {row.site.layer: row.value for row in one.record.select("stream.largest")}
        notes = one.notes
    assert largest, notes
    assert rows.keys() == {layer for layer, value in largest.items() if value > 0}
    assert largest[0] == 0.0
    assert all(map(math.isfinite, rows.values()))
