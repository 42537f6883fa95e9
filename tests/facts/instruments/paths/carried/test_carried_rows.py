"""Rows of components: computed late, in groups, joined by length or by plan; and their shares."""

import math

import pytest
import torch

from leadline.instruments.paths.carried import rows as carried_rows
from leadline.instruments.paths.carried.books import ByLength, ByPlan, mapped_rows
from leadline.instruments.paths.carried.carried import Event, Parts
from leadline.instruments.paths.carried.model_pass import AttentionLayer
from leadline.instruments.paths.carried.plans import DrawnPath, counted_paths, draw, judge_sample
from leadline.instruments.paths.carried.rows import ComponentRows, Ways
from leadline.instruments.paths.carried.shares import logit_view, spread, token_view
from leadline.instruments.paths.carried.tokens import Meeting

DATA = torch.randn(5, 2, 3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def stack(count=5, asked=None):
    def compute(first, end):
        if asked is not None:
            asked.append((first, end))
        return DATA[first:end]

    return ComponentRows(range(count), DATA[0], compute)


def test_all_rows_are_computed_once_and_kept():
    asked = []
    rows = stack(asked=asked)
    assert torch.equal(rows.hold(), DATA)
    assert torch.equal(rows.row(3), DATA[3])
    assert asked == [(0, 5)]


def test_one_row_is_computed_alone():
    asked = []
    rows = stack(asked=asked)
    assert torch.equal(rows.row(3), DATA[3])
    assert asked == [(3, 4)] and rows.held is None


def test_rows_are_computed_in_groups_that_fit(monkeypatch):
    assert carried_rows.LIMIT == 256 * 1024**2
    one = DATA[0].numel() * 8
    monkeypatch.setattr(carried_rows, "LIMIT", 2 * 10 * one)
    asked = []
    first = stack(asked=asked)
    # The widest tensor on the way decides: ten times as wide here.
    wide = mapped_rows(
        ByLength(), [first], lambda x: x.repeat(1, 1, 1, 10), like=DATA[0].repeat(1, 1, 10)
    )
    back = mapped_rows(ByLength(), [wide], lambda x: x[..., :4], like=DATA[0])
    assert torch.equal(back.hold(), DATA)
    assert asked == [(0, 2), (2, 4), (4, 5)]
    assert wide.held is None


def test_stacks_of_different_height_are_filled_with_zeros():
    low, high = ByLength().joined([stack(2), stack(5)])
    assert torch.equal(low.hold()[:2], DATA[:2]) and not low.hold()[2:].any()
    assert torch.equal(low.take(1, 4)[0], DATA[1])
    assert torch.equal(high.hold(), DATA)


def test_a_hop_moves_every_row_up_by_one():
    behind = ByLength().hop(stack(), Event(0, "", 5), lambda x: 2 * x, like=DATA[0])
    assert behind.lengths == (0, 1, 2, 3, 4, 5)
    assert not behind.row(0).any()
    assert torch.equal(behind.take(2, 4), 2 * DATA[1:3])
    assert torch.equal(behind.hold()[1:], 2 * DATA)


def test_a_plan_takes_its_head_and_nothing_else():
    book = ByPlan([{7: 1}, {}, {3: 0}])
    x = torch.ones(4, 2)  # two examples of two heads
    asking = Meeting(torch.tensor([0, 0, 1, 1]), torch.tensor([0]))
    hop = Event(7, "", 1, asking)
    behind = book.hop(book.opened(x), hop, lambda y: 3 * y, like=x)
    assert behind.lengths == (1, 0, 0)
    assert torch.equal(behind.row(0), torch.tensor([[0.0, 0], [3, 3], [0, 0], [3, 3]]))
    assert not behind.hold()[1:].any()


def test_where_plans_meet_the_longer_way_counts():
    book = ByPlan([{0: 0}, {}])
    x = torch.ones(1, 2)
    before = book.opened(x)
    behind = book.hop(before, Event(0, "", 1), lambda y: 3 * y, like=x)
    total = mapped_rows(book, [before, behind], torch.add, like=x)
    assert total.lengths == (1, 0)
    assert torch.equal(total.hold(), torch.tensor([[[3.0, 3]], [[1, 1]]]))
    assert book.source(x, x) is None


# --- shares ---------------------------------------------------------------------------------------


def parts(*components, biases=()):
    def rows(tensors):
        data = torch.stack(list(tensors))
        return ComponentRows(range(len(data)), data[0], lambda first, end: data[first:end])

    return Parts(rows(components), rows(biases) if len(biases) else None)


def test_shares_are_products_with_the_whole():
    z0 = torch.tensor([[[3.0, 0.0], [0.0, 0.0]]])
    z1 = torch.tensor([[[0.0, 0.0], [0.0, 2.0]]])
    b0 = torch.tensor([[[0.0, 4.0], [0.0, -2.0]]])
    found = spread(z0 + z1 + b0, parts(z0, z1, biases=[b0]), {"x": token_view(None)})["x"]
    assert found.norm == pytest.approx(5)
    assert found.inputs == pytest.approx((3, 2)) and found.along == pytest.approx((9 / 5, 0))
    assert found.sources == pytest.approx((math.sqrt(20), 0))
    assert found.sources_along == pytest.approx((16 / 5, 0))
    assert found.remainder == 0
    assert found.heaviest == pytest.approx(1)


@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_shares_of_tiny_and_huge_tensors_are_the_same(size):
    plain = spread(DATA.sum(0), parts(*DATA), {"x": token_view(None)})["x"]
    found = spread(size * DATA.sum(0), parts(*(size * DATA)), {"x": token_view(None)})["x"]
    assert found.norm == pytest.approx(size * plain.norm)
    assert found.inputs == pytest.approx([size * one for one in plain.inputs])
    assert found.along == pytest.approx([size * one for one in plain.along])
    assert found.remainder < 1e-15


def test_the_remainder_is_that_of_the_worst_token_against_its_own_size():
    x = torch.tensor([[[1e6, 0.0], [1.0, 0.0]]])
    missing = torch.tensor([[[0.0, 0.0], [0.0, 0.25]]])
    found = spread(x + missing, parts(x), {"x": token_view(None)})["x"]
    assert found.remainder == pytest.approx(0.25 / math.hypot(1, 0.25))
    # Components that cancel are the measure of their own rounding.
    big = torch.tensor([[[0.0, 0.0], [100.0, 0.0]]])
    found = spread(x + missing, parts(x + big, -big), {"x": token_view(None)})["x"]
    assert found.remainder == pytest.approx(0.25 / math.hypot(101, 100))


def test_the_residual_is_without_the_mean_token_of_its_example():
    x = DATA[0]
    found = token_view(None, residual=True)(x)
    assert torch.allclose(found, x - x.mean(1, keepdim=True))
    assert torch.allclose(token_view(None, token_axis=0)(x), x.transpose(0, 1))
    assert token_view(None)(x[0]).shape == (1, 3, 4)


def test_padding_is_left_out():
    mask = torch.tensor([[True, True, False], [True, True, True]])
    x = DATA[0]
    plain, centred = token_view(mask)(x), token_view(mask, residual=True)(x)
    assert not plain[0, 2].any() and not centred[0, 2].any()
    assert torch.allclose(centred[0, :2], x[0, :2] - x[0, :2].mean(0))
    assert torch.allclose(centred[1], x[1] - x[1].mean(0))
    logits = logit_view(mask)(x)
    assert not logits[0, 2].any()
    assert torch.allclose(logits[1], x[1] - x[1].mean(-1, keepdim=True))


def test_sums_so_far_are_told_length_by_length():
    heard = []
    spread(
        DATA.sum(0),
        parts(*DATA[:3], biases=DATA[3:]),
        {"x": logit_view(None)},
        each=lambda k, total: heard.append((k, total.clone())),
    )
    assert [k for k, _ in heard] == [0, 1, 2]
    assert torch.allclose(heard[0][1], DATA[0] + DATA[3])
    assert torch.allclose(heard[2][1], DATA.sum(0))


# --- samples --------------------------------------------------------------------------------------


def layers(*heads, skip=True):
    return [
        AttentionLayer(at + 1, (Event(at, "", at + 1),), skip, number, ((0, number),))
        for at, number in enumerate(heads)
    ]


def test_drawn_paths_have_the_length_and_stand_for_all_of_it():
    drawn = draw(layers(3, 3, 3, 3, 3), 2, samples=900, seed=0)
    assert {len(path.plan) for path in drawn} == {2}
    assert {path.weight for path in drawn} == {10 * 9}
    assert len({tuple(path.plan.items()) for path in drawn}) == 90
    assert draw(layers(3, 3, 3, 3, 3), 2, samples=900, seed=0) == drawn
    assert draw(layers(3, 3, 3, 3, 3), 2, samples=900, seed=1) != drawn


def test_where_heads_differ_the_weight_is_that_of_the_layers_taken():
    drawn = draw(layers(2, 5), 1, samples=50, seed=0)
    assert {(next(iter(path.plan)), path.weight) for path in drawn} == {(0, 4), (1, 10)}


def test_layers_without_a_skip_are_in_every_path():
    assert draw(layers(3, 3, skip=False), 1, samples=5, seed=0) == []
    drawn = draw(layers(3, 3, skip=False), 2, samples=5, seed=0)
    assert {(len(path.plan), path.weight) for path in drawn} == {(2, 9)}


def test_heads_of_two_hops_side_by_side_are_chosen_from_both():
    hops = Event(0, "", 1), Event(1, "", 1)
    both = AttentionLayer(1, hops, True, 3, ((0, 1), (1, 2)))
    drawn = draw([both], 1, samples=60, seed=0)
    assert {next(iter(path.plan.items())) for path in drawn} == {(0, 0), (1, 0), (1, 1)}
    assert {path.weight for path in drawn} == {3}


def test_a_head_whose_queries_lie_in_pieces_is_taken_in_all_of_them():
    pieces = AttentionLayer(1, (Event(0, "", 1), Event(1, "", 1)), True, 2, ((0, 2), (0, 2)))
    drawn = draw([pieces], 1, samples=60, seed=0)
    assert {tuple(path.plan.items()) for path in drawn} == {((0, 0), (1, 0)), ((0, 1), (1, 1))}
    assert {path.weight for path in drawn} == {2}


def test_paths_are_counted_along_the_ways_of_the_values():
    entry = Ways(True, frozenset())
    ways = [entry, Ways(True, frozenset([0])), entry]  # the third layer has values of the first
    three = [AttentionLayer(at + 1, (Event(at, "", 1, ways=ways[at]),), True, 4) for at in range(3)]
    assert counted_paths(Ways(True, frozenset([0, 1, 2])), three) == (1, 12, 16, 0)
    assert counted_paths(Ways(False, frozenset([2])), three) == (0, 4, 0, 0)
    unknown = [*three[:2], AttentionLayer(3, three[2].hops, True, None)]
    assert counted_paths(Ways(True, frozenset([2])), unknown) is None


def test_the_estimate_is_the_weighted_mean_of_the_paths():
    y = [torch.ones(1, 2, 2), 3 * torch.ones(1, 2, 2)]
    y[1][0, 0] = 0
    drawn = [DrawnPath({}, 4), DrawnPath({}, 6)]
    exact = 11 * torch.ones(1, 2, 2)
    ratio, error = judge_sample(
        y, drawn, exact, view=token_view(None), residual=token_view(None, residual=True)
    )
    # Equal tokens have no residual; (0, 3) has 3/sqrt(2) of 3 per feature.
    assert ratio == pytest.approx((0 + 1 / math.sqrt(2)) / 2)
    # Estimate: token 1: (4 + 0)/2 = 2, token 2: (4 + 18)/2 = 11, so 9 of 11 sqrt(2) are missing.
    assert error == pytest.approx(9 / (11 * math.sqrt(2)))
    nothing = torch.zeros(1, 2, 2)
    assert judge_sample(
        [nothing], [DrawnPath({}, 10**400)], nothing, view=token_view(None), residual=None
    ) == (None, None)
