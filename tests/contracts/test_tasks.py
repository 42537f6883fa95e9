"""What every task must give, whoever wrote it."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch

from leadline.catalog import load_plugin
from leadline.errors import LabError
from leadline.lab.tasks import TASKS, Batch, Task, build_task
from leadline.parts import Recipe, Transformer

EXAMPLES = 6
OTHERS = [
    "stdlib(length=1)",
    "copy(symbols=2, items=9)",
    "induction(symbols=9, items=9, queries=1)",
    "recall(keys=3, values=9, pairs=2, queries=3)",
    "sorting(symbols=100, items=4)",
    "addition(p=8, share=0.8)",
    "identity(symbols=1000, items=2)",
]

BYTES = ("stdlib", "text")
"""Windows of different places of a text may be equal; tests of their own hold the places apart."""
OF_EXAMPLES = [name for name in (*TASKS.names(), *OTHERS) if not name.startswith(BYTES)]


@pytest.fixture(params=[*TASKS.names(), *OTHERS])
def task(request: pytest.FixtureRequest, tmp_path: Path) -> Task:
    if request.param != "text":
        return build_task(request.param)
    file = tmp_path / "tides.txt"
    file.write_text("".join(f"{n} tides, {n * n} waves.\n" for n in range(1000)))
    return TASKS.build({"name": "text", "path": str(file)})


def same(one: Batch, other: Batch) -> bool:
    return torch.equal(one.ids, other.ids) and torch.equal(one.targets, other.targets)


def rows(batch: Batch) -> set[tuple[int, ...]]:
    return {tuple(row) for row in batch.ids.tolist()}


def test_a_task_says_what_it_is(task: Task) -> None:
    entry = TASKS.get(task.name)
    assert type(task) is entry
    assert entry.__doc__ and entry.__doc__.endswith(".")
    assert task.vocabulary >= 2 and task.length >= 1


def test_a_batch_has_ids_and_targets_within_the_vocabulary(task: Task) -> None:
    for batch in (task.train(3, EXAMPLES, seed=1), task.validation(EXAMPLES)):
        assert batch.ids.shape == batch.targets.shape == (EXAMPLES, task.length)
        assert batch.ids.dtype == batch.targets.dtype == torch.int64
        assert batch.ids.is_contiguous() and batch.targets.is_contiguous()
        assert 0 <= int(batch.ids.min()) <= int(batch.ids.max()) < task.vocabulary
        asked = batch.targets[batch.targets != -100]
        assert 0 <= int(asked.min()) <= int(asked.max()) < task.vocabulary
        assert bool((batch.targets != -100).any(1).all())


def test_a_batch_follows_from_seed_and_step_alone(task: Task) -> None:
    before = torch.random.get_rng_state()
    late = task.train(7, EXAMPLES, seed=2)
    task.validation(EXAMPLES)
    for step in range(7):
        assert not same(task.train(step, EXAMPLES, seed=2), late)
    assert same(task.train(7, EXAMPLES, seed=2), late)
    assert same(TASKS.build(task.choice()).train(7, EXAMPLES, seed=2), late)
    assert not same(task.train(7, EXAMPLES, seed=3), late)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_validation_is_fixed(task: Task) -> None:
    again = TASKS.build(task.choice())
    again.train(0, EXAMPLES, seed=5)
    assert same(task.validation(EXAMPLES), again.validation(EXAMPLES))


def test_a_batch_is_the_callers_own(task: Task) -> None:
    first = task.train(0, EXAMPLES, seed=0)
    kept = Batch(first.ids.clone(), first.targets.clone())
    first.ids.zero_()
    assert torch.equal(first.targets, kept.targets)
    first.targets.zero_()
    task.validation(EXAMPLES).ids.zero_()
    assert same(task.train(0, EXAMPLES, seed=0), kept)


def test_a_causal_task_shows_later_what_it_asks_and_no_other_does(task: Task) -> None:
    batch = task.train(0, 64, seed=0)
    asked = batch.targets[:, :-1] != -100
    shown = batch.targets[:, :-1] == batch.ids[:, 1:]
    if task.causal and bool(asked.any()):
        assert bool(shown[asked].all())
    elif not task.causal:
        assert not bool(shown[asked].all()) or not bool(asked.any())


def test_facts_are_json_and_build_the_same_task(task: Task) -> None:
    facts = json.loads(json.dumps(task.facts(), allow_nan=False))
    assert facts["name"] == task.name and facts["split"]
    assert (facts["vocabulary"], facts["length"]) == (task.vocabulary, task.length)
    again = build_task({"name": facts["name"], **facts["options"]})
    assert again.facts() == task.facts()
    assert set(facts["options"]) == set(TASKS.options(task.name))


def test_entropies_are_finite_and_a_token_tells_no_less_than_nothing(task: Task) -> None:
    found = task.entropies(EXAMPLES)
    assert 0.0 <= found.bigram <= found.unigram + 0.05
    assert found.unigram <= math.log(task.vocabulary) + 1.0


@pytest.mark.parametrize("spelling", OF_EXAMPLES)
def test_what_is_validated_is_never_trained_on(spelling: str) -> None:
    task = build_task(spelling)
    trained = [rows(task.train(step, 512, seed=seed)) for seed in (0, 1) for step in range(8)]
    assert not set().union(*trained) & rows(task.validation(EXAMPLES))


def test_no_examples_are_refused(task: Task) -> None:
    for call in (lambda: task.train(0, 0, seed=0), lambda: task.validation(0)):
        with pytest.raises(LabError, match=f"0 examples of the task {task.name} were asked for"):
            call()


def test_a_model_of_the_tasks_size_has_a_loss(task: Task) -> None:
    recipe = Recipe(depth=1, width=8, heads=1, vocabulary=task.vocabulary, context=task.length)
    batch = task.train(0, EXAMPLES, seed=0)
    loss = Transformer(recipe, seed=0).loss(batch.ids, batch.targets)
    assert float(loss.detach()) == pytest.approx(math.log(task.vocabulary), abs=0.5)


PLUGIN = '''
"""Count: every token is followed by the next number."""

import torch

from leadline.lab.tasks import TASKS, Batch, Drawn


@TASKS.register("count-of-a-test")
class Count(Drawn):
    """Say the next number, modulo the vocabulary."""

    name = "count-of-a-test"

    def __init__(self, *, vocabulary: int = 50, length: int = 4) -> None:
        self.vocabulary, self.length = vocabulary, length

    def draw(self, examples: int, generator: torch.Generator) -> Batch:
        first = torch.randint(self.vocabulary, (examples, 1), generator=generator)
        line = (first + torch.arange(self.length + 1)) % self.vocabulary
        return Batch(line[:, :-1], line[:, 1:])
'''


def test_one_file_with_one_decorator_adds_a_task(tmp_path: Path) -> None:
    file = tmp_path / "count.py"
    file.write_text(PLUGIN)
    load_plugin(file)
    try:
        task = build_task("count-of-a-test(length=3)")
        batch = task.train(0, 200, seed=0)
        assert torch.equal((batch.ids + 1) % 50, batch.targets)
        assert not rows(batch) & rows(task.validation(20))
        assert task.entropies(20).bigram < 0.01
    finally:
        TASKS._entries.pop("count-of-a-test")
