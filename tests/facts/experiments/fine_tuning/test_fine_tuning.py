"""Fine-tuning with a stronger residual: tasks, what is measured of adapters, what is concluded."""

from __future__ import annotations

import csv
import itertools
import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from leadline.cli.main import run
from leadline.errors import InputError, MissingExtra
from leadline.experiments import EXPERIMENTS
from leadline.experiments.fine_tuning import FineTuningOptions
from leadline.experiments.fine_tuning.adapting import (
    LISTENED,
    METHODS,
    Adapted,
    Heard,
    Together,
    Tuning,
    adapted,
    heard,
    losses,
    together,
)
from leadline.experiments.fine_tuning.experiment import (
    ADAPTER_RATE,
    DESIGNS,
    RATE,
    fine_tuning,
)
from leadline.experiments.fine_tuning.text import (
    LEAST,
    UNTRAINED,
    _gap,
    remarks,
    spearman,
    tables,
    verdict,
)
from leadline.experiments.fine_tuning.two_tasks import Backwards, ByTurns
from leadline.experiments.outcome.folder import write_outcome
from leadline.experiments.outcome.outcome import Outcome
from leadline.lab.adapters import adapter_parameters, add_bottlenecks, add_lora, switched_off
from leadline.lab.tasks import build_task
from leadline.lab.trainer import model_for
from leadline.parts import Transformer
from leadline.parts.branches import Run

SMALL = FineTuningOptions(
    weights=(0.5, 1.0),
    depth=2,
    width=8,
    heads=2,
    length=8,
    base=2,
    steps=2,
    batch=2,
    examples=4,
    rank=2,
    seeds=2,
)


@pytest.fixture(scope="module")
def old() -> Any:
    return build_task("stdlib(length=8)")


@pytest.fixture(scope="module")
def outcome() -> tuple[Outcome, list[Any]]:
    told: list[Any] = []
    return fine_tuning(SMALL, progress=lambda *what: told.append(what)), told


def tuned(old: Any) -> Tuning:
    return Tuning(old, Backwards(old), 2, 2, 4, 2, 3e-3, 0)


# --- the tasks --------------------------------------------------------------------------------


def test_backwards_is_the_window_from_its_last_byte(old: Any) -> None:
    back = Backwards(old)
    for there, here in (
        (old.train(3, 2, seed=1), back.train(3, 2, seed=1)),
        (old.validation(4), back.validation(4)),
    ):
        for ids, targets, turned, asked in zip(
            there.ids, there.targets, here.ids, here.targets, strict=True
        ):
            window = [*ids.tolist(), int(targets[-1])][::-1]
            assert turned.tolist() == window[:-1] and asked.tolist() == window[1:]
    assert (back.vocabulary, back.length, back.causal) == (256, 8, True)
    assert back.facts()["read"] == "backwards" and back.facts()["digest"] == old.digest


def test_read_backwards_a_text_has_the_same_frequencies(old: Any) -> None:
    assert Backwards(old).entropies(64).unigram == pytest.approx(
        old.entropies(64).unigram, abs=0.05
    )


def test_two_tasks_take_turns_and_miss_no_step(old: Any) -> None:
    back = Backwards(old)
    both = ByTurns(old, back)
    for step, (task, own) in enumerate([(old, 0), (back, 0), (old, 1), (back, 1)]):
        assert torch.equal(both.train(step, 2, seed=1).ids, task.train(own, 2, seed=1).ids)
    assert torch.equal(both.validation(3).ids, back.validation(3).ids)
    assert [one["name"] for one in both.facts()["tasks"]] == ["stdlib", "stdlib"]


# --- the designs ------------------------------------------------------------------------------


@pytest.mark.parametrize("weight", [0.25, 1.0, 4.0])
def test_both_designs_have_the_stream_weighted_up_to_its_size(weight: float) -> None:
    x, u = torch.randn(2, 2, 3, 8, dtype=torch.float64)
    wanted = weight * x + u
    for design in DESIGNS:
        connection = Transformer(SMALL.recipe(design, weight)).first
        written = connection.write(x, u)
        size = weight if design == "pre-norm" else 1.0
        assert torch.allclose(size * written, wanted, rtol=1e-12)
    assert list(DESIGNS) == ["pre-norm", "post-norm"]


