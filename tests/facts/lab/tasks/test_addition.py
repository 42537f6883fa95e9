"""All pairs, half of them trained on."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from leadline.errors import LabError
from leadline.lab.tasks import build_task
from leadline.lab.tasks.addition import MOST


def pairs_of(batch):
    return [(a, b) for a, b, _ in batch.ids.tolist()]


def test_the_sum_is_asked_for_behind_the_sign():
    batch = build_task("addition(p=13)").train(0, 200, seed=0)
    for (a, b, sign), targets in zip(batch.ids.tolist(), batch.targets.tolist(), strict=True):
        assert sign == 13
        assert targets == [-100, -100, (a + b) % 13]


def test_every_pair_is_trained_on_or_held_out_and_none_is_both():
    task = build_task("addition(p=13)")
    facts = task.facts()
    assert (facts["train_pairs"], facts["validation_pairs"]) == (84, 85)
    held = pairs_of(task.validation(85))
    trained = {pair for step in range(20) for pair in pairs_of(task.train(step, 100, seed=step))}
    assert len(held) == len(set(held)) == 85
    assert trained == set(itertools.product(range(13), repeat=2)) - set(held)


def test_half_of_3481_pairs_are_trained_on_by_default():
    facts = build_task("addition").facts()
    assert (facts["train_pairs"], facts["validation_pairs"]) == (1740, 1741)
    assert facts["options"] == {"p": 59, "share": 0.5}


def test_the_share_says_how_many_are_trained_on():
    assert build_task("addition(p=10, share=0.3)").facts()["train_pairs"] == 30


def test_the_order_of_the_pairs_is_mixed():
    held = pairs_of(build_task("addition").validation(1741))
    firsts = Counter(a for a, _ in held)
    assert len(firsts) == 59
    assert all(12 < times < 47 for times in firsts.values())


def test_frequencies_are_counted_on_every_training_pair_once():
    (batch,) = build_task("addition(p=13)").evidence()
    assert len(set(pairs_of(batch))) == len(batch.ids) == 84
    assert not set(pairs_of(batch)) & set(pairs_of(build_task("addition(p=13)").validation(85)))


def test_more_than_is_held_out_cannot_be_validated():
    with pytest.raises(LabError, match=r"86 .* addition\(p=13, share=0.5\) holds out 85; ask"):
        build_task("addition(p=13)").validation(86)


@pytest.mark.parametrize("share", ["0.0", "1.0", "-0.5", "true", "half", "0.01"])
def test_a_share_that_leaves_a_part_empty_is_refused(share):
    with pytest.raises(LabError, match=r"The option share of the task addition is .* of 81; give"):
        build_task(f"addition(p=9, share={share})")


def test_more_pairs_than_memory_holds_are_refused():
    assert MOST == 2048
    with pytest.raises(LabError, match=r"p of the task addition is 2049, .* give at most 2048\."):
        build_task("addition(p=2049)")
    with pytest.raises(LabError, match="p of the task addition is 100000, "):
        build_task("addition(p=100000)")
