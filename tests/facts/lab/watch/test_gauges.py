"""What the gauges of a watch read: largest values, and no room that has no end."""

from __future__ import annotations

import math

import pytest
import torch

import leadline
from leadline.lab.watch.gauges import _largest as largest
from leadline.lab.watch.gauges import without_endless_room
from leadline.lab.watch.watch import watch
from leadline.record import Reading, Site
from tests.plain_gpt import PlainGPT


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