def test_it_is_an_experiment_with_these_weights_and_sizes() -> None:
    assert EXPERIMENTS.get("fine-tuning").function() is fine_tuning
    full, quick = FineTuningOptions(), FineTuningOptions.quick()
    assert full.weights == (0.25, 0.5, 1.0, 2.0, 4.0)
    assert (full.depth, full.width, full.base, full.steps) == (4, 64, 300, 120)
    assert (full.rank, full.seeds, full.examples, full.length) == (4, 3, 64, 32)
    assert quick == replace(full, weights=(0.5, 1.0, 4.0), base=120, steps=50, seeds=1)
    assert (RATE, ADAPTER_RATE, LISTENED) == (1e-3, 3e-3, 8)
    assert METHODS == ("LoRA", "adapters")
    assert full.recipe("pre-norm", 2.0).choice("init").name == "xavier"


@pytest.mark.parametrize("field", ["depth", "base", "steps", "rank", "seeds"])
def test_what_cannot_be_done_is_refused(field: str) -> None:
    with pytest.raises(InputError, match=f"^{field} is 0; give a whole number from 1 on.$"):
        fine_tuning(replace(SMALL, **{field: 0}))


@pytest.mark.parametrize("weights", [(1.0,), (0.0, 1.0), (2.0, 1.0), (0.5, 2.0), (1.0, 1.0)])
def test_weights_rise_and_hold_one(weights: tuple[float, ...]) -> None:
    with pytest.raises(InputError, match="with 1 among them"):
        fine_tuning(replace(SMALL, weights=weights))


def test_without_peft_the_extra_is_named_before_anything_is_trained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(MissingExtra, match=r"pip install 'leadline\[tune\]'"):
        fine_tuning(SMALL)


# --- what is measured -------------------------------------------------------------------------


@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("add", [add_lora, add_bottlenecks])
def test_adapters_are_heard_as_a_pass_by_hand_hears_them(old: Any, design: str, add: Any) -> None:
    model = model_for(SMALL.recipe(design, 2.0), old, seed=0)
    add(model, 2)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in adapter_parameters(model).values():
            parameter.normal_(std=0.3, generator=generator)
    ids = old.validation(2).ids
    found = heard(model, ids)
    run, ratios, squares = Run(causal=True), [], 0.0
    with torch.no_grad():
        x = model.embedding(ids, torch.arange(8), None)
        for block in model.blocks:
            mean = 0.0
            for part in (block.attention, block.mlp):
                inner = part.branch(x if part.enter is None else part.enter(x), run)
                on = inner if part.exit is None else part.exit(inner)
                with switched_off(model):
                    inner = part.branch(x if part.enter is None else part.enter(x), run)
                    off = inner if part.exit is None else part.exit(inner)
                change = on - off
                squares += float(change.square().sum())
                # |d u / 2| / |x| in the one design, |d u| / |2 x| in the other.
                mean += float((change.norm(dim=-1) / (2 * x).norm(dim=-1)).mean()) / 2
                x = 2 * x + on if design == "post-norm" else x + on / 2
                x = x if part.settle is None else part.settle(x)
            ratios.append(mean)
        logits = model(ids)
        with switched_off(model):
            moved = logits - model(ids)
    moved = moved - moved.mean(-1, keepdim=True)
    assert found.ratios == pytest.approx(ratios, rel=1e-4)
    assert found.output == pytest.approx(float(moved.norm()) / math.sqrt(squares), rel=1e-4)
    assert found.ratio == pytest.approx(sum(ratios) / 2, rel=1e-4)
    assert not any(sub._forward_pre_hooks for sub in model.sublayers())


