"""What a stuck model scores: against counting in plain Python, and against formulas."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from leadline.errors import LabError
from leadline.lab.tasks import TASKS, Batch, build_task
from leadline.lab.tasks._drawn import _TIMES
from leadline.lab.tasks._entropies import ADDED, count, entropies_of

CHOSEN = [
    "copy(symbols=5, items=3)",
    "sorting(symbols=5, items=3)",
    "induction(symbols=6, items=4, queries=2)",
    "recall(keys=4, values=5, pairs=3, queries=2)",
    "identity(symbols=5, items=3)",
    "addition(p=7)",
]


def asked(batch):
    """Every counted target with the token at its position."""
    return [
        (x, y)
        for row, targets in zip(batch.ids.tolist(), batch.targets.tolist(), strict=True)
        for x, y in zip(row, targets, strict=True)
        if y != -100
    ]


def by_hand(trained, validated, vocabulary):
    """Both cross-entropies by dictionaries, at most that of knowing nothing."""
    targets, inputs = Counter(y for _, y in trained), Counter(x for x, _ in trained)
    both = Counter(trained)
    unigram = bigram = 0.0
    for x, y in validated:
        unigram -= math.log((targets[y] + 0.01) / (len(trained) + 0.01 * vocabulary))
        bigram -= math.log((both[x, y] + 0.01) / (inputs[x] + 0.01 * vocabulary))
    nothing = math.log(vocabulary)
    return min(unigram / len(validated), nothing), min(bigram / len(validated), nothing)


@pytest.mark.parametrize("spelling", CHOSEN)
def test_entropies_are_those_of_counting_one_by_one(spelling):
    task = build_task(spelling)
    trained = [pair for batch in task.evidence() for pair in asked(batch)]
    found = task.entropies(20)
    wanted = by_hand(trained, asked(task.validation(20)), task.vocabulary)
    assert (found.unigram, found.bigram) == pytest.approx(wanted, rel=1e-12)


def test_entropies_of_a_text_are_those_of_counting_its_bytes(tmp_path):
    text = "".join(f"wave {n}, tide {n * n}; " for n in range(900)).encode()
    (tmp_path / "tides.txt").write_bytes(text)
    task = TASKS.build({"name": "text", "path": str(tmp_path / "tides.txt"), "length": 16})
    chunk = max(8 * 17, min(4096, len(text) // 10))
    runs = [text[s : s + 9 * chunk] for s in range(0, len(text), 10 * chunk)]
    trained = [pair for run in runs for pair in itertools.pairwise(run)]
    found = task.entropies(50)
    wanted = by_hand(trained, asked(task.validation(50)), 256)
    assert (found.unigram, found.bigram) == pytest.approx(wanted, rel=1e-12)


tokens = st.lists(st.tuples(st.integers(0, 3), st.integers(-1, 3)), min_size=1, max_size=30)


@given(tokens, tokens, st.sampled_from([4, 5000]))
def test_any_batch_is_scored_as_by_hand(trained, validated, vocabulary):
    first, second = (
        Batch(
            torch.tensor([[x for x, _ in pairs]]),
            torch.tensor([[-100 if y < 0 else y for _, y in pairs]]),
        )
        for pairs in (trained, validated)
    )
    if not asked(first) or not asked(second):
        return
    found = entropies_of(count([first], vocabulary), second)
    wanted = by_hand(asked(first), asked(second), vocabulary)
    assert (found.unigram, found.bigram) == pytest.approx(wanted, rel=1e-12)


def test_a_hundredth_is_added_to_every_count():
    assert ADDED == 0.01
    seen = Batch(torch.tensor([[0, 0, 1]]), torch.tensor([[1, 1, 0]]))
    new = Batch(torch.tensor([[0, 0]]), torch.tensor([[0, 1]]))
    found = entropies_of(count([seen], 50), new)
    assert found.unigram == pytest.approx(-math.log(1.01 * 2.01 / 3.5**2) / 2)
    assert found.bigram == pytest.approx(-math.log(0.01 * 2.01 / 2.5**2) / 2)


def test_what_training_never_shows_costs_no_more_than_knowing_nothing():
    seen = Batch(torch.zeros(1, 1000, dtype=torch.int64), torch.zeros(1, 1000, dtype=torch.int64))
    new = Batch(torch.tensor([[0]]), torch.tensor([[7]]))
    found = entropies_of(count([seen], 20), new)
    assert (found.unigram, found.bigram) == (math.log(20), math.log(20))


@pytest.mark.parametrize("spelling", ["identity(items=1, symbols=20)", "copy(items=1, symbols=40)"])
def test_a_task_that_validates_only_what_is_never_trained_is_refused(spelling):
    task = build_task(spelling)
    held = set(task.validation(64).targets.flatten().tolist()) - {-100}
    trained = {int(y) for step in range(20) for y in task.train(step, 64, seed=1).targets.flatten()}
    assert not held & trained
    name = spelling.partition("(")[0]
    with pytest.raises(LabError, match=rf"^Validation of the task {name}\(items=1, .* never do"):
        task.entropies(64)


def test_a_large_vocabulary_that_was_not_all_counted_is_not_refused():
    assert _TIMES == 20
    # 131,072 targets are counted; that none of two is among them says nothing about a million.
    found = build_task("identity(items=2, symbols=1000000)").entropies(1)
    assert found.unigram == pytest.approx(math.log(1_000_000), rel=0.1)


@pytest.mark.parametrize(
    ("spelling", "unigram", "bigram"),
    [
        ("copy", math.log(16), math.log(16)),
        ("copy(symbols=40)", math.log(40), math.log(40)),
        ("induction", math.log(32), math.log(31)),
        ("induction(symbols=6, items=6)", math.log(6), math.log(5)),
        ("recall", math.log(16), math.log(16)),
        ("recall(values=5)", math.log(5), math.log(5)),
        ("identity", math.log(64), 0.0),
        ("sorting", math.log(16), None),
    ],
)
def test_entropies_are_those_of_the_formula(spelling, unigram, bigram):
    found = build_task(spelling).entropies(2000)
    assert found.unigram == pytest.approx(unigram, abs=0.01)
    if bigram is not None:
        assert found.bigram == pytest.approx(bigram, abs=0.01)


def test_the_bigram_entropy_of_sorting_is_that_of_all_sequences():
    symbols, items = 4, 6
    pairs = Counter()
    for shown in itertools.product(range(symbols), repeat=items):
        pairs.update(itertools.pairwise([symbols, *sorted(shown)]))
    inputs = Counter()
    for (x, _), times in pairs.items():
        inputs[x] += times
    exact = -sum(n * math.log(n / inputs[x]) for (x, _), n in pairs.items()) / pairs.total()
    found = build_task("sorting(symbols=4, items=6)").entropies(4000)
    assert found.bigram == pytest.approx(exact, abs=0.02)


def test_the_entropies_of_addition_are_a_little_above_log_p():
    found = build_task("addition").entropies(1741)
    assert found.unigram == found.bigram
    assert math.log(59) < found.unigram <= math.log(60)
