"""Each task asks what it says: its examples checked one by one, in plain Python."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import pytest

from leadline.errors import LabError
from leadline.lab.tasks import build_task

NOT_ASKED = -100


def examples(spelling, number=300):
    batch = build_task(spelling).train(1, number, seed=4)
    return list(zip(batch.ids.tolist(), batch.targets.tolist(), strict=True))


def sizes(spelling):
    task = build_task(spelling)
    return task.vocabulary, task.length


@pytest.mark.parametrize(
    ("spelling", "vocabulary", "length"),
    [
        ("copy", 16 + 1, 2 * 16),
        ("copy(symbols=5, items=3)", 6, 6),
        ("sorting", 16 + 1, 2 * 16),
        ("sorting(symbols=5, items=3)", 6, 6),
        ("induction", 32, 16 + 2 * 8 - 1),
        ("induction(symbols=9, items=5, queries=2)", 9, 8),
        ("recall", 16 + 16, 2 * 8 + 2 * 4 - 1),
        ("recall(keys=5, values=7, pairs=4, queries=1)", 12, 9),
        ("identity", 64, 32),
        ("addition", 60, 3),
    ],
)
def test_vocabulary_and_length_follow_from_the_options(spelling, vocabulary, length):
    assert sizes(spelling) == (vocabulary, length)


def test_copy_repeats_what_stood_before_the_delimiter():
    for ids, targets in examples("copy(symbols=7, items=5)"):
        shown = ids[:5]
        assert ids == [*shown, 7, *shown[:4]]
        assert targets == [NOT_ASKED] * 5 + shown
        assert set(shown) <= set(range(7))


def test_sorting_asks_for_the_same_symbols_in_rising_order():
    for ids, targets in examples("sorting(symbols=7, items=5)"):
        rising = sorted(ids[:5])
        assert ids[5:] == [7, *rising[:4]]
        assert targets == [NOT_ASKED] * 5 + rising
        assert set(rising) <= set(range(7))


def test_induction_asks_what_followed_a_symbol_before():
    for ids, targets in examples("induction(symbols=9, items=6, queries=3)"):
        shown = ids[:6]
        assert len(set(shown)) == 6
        follows = dict(itertools.pairwise(shown))
        assert targets[:6] == [NOT_ASKED] * 6
        for place in range(6, 11):
            if place % 2 == 0:
                assert targets[place] == follows[ids[place]]
            else:
                assert targets[place] == NOT_ASKED
                assert ids[place] == targets[place - 1]


def test_induction_asks_for_every_place_alike():
    places = Counter(ids[:4].index(ids[4]) for ids, _ in examples("induction(items=4)", 3000))
    assert set(places) == {0, 1, 2}
    assert all(900 < times < 1100 for times in places.values())


def test_recall_asks_for_the_value_of_a_key():
    for ids, targets in examples("recall(keys=6, values=4, pairs=5, queries=2)"):
        value = dict(zip(ids[0:10:2], ids[1:10:2], strict=True))
        assert len(value) == 5
        assert set(value) <= set(range(6))
        assert set(value.values()) <= set(range(6, 10))
        assert targets == [NOT_ASKED] * 10 + [value[ids[10]], NOT_ASKED, value[ids[12]]]
        assert ids[11] == targets[10]


def test_recall_asks_for_every_pair_alike():
    rows = examples("recall(keys=4, pairs=4, queries=1)", 4000)
    places = Counter(ids[0:8:2].index(ids[8]) for ids, _ in rows)
    assert set(places) == {0, 1, 2, 3}
    assert all(900 < times < 1100 for times in places.values())


def test_identity_asks_for_the_token_itself():
    for ids, targets in examples("identity(symbols=7, items=5)"):
        assert targets == ids
        assert set(ids) <= set(range(7))


@pytest.mark.parametrize(
    ("spelling", "symbols"),
    [("copy(symbols=5)", 5), ("sorting(symbols=5)", 5), ("identity(symbols=5)", 5)],
)
def test_symbols_are_drawn_evenly(spelling, symbols):
    items = build_task(spelling).items
    counts = Counter(token for ids, _ in examples(spelling, 1000) for token in ids[:items])
    expected = 1000 * items / symbols
    assert sorted(counts) == list(range(symbols))
    assert all(abs(times - expected) < 5 * math.sqrt(expected) for times in counts.values())


@pytest.mark.parametrize(
    ("spelling", "sentence"),
    [
        ("copy(symbols=1)", "The option symbols of the task copy is 1; give a whole number from 2"),
        ("sorting(items=0)", "The option items of the task sorting is 0; give a whole number from"),
        ("identity(symbols=1)", "The option symbols of the task identity is 1; .* from 2 on"),
        ("induction(items=1)", "The option items of the task induction is 1; .* from 2 on"),
        ("induction(queries=0)", "The option queries of the task induction is 0; .* from 1 on"),
        ("induction(symbols=8)", "shows 16 different symbols and has 8; give it as many"),
        ("recall(values=1)", "The option values of the task recall is 1; .* from 2 on"),
        ("recall(pairs=17)", "shows 17 pairs with different keys and has 16 keys; give it as many"),
        ("addition(p=1)", "The option p of the task addition is 1; .* from 2 on"),
    ],
)
def test_options_that_make_no_task_are_refused(spelling, sentence):
    with pytest.raises(LabError, match=sentence):
        build_task(spelling)