def test_adapters_that_have_learned_nothing_are_not_heard(old: Any) -> None:
    model = add_lora(model_for(SMALL.recipe("pre-norm", 1.0), old, seed=0), 2)
    found = heard(model, old.validation(2).ids)
    assert found.ratios == (0.0, 0.0) and math.isnan(found.output)


@pytest.mark.parametrize("method", METHODS)
def test_adapting_moves_a_copy_and_tells_both_losses(old: Any, method: str) -> None:
    model = model_for(SMALL.recipe("pre-norm", 1.0), old, seed=0)
    before = {name: p.clone() for name, p in model.named_parameters()}
    tuning = tuned(old)
    found = adapted(model, tuning, method=method, base=1.5)
    assert all(torch.equal(before[name], p) for name, p in model.named_parameters())
    there, here = old.validation(4), tuning.new.validation(4)
    assert [found.old_before, found.new_before] == losses(model, there, here)
    assert found.new_after != found.new_before and found.old_after != found.old_before
    assert found.heard.ratio > 0 and found.base == 1.5


def test_a_loss_is_that_of_evaluation(old: Any) -> None:
    model = model_for(SMALL.recipe("pre-norm", 1.0), old, seed=0).train()
    batch = old.validation(4)
    with torch.no_grad():
        logits = model(batch.ids).flatten(0, 1)
        expected = torch.nn.functional.cross_entropy(logits, batch.targets.flatten())
    assert losses(model, batch) == pytest.approx([float(expected)], rel=1e-5)
    assert model.training


def test_training_together_is_as_long_on_the_new_task(
    old: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, int, float]] = []

    def train(_self: Tuning, _model: Any, task: Any, *, steps: int, rate: float) -> None:
        seen.append((task.name, steps, rate))

    monkeypatch.setattr(Tuning, "train", train)
    model = model_for(SMALL.recipe("pre-norm", 1.0), old, seed=0)
    found = together(model, tuned(old), rate=0.5)
    assert seen == [("backwards", 2, 0.5), ("by turns", 4, 0.5)]
    # Nothing was trained, so all losses are those of the model.
    assert found.old_before == found.old_alone == found.old_both
    assert found.new_alone == found.new_both


# --- what is said -----------------------------------------------------------------------------


def test_the_outcome_has_lines_by_layer_and_a_table_per_case(
    outcome: tuple[Outcome, list[Any]],
) -> None:
    found, told = outcome
    assert found.panels == [
        f"{design}, {method}" for design, method in itertools.product(DESIGNS, METHODS)
    ]
    assert all(len(line.values) == 2 and min(line.values) > 0 for line in found.lines)
    assert len(found.lines) == 2 * 2 * 2
    assert len(found.tables) == 2 * 2 * 2 + 2
    assert [row[0] for row in found.tables[0].rows] == [0.5, 1.0]
    assert [done for _, done, _ in told] == list(range(8))
    assert {total for *_, total in told} == {8}


def test_an_unchanged_weight_is_the_trained_model(outcome: tuple[Outcome, list[Any]]) -> None:
    by_title = {table.title: table for table in outcome[0].tables}
    for design, method in itertools.product(DESIGNS, METHODS):
        trained = by_title[f"{design}, trained with r: {method}"]
        changed = by_title[f"{design}, changed to r after training: {method}"]
        assert trained.rows[1] == changed.rows[1]
        assert trained.rows[0] != changed.rows[0]


def test_rank_correlation_is_that_of_the_differences_of_ranks() -> None:
    x = (0.25, 0.5, 1.0, 2.0, 4.0)
    generator = np.random.default_rng(0)
    for _ in range(10):
        y = generator.normal(size=5)
        apart = np.argsort(np.argsort(y)) - np.arange(5)
        expected = 1 - 6 * float(apart @ apart) / (5 * 24)
        assert spearman(x, y.tolist()) == pytest.approx(expected, abs=1e-12)
    assert spearman(x, (1.0,) * 5) == 0.0
    # Equal values share their rank: 1, 2.5, 2.5 against 1, 2, 3.
    assert spearman((1, 2, 3), (5.0, 7.0, 7.0)) == pytest.approx(math.sqrt(0.75))


