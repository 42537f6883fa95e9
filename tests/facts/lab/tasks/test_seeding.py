"""Generators by seed and step, the split by a hash, and tasks by their spelling."""

from __future__ import annotations

import hashlib
import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from leadline.catalog import Choice
from leadline.errors import CatalogError, LabError, UnknownName
from leadline.lab.tasks import TASKS, Batch, Drawn, build_task
from leadline.lab.tasks._drawn import is_held_out
from leadline.lab.tasks._task import SAMPLE, generator_of


def drawn(generator):
    return torch.randint(2**31, (4,), generator=generator).tolist()


def held_out(row):
    """The formula, in whole numbers of any size."""
    prime = 2**31 - 1
    return sum(token * 48271**place % prime for place, token in enumerate(row, 1)) % prime % 10 == 0


def test_a_step_has_the_generator_of_a_hash():
    digest = hashlib.sha256(b"copy:train:3:17").digest()
    seed = int.from_bytes(digest[:4], "big") // 2 * 2
    assert drawn(generator_of("copy", seed=3, step=17)) == drawn(
        torch.Generator().manual_seed(seed)
    )


def test_task_part_seed_and_step_each_change_the_generator():
    found = {
        tuple(drawn(generator_of(task, part=part, seed=seed, step=step)))
        for task in ("copy", "sorting")
        for part in ("train", "validation")
        for seed in range(5)
        for step in range(50)
    }
    assert len(found) == 2 * 2 * 5 * 50


def test_torch_keeps_32_bits_of_a_seed():
    first, same, other = (torch.Generator().manual_seed(n) for n in (5, 5 + 2**32, 5 + 2**31))
    start = drawn(first)
    assert drawn(same) == start != drawn(other)


def test_training_has_even_seeds_and_validation_odd_ones():
    for step in range(100):
        assert generator_of("copy", seed=1, step=step).initial_seed() % 2 == 0
        assert generator_of("copy", part="validation", step=step).initial_seed() % 2 == 1
        assert generator_of("copy", seed=1, step=step).initial_seed() < 2**32


def test_the_same_tokens_are_drawn_on_every_machine():
    ids = build_task("copy(symbols=10, items=4)").train(5, 2, seed=1).ids
    assert ids.tolist() == [[4, 9, 0, 6, 10, 4, 9, 0], [4, 4, 3, 8, 10, 4, 4, 3]]


@given(st.lists(st.lists(st.integers(0, 50_000), min_size=5, max_size=5), min_size=1, max_size=20))
def test_the_hash_is_its_formula(rows):
    assert is_held_out(torch.tensor(rows)).tolist() == [held_out(row) for row in rows]


def test_one_example_in_ten_is_held_out():
    ids = torch.randint(16, (40_000, 8), generator=torch.Generator().manual_seed(0))
    assert float(is_held_out(ids).double().mean()) == pytest.approx(0.1, abs=0.006)


def test_a_small_space_is_split_without_a_rest():
    task = build_task("identity(symbols=3, items=4)")
    every = set(itertools.product(range(3), repeat=4))
    trained = {
        tuple(row) for step in range(20) for row in task.train(step, 200, seed=0).ids.tolist()
    }
    validated = {tuple(row) for row in task.validation(500).ids.tolist()}
    assert validated == {row for row in every if held_out(row)}
    assert trained == every - validated
    assert 0 < len(validated) < 20


class Same(Drawn):
    """One example, again and again; that of zeros is held out."""

    name = "same"
    vocabulary = length = 2

    def __init__(self, *, token: int) -> None:
        self.token = token

    def draw(self, examples, generator):
        ids = torch.full((examples, 2), self.token)
        return Batch(ids, ids)


def test_a_task_without_examples_of_one_part_is_refused():
    with pytest.raises(LabError) as caught:
        Same(token=1).validation(1)
    assert str(caught.value) == (
        "The task same(token=1) has too few different examples to have some held out; "
        "give it larger options."
    )
    with pytest.raises(LabError, match="examples to have some to train on;"):
        Same(token=0).train(0, 1, seed=0)
    assert len(Same(token=1).train(0, 3, seed=0).ids) == len(Same(token=0).validation(3).ids) == 3


def test_frequencies_are_counted_on_at_least_131072_targets():
    assert SAMPLE == 131_072
    counts = build_task("recall")._counts
    assert SAMPLE <= int(counts.pairs.sum()) < SAMPLE + 4 * 4096


def test_a_task_is_built_once_for_all_its_spellings():
    one = build_task("copy(symbols=5, items=6)")
    assert build_task(Choice("copy", items=6, symbols=5)) is one
    assert build_task({"name": "copy", "items": 6, "symbols": 5}) is one
    assert build_task("copy(symbols=5, items=7)") is not one


def test_an_option_of_another_kind_is_not_taken_for_an_equal_one():
    build_task("copy(items=1, symbols=40)")
    for wrong in (True, 1.0):
        with pytest.raises(LabError, match="The option items of the task copy is"):
            build_task(Choice("copy", items=wrong, symbols=40))


def test_a_task_that_is_not_there_is_answered_with_the_nearest():
    with pytest.raises(UnknownName, match=r"No task is called 'sortin'. Did you mean 'sorting'"):
        build_task("sortin")
    with pytest.raises(CatalogError, match=r"has no option 'symbol'. Did you mean 'symbols'"):
        build_task("copy(symbol=4)")


def test_the_catalog_holds_every_task():
    named = ["addition", "copy", "identity", "induction", "recall", "sorting", "stdlib", "text"]
    assert TASKS.names() == named
