"""Inputs and sources in one stack, features computed alone, and what is remembered of owners."""

import pytest
import torch
from torch.nn import functional as F

from leadline.instruments.paths.carried.books import ByLength
from leadline.instruments.paths.carried.carried import Journey, Parts, carried, enter
from leadline.instruments.paths.carried.ledger import RowLedger
from leadline.instruments.paths.carried.rows import ComponentRows, both_families, family
from leadline.instruments.paths.carried.sums import added_rows

DATA = torch.randn(9, 2, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def rows(data):
    return ComponentRows(range(len(data)), DATA[0], lambda first, end: data[first:end])


def stack(inputs, sources, start=0):
    """So many rows of each family."""
    first, second = DATA[start : start + inputs], DATA[start + inputs : start + inputs + sources]
    return both_families(rows(first), rows(second)) if sources else rows(first)


def padded(data, count):
    return torch.cat([data, data.new_zeros(count - len(data), *data.shape[1:])])


def split(rows):
    return rows.hold()[: rows.inputs], rows.hold()[rows.inputs :]


@pytest.mark.parametrize("factor", [1, -3.0])
@pytest.mark.parametrize("one", [(1, 0), (2, 1), (3, 3), (2, 3)])
@pytest.mark.parametrize("other", [(1, 0), (1, 2), (3, 1), (0, 1)])
def test_a_sum_of_stacks_adds_equal_rows_of_each_family(one, other, factor):
    def both():
        return stack(*one), stack(*other, start=3)

    total = added_rows(ByLength(), list(zip(both(), (1, factor), strict=True)), like=DATA[0])
    assert (total.inputs, total.sources) == tuple(map(max, one, other))
    for at, (left, right) in enumerate(zip(*map(split, both()), strict=True)):
        count = (total.inputs, total.sources)[at]
        expected = padded(left, count) + factor * padded(right, count)
        assert torch.allclose(split(total)[at], expected, rtol=1e-14)
    alone = added_rows(ByLength(), list(zip(both(), (1, factor), strict=True)), like=DATA[0])
    for at in range(alone.count):
        assert torch.equal(alone.row(at), total.row(at))
    assert torch.equal(alone.hold(), total.hold())


def test_a_sum_in_place_is_the_same_and_is_made_once():
    def total(in_place):
        product = ComponentRows(
            range(3), DATA[0], lambda a, b: 2 * DATA[a:b], sources=1, parents=[]
        )
        terms = [(product, 1), (stack(1, 1), 2.0)]
        return added_rows(ByLength(), terms, like=DATA[0], in_place=in_place)

    here, apart = total(True), total(False)
    assert torch.equal(here.row(2), apart.row(2))
    assert torch.equal(here.hold(), apart.hold())
    assert torch.equal(here.hold(), apart.hold())


def test_a_hop_moves_both_families_and_computes_the_product_once():
    calls = []

    def product(values):
        calls.append(len(values))
        return 2 * values

    class Event:
        index = 0

    behind = ByLength().hop(stack(2, 3), Event(), product, like=DATA[0])
    assert behind.lengths == (0, 1, 2, 0, 1, 2, 3)
    assert torch.equal(behind.take(2, 5), torch.stack([2 * DATA[1], 0 * DATA[0], 2 * DATA[2]]))
    calls.clear()
    inputs, sources = split(behind)
    assert not inputs[0].any() and torch.equal(inputs[1:], 2 * DATA[:2])
    assert not sources[0].any() and torch.equal(sources[1:], 2 * DATA[2:5])
    assert calls == [5]


def test_families_are_found_again():
    both = stack(2, 3)
    assert torch.equal(family(both, sources=False).hold(), DATA[:2])
    assert torch.equal(family(both, sources=True).hold(), DATA[2:5])
    assert Parts(rows(DATA)).sources is None


def test_of_a_product_that_is_split_only_the_part_that_is_read_is_computed():
    x = torch.randn(2, 3, 8, generator=torch.Generator().manual_seed(1)).double()
    weight = torch.randn(24, 8, generator=torch.Generator().manual_seed(2)).double()
    bias = torch.randn(24, generator=torch.Generator().manual_seed(3)).double()
    with torch.no_grad():
        stream = enter(x, Journey())
        product = F.linear(stream, weight, bias)
        pieces = product.split((8, 8, 8), -1)
        assert torch.allclose(pieces[2].parts.inputs.hold()[0], x @ weight[16:].T, rtol=1e-12)
        assert torch.allclose(pieces[2].parts.sources.hold()[0], bias[16:].expand(2, 3, 8))
    assert product.parts.rows.held is None
    assert pieces[0].parts.rows.held is None


def test_a_product_that_broadcasts_is_added_to_without_writing_twice():
    x = torch.randn(3, 4, 6, generator=torch.Generator().manual_seed(1)).double()
    plain = torch.randn(3, 4, 6, generator=torch.Generator().manual_seed(2)).double()
    narrow = carried(x[:, :1], Parts(rows_of(x[:, :1])), Journey())
    with torch.no_grad():
        total = torch.addcmul(plain, narrow, torch.tensor(2.0).double())
        found = total.parts.inputs.hold().sum(0) + total.parts.sources.hold().sum(0)
    assert torch.allclose(found, total.value, rtol=1e-13)


def rows_of(x):
    return ComponentRows([0], x, lambda first, end: x[None])


def test_a_ledger_answers_equal_questions_once_and_forgets_after_a_block():
    asked = []

    def compute():
        asked.append(1)

    ledger = RowLedger()
    for _ in range(3):  # asked in every block, it stays
        assert ledger.answer("one", compute, about=()) is None
        ledger.turn()
    assert len(asked) == 1
    ledger.turn()
    ledger.answer("one", compute, about=())
    assert len(asked) == 2


def test_owners_that_somebody_writes_into_are_asked_anew():
    journey, label = Journey(), torch.zeros(2, dtype=torch.int32)
    first = journey.answer("q", lambda: int(label[0]), about=[(label,)])
    journey.sheets[label.untyped_storage().data_ptr()] = label
    label.fill_(5)
    assert (first, journey.answer("q", lambda: int(label[0]), about=[(label,)])) == (0, 5)


def test_layers_after_the_first_follow_no_owners(monkeypatch):
    import leadline
    from leadline.instruments.paths.carried import carried as carrying

    calls = []
    follow = carrying.follow_owners

    def counted(*arguments):
        calls.append(1)
        return follow(*arguments)

    monkeypatch.setattr(carrying, "follow_owners", counted)
    ids = torch.arange(12).view(2, 6)
    counts = []
    for depth in (2, 6):
        calls.clear()
        leadline.paths(leadline.Transformer(depth=depth, width=16, heads=2), ids)
        counts.append(len(calls))
    assert counts[0] == counts[1]