def test_something_rises_where_every_seed_says_so() -> None:
    assert LEAST == 0.6 and UNTRAINED == 0.3
    assert verdict([0.6, 1.0]) == "rises"
    assert verdict([-0.7, -0.6]) == "falls"
    assert verdict([0.5, 1.0]) == verdict([-0.5]) == verdict([-1.0, 1.0]) == "is undecided"


def case(base: float, after: float, ratio: float = 0.1, output: float = 1.0) -> Adapted:
    return Adapted(base, 2.0, 3.5, 2.9, after, Heard((ratio, ratio), output))


def test_a_gap_is_taken_from_the_base_as_it_was_trained() -> None:
    assert _gap(case(2.25, 2.75)) == 0.5


def findings() -> tuple[Any, Any]:
    weights = (0.5, 1.0, 2.0)
    rising = {r: [case(2.0, 2.5 + r / 10, 1 / r), case(2.0, 2.6 + r / 10, 1 / r)] for r in weights}
    falling = {r: [case(2.0, 2.9 - r / 10), case(2.0, 2.8 - r / 10)] for r in weights}
    by = {("pre-norm", "trained", "LoRA", r): seeds for r, seeds in rising.items()}
    by |= {("pre-norm", "changed", "LoRA", r): seeds for r, seeds in falling.items()}
    pairs = {("pre-norm", r): [Together(2.0, 3.0, 2.4, 2.1, 2.4 + r / 10)] * 2 for r in weights}
    return by, pairs


def test_remarks_say_what_the_numbers_say() -> None:
    by, pairs = findings()
    text = list(remarks(by, pairs, unigram=3.25))
    assert text[0] == (
        "Below stand rank correlations with r: their mean and range over 2 seeds. Something rises "
        "or falls where each is at least 0.6 in size."
    )
    assert text[1].startswith(
        "pre-norm, trained with r, LoRA: as r grows, the loss on the new task rises (1.00, 1.00 to "
        "1.00), that loss over the base's on the old task rises (1.00, 1.00 to 1.00)"
    )
    assert "the update ratio falls (-1.00, -1.00 to -1.00)" in text[1]
    assert text[1].endswith(
        "Loss on the new task: 2.600 at r = 0.5 and 2.750 at r = 2 nats, lowest at r = 0.5 (2.600)."
    )
    assert "the loss on the new task falls" in text[2]
    assert "the update ratio is undecided (0.00, 0.00 to 0.00)" in text[2]
    assert text[3] == (
        "pre-norm, all weights: training on the old task too costs the new one 0.117 nats (0.050 "
        "to 0.200), which rises (1.00, 1.00 to 1.00) as r grows; training on the new task alone "
        "costs the old one 1.000 nats, which is undecided (0.00, 0.00 to 0.00)."
    )
    assert text[4].endswith(
        "smaller beside the stream in 1 of 2 cases, and moves the output less for its size in 0."
    )
    assert text[5].endswith("It does in 1 of 2 cases, it helps in 1, and 0 are undecided.")
    assert len(text) == 6


def test_a_base_that_learned_little_is_left_out() -> None:
    by, pairs = findings()
    pairs["pre-norm", 0.5] = [Together(2.0, 3.0, 2.4, 2.1, 9.0), Together(3.0, 3.0, 2.4, 2.1, 9.0)]
    text = list(remarks(by, pairs, unigram=3.25))
    assert text[0] == (
        "A base is left out below where its loss on the old task, in the worst seed, is less than "
        "0.3 nats below the unigram entropy 3.250."
    )
    assert text[1] == (
        "pre-norm, trained with r, left out: r = 0.5 (worst seed 3.000, mean 2.500)."
    )
    assert "at r = 0.5" not in text[3] and "at r = 1" in text[3]
    # A model that is changed afterwards was trained with weight 1.
    assert "2.800 at r = 0.5" in text[4]
    assert "0.150 nats (0.100 to 0.200)" in text[5]
    # The mean that is told stands in the tables.
    *_, last = tables(by, pairs)
    assert last.rows[0][:2] == (0.5, 2.5)


