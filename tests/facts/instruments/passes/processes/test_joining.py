"""Parts of a batch, read one by one and joined, are the batch."""

import itertools

import pytest
import torch

from leadline.anatomy import Block, Port, Stack
from leadline.instruments.passes.collect import Collector
from leadline.instruments.passes.probe_plan import plan
from leadline.instruments.passes.processes.joining import SAME, difference, joined_readings
from leadline.instruments.passes.processes.part import PartCollector, pieces_in, pieces_message

PROBES = "stream,tokens,rank,gradient,extremes,memory"
STACK = Stack(
    "decoder", (Block(1, "b.0", Port("b.0", "input"), Port("b.0", "output"), ()),), width=8
)


def read(collector, start, x):
    """What a pass of one block would show."""
    collector.stream(STACK, 0, None, start)
    collector.stream(STACK, 1, None, x)
    collector.gradient(STACK, 1, None, x * 0.1)
    return collector


def batch(examples=5, tokens=7):
    generator = torch.Generator().manual_seed(0)
    shape = (examples, tokens, 8)
    start, x = (torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(2))
    mask = torch.arange(tokens) < torch.tensor([7, 3, 5, 7, 4])[:examples, None]
    return start, x, mask


def parts_of(start, x, mask, cuts=(0, 2, 5)):
    return [
        read(PartCollector(plan(PROBES), mask[a:b]), start[a:b], x[a:b]).pieces()
        for a, b in itertools.pairwise(cuts)
    ]


def quantities():
    return {one.name: one for one in plan(PROBES).quantities}


def rows(readings):
    return {(one.quantity, one.site, one.statistic): one.value for one in readings}


def test_joined_parts_are_the_whole_batch():
    start, x, mask = batch()
    whole = rows(read(Collector(plan(PROBES), mask), start, x).readings())
    readings, unjoined = joined_readings(parts_of(start, x, mask), quantities())
    joined = rows(readings)
    assert unjoined == ["stream.kurtosis", "stream.massive"]
    assert set(joined) == {label for label in whole if label[0] not in unjoined}
    for label, value in joined.items():
        assert value == pytest.approx(whole[label], rel=1e-12), label


def test_one_part_is_what_it_was_in_one_process():
    start, x, mask = batch()
    whole = rows(read(Collector(plan(PROBES), mask), start, x).readings())
    readings, unjoined = joined_readings(parts_of(start, x, mask, (0, 5)), quantities())
    assert unjoined == []
    assert rows(readings) == pytest.approx(whole, rel=1e-12)


def test_pieces_arrive_as_they_were_sent():
    sent = parts_of(*batch())[1]
    arrived = pieces_in(pieces_message(sent))
    assert [one.label for one in arrived] == [one.label for one in sent]
    for one, other in zip(sent, arrived, strict=True):
        assert (one.join, one.heads) == (other.join, other.heads)
        for column, copy in zip(one.columns, other.columns, strict=True):
            assert (column is None) == (copy is None)
            assert column is None or torch.equal(column, copy)


def test_gradients_of_a_share_are_scaled_back():
    start, x, mask = batch()
    plain = read(PartCollector(plan("gradient"), mask), start, x).pieces()
    scaled = read(PartCollector(plan("gradient"), mask, gradient_factor=2.0), start, x).pieces()
    for one, other in zip(plain, scaled, strict=True):
        assert torch.equal(other.columns[0], 2 * one.columns[0])


def test_copies_that_differ_by_more_than_rounding_are_noticed():
    start, x, mask = batch()
    (pieces,) = parts_of(start, x, mask, (0, 5))
    (near,) = parts_of(start, x * (1 + SAME / 10), mask, (0, 5))
    (far,) = parts_of(start, x * (1 + SAME * 10), mask, (0, 5))
    assert difference(pieces, near) == ""
    assert "stream.norm at decoder layer 1 stream" in difference(pieces, far)
    assert difference(pieces, near[:-1]).startswith("only one of them has")


@pytest.mark.parametrize("kind", [Collector, PartCollector])
def test_a_number_that_turns_out_not_to_exist_is_refused_when_numbers_are_fetched(kind):
    _, x, mask = batch()
    collector = kind(plan("identity_share,extremes"), mask)
    collector.gradient(STACK, 1, None, x)
    collector.gradient(STACK, 0, None, torch.zeros_like(x))
    collector.stream(STACK, 1, None, torch.zeros_like(x))
    rows_or_pieces = collector.pieces() if kind is PartCollector else collector.readings()
    assert {(one.quantity, one.site.layer) for one in rows_or_pieces} == {
        ("gradient.identity_share", 1),
        ("stream.largest", 1),
    }
    (refused,) = collector.refused
    assert "gradient is zero" in refused[0].why
    assert refused[1].layer == 0
    if kind is Collector:
        assert collector.measured == {"gradient.identity_share", "stream.largest"}