def test_without_a_base_of_weight_one_nothing_is_changed_to_r() -> None:
    by, pairs = findings()
    pairs["pre-norm", 1.0] = [Together(3.0, 3.0, 2.4, 2.1, 9.0)] * 2
    text = list(remarks(by, pairs, unigram=3.25))
    assert text[1] == (
        "pre-norm, trained with r, left out: r = 1 (worst seed 3.000, mean 3.000), and so is all "
        "that is changed to r after training."
    )
    assert not any(line.startswith("pre-norm, changed to r") for line in text)
    assert text[-1].endswith("It does in 1 of 1 cases, it helps in 0, and 0 are undecided.")


def test_where_no_base_learned_nothing_is_concluded() -> None:
    by, pairs = findings()
    text = list(remarks(by, {place: [Together(3.1, 3, 2, 2, 2)] for place in pairs}, unigram=3.25))
    assert text[1] == (
        "pre-norm, trained with r, left out: r = 0.5 (3.100), r = 1 (3.100), r = 2 (3.100), and so "
        "is all that is changed to r after training."
    )
    assert text[-1] == "No case is left to judge by: train the bases for more steps."
    assert not any("of 0 cases" in line for line in text)


def test_tables_hold_means_over_the_seeds() -> None:
    first, *_, last = tables(*findings())
    assert first.columns == (
        "weight r",
        "old before",
        "new before",
        "new after",
        "old after",
        "update ratio",
        "output change",
    )
    assert first.rows[0] == pytest.approx((0.5, 2.0, 3.5, 2.6, 2.9, 2.0, 1.0))
    assert last.columns[1:] == ("old before", "new alone", "new, both", "old, alone", "old, both")
    assert last.rows[2] == pytest.approx((2.0, 2.0, 2.4, 2.6, 3.0, 2.1))


def test_the_table_in_the_folder_holds_the_losses(
    outcome: tuple[Outcome, list[Any]], tmp_path: Path
) -> None:
    found = outcome[0]
    write_outcome(found, tmp_path)
    with (tmp_path / "table.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    told = {
        (row["panel"], row["name"], row["quantity"]): float(row["value"])
        for row in rows
        if not row["layer"]
    }
    for table in found.tables:
        for values in table.rows:
            for title, value in zip(table.columns[1:], values[1:], strict=True):
                assert told[table.title, f"weight r {values[0]:g}", title] == value
    assert len(told) == sum((len(t.columns) - 1) * len(t.rows) for t in found.tables)
    lines = [row for row in rows if row["layer"]]
    assert len(lines) == sum(len(line.values) for line in found.lines)
    assert {row["quantity"] for row in lines} == {found.value_label}


@pytest.mark.parametrize("experiment", ["fine-tuning", "layer-dropping"])
def test_the_help_says_what_is_written(experiment: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run(["reproduce", experiment, "--help"])
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert (
        "Write picture.svg (the curves), table.csv (all numbers) and outcome.leadline (all of it, "
        "as a record) into this folder."
    ) in text
    assert "records" not in text


def test_the_command_gives_what_was_asked_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[FineTuningOptions] = []
    done = Outcome("fine-tuning", "a title", "", (), ("a remark",), {})

    def experiment(options: FineTuningOptions, **_given: Any) -> Outcome:
        asked.append(options)
        return done

    monkeypatch.setattr(sys.modules[fine_tuning.__module__], "fine_tuning", experiment)
    for more in (["--quick"], ["--base-steps", "9", "--steps", "7", "--rank", "2", "--seeds", "1"]):
        with pytest.raises(SystemExit) as left:
            run(["reproduce", "fine-tuning", "--json", "--seed", "3", *more])
        assert not left.value.code
        assert json.loads(capsys.readouterr().out)["remarks"] == ["a remark"]
    assert asked == [
        replace(FineTuningOptions.quick(), seed=3),
        FineTuningOptions(base=9, steps=7, rank=2, seeds=1, seed=3),
    ]
