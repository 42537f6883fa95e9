"""Layers dropped: which ones, what is left of the model, and what the remarks say."""

from __future__ import annotations

import csv
import io
import json
import math
import statistics
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rich.console import Console

import leadline
from leadline.cli.main import run
from leadline.errors import InputError
from leadline.experiments import EXPERIMENTS
from leadline.experiments.layer_dropping import LayerDroppingOptions
from leadline.experiments.layer_dropping.experiment import (
    CONNECTIONS,
    READINGS,
    TURN,
    _dropped,
    _times,
    _trained,
    computed_share,
    evenly,
    layer_dropping,
    without,
)
from leadline.experiments.layer_dropping.text import (
    EVENLY,
    FREE,
    RANDOM,
    UNTRAINED,
    Dropped,
    Model,
    _compared,
    _free,
    _priced,
    remarks,
)
from leadline.experiments.outcome.outcome import Outcome
from leadline.experiments.outcome.picture import outcome_screen
from leadline.lab.tasks import build_task
from leadline.parts.branches import Run

SMALL = LayerDroppingOptions(
    depth=2, width=8, heads=2, length=8, steps=4, batch=2, seeds=2, draws=3, turns=1, examples=4
)


@pytest.fixture(scope="module")
def outcome() -> tuple[Outcome, list[Any]]:
    told: list[Any] = []
    return layer_dropping(SMALL, progress=lambda *what: told.append(what)), told


def built(connection: str, depth: int = 4) -> leadline.Transformer:
    return leadline.Transformer(
        depth=depth,
        width=8,
        heads=2,
        vocabulary=16,
        context=4,
        connection=connection,
        init="xavier",
    )


def test_it_is_an_experiment_with_these_models_and_sizes() -> None:
    assert EXPERIMENTS.get("layer-dropping").function() is layer_dropping
    assert CONNECTIONS == (
        "identity",
        "layerdrop(rate=0.2)",
        "layerdrop(rate=0.5)",
        "stochastic_depth(rate=0.4)",
    )
    full, quick = LayerDroppingOptions(), LayerDroppingOptions.quick()
    assert (full.depth, full.width, full.steps, full.seeds) == (12, 64, 600, 3)
    assert (full.draws, full.turns, full.examples, full.length) == (8, 12, 64, 32)
    assert quick == replace(full, depth=6, steps=150, seeds=2, draws=4, turns=6)
    assert (FREE, TURN, READINGS) == (0.1, 4, 20)
    assert full.seed == 0


@pytest.mark.parametrize("field", ["depth", "steps", "seeds", "draws", "turns"])
def test_what_cannot_be_done_is_refused(field: str) -> None:
    least = 2 if field == "depth" else 1
    with pytest.raises(InputError) as caught:
        layer_dropping(replace(SMALL, **{field: least - 1}))
    assert str(caught.value) == f"{field} is {least - 1}; give a whole number from {least} on."


@pytest.mark.parametrize(("depth", "dropped"), [(12, 6), (12, 4), (12, 3), (12, 2), (6, 1)])
def test_where_they_divide_every_so_many_layers_are_dropped(depth: int, dropped: int) -> None:
    every = depth // dropped
    assert evenly(depth, dropped) == [d for d in range(1, depth + 1) if d % every == 0]


@pytest.mark.parametrize("dropped", range(1, 12))
def test_as_many_layers_are_dropped_as_are_asked_for_and_no_gaps_differ_by_two(
    dropped: int,
) -> None:
    layers = [0, *evenly(12, dropped)]
    gaps = {after - before for before, after in pairwise(layers)}
    assert len(set(layers)) == dropped + 1 and layers[-1] == 12
    assert max(gaps) - min(gaps) <= 1


def test_a_model_without_layers_is_the_rest_of_it_and_afterwards_whole() -> None:
    model = built("identity").eval()
    ids = torch.arange(8).reshape(2, 4)
    whole = model(ids)
    with torch.no_grad():
        x = model.embedding(ids, torch.arange(4), None)
        for layer in (1, 3):
            x = model.blocks[layer - 1](x, Run(causal=True))
        expected = model.head(model.norm(x), model.embedding.tokens.weight)
        with without(model, (2, 4)):
            assert torch.allclose(model(ids), expected, atol=1e-6)
    assert torch.equal(model(ids), whole)
    assert len(model.blocks) == 4


@pytest.mark.parametrize(
    ("connection", "share"),
    [
        ("identity", 1.0),
        ("layerdrop(rate=0.2)", 0.8),
        # The mean of 1 - 0.4 l / 4 over the layers 1 to 4.
        ("stochastic_depth(rate=0.4)", 0.75),
    ],
)
def test_the_expected_share_is_the_mean_over_the_layers(connection: str, share: float) -> None:
    assert computed_share(built(connection)) == pytest.approx(share, rel=1e-12)


def test_losses_are_those_of_the_model_without_the_layers() -> None:
    setting = replace(SMALL, depth=3, draws=40)
    task = build_task("stdlib(length=8)")
    trainer = _trained(setting, "identity", task, 0)
    model: Any = trainer.model
    found = _dropped(trainer, setting, 0)
    batch = task.validation(4)

    def loss(*layers: int) -> float:
        model.eval()
        with without(model, layers), torch.no_grad():
            logits = model(batch.ids).flatten(0, 1)
            return float(torch.nn.functional.cross_entropy(logits, batch.targets.flatten()))

    assert found.evenly == pytest.approx((loss(), loss(3), loss(1, 3)), rel=1e-5)
    assert found.at_random[0] == found.evenly[0] and found.spread[0] == 0.0
    # Forty draws of one layer of three: near the mean over the three.
    single = [loss(layer) for layer in (1, 2, 3)]
    apart = max(single) - min(single)
    assert abs(found.at_random[1] - statistics.fmean(single)) < 0.3 * apart
    assert 0 < found.spread[1] <= apart
    assert [step for step, _ in found.curve] == [0, 1, 2, 3, 4]
    assert found.curve[-1][1] == pytest.approx(found.evenly[0], rel=1e-6)


def test_times_are_medians_over_that_of_the_plain_model(monkeypatch: pytest.MonkeyPatch) -> None:
    # Before every turn of the first round; before and after every turn of the others, in which
    # each model takes a second longer than the one before it, and the last round is a slow one.
    setting, readings = replace(SMALL, turns=3), [0.0] * len(CONNECTIONS)
    for slowness in (1.0, 1.0, 50.0):
        for number in range(len(CONNECTIONS)):
            readings += [0.0, (number + 1) * slowness]
    clock = iter(readings)
    monkeypatch.setattr(
        "leadline.experiments.layer_dropping.experiment.time",
        SimpleNamespace(perf_counter=lambda: next(clock)),
    )
    found = _times(setting, build_task("stdlib(length=8)"))
    assert found == {name: number + 1.0 for number, name in enumerate(CONNECTIONS)}
    assert next(clock, None) is None


def test_the_outcome_has_a_line_per_model_and_way(outcome: tuple[Outcome, list[Any]]) -> None:
    found, told = outcome
    assert found.panels == [EVENLY, RANDOM] and found.start == 0
    names = ["plain", *CONNECTIONS[1:]]
    assert [line.name for line in found.lines] == names * 2
    for line in found.lines:
        assert len(line.values) == 2
        seeds = line.facts["seeds"]
        assert line.values == pytest.approx([statistics.fmean(c) for c in zip(*seeds, strict=True)])
        assert all(math.isfinite(value) for value in line.values)
    assert "spread" in found.lines[-1].facts and "spread" not in found.lines[0].facts
    (times,) = found.tables
    assert times.names == tuple(names)
    assert times.columns == ("time", "expected share of the layers")
    assert times.rows[0] == (1.0, 1.0)
    assert [row[1] for row in times.rows] == pytest.approx([1.0, 0.8, 0.5, 0.7])
    assert [done for _, done, _ in told] == list(range(9))
    assert {total for *_, total in told} == {9}


def test_models_of_one_seed_start_from_the_same_weights(
    outcome: tuple[Outcome, list[Any]],
) -> None:
    curves = {line.name: line for line in outcome[0].lines if line.panel == EVENLY}
    assert len(curves) == 4
    task = build_task("stdlib(length=8)")
    setting = replace(SMALL, steps=1)
    starts = {
        _dropped(_trained(setting, connection, task, 7), setting, 7).curve[0]
        for connection in CONNECTIONS
    }
    assert len(starts) == 1


def model(
    connection: str, *evens: tuple[float, ...], time: float = 1.0, expected: float = 1.0
) -> Model:
    zeros = tuple(0.0 for _ in evens[0])
    return Model(
        connection,
        tuple(Dropped(even, even, zeros, ((0, 4.0), (50, 3.0), (100, even[0]))) for even in evens),
        time,
        expected,
    )


def test_a_loss_between_two_readings_stands_on_the_line_between_them() -> None:
    one = model("identity", (2.0, 2.5)).seeds[0]
    assert [one.at(step) for step in (0, 25, 50, 75, 100, 120)] == [4.0, 3.5, 3.0, 2.5, 2.0, 2.0]


def test_layers_are_free_until_the_loss_has_risen() -> None:
    assert _free((2.0, 2.05, 2.09, 2.2, 2.05)) == 2
    assert _free((2.0, 2.2, 2.0)) == 0
    assert _free((2.0, 1.9, 2.05)) == 2


def test_a_model_is_compared_with_the_plain_one_in_every_seed() -> None:
    plain = model("identity", (2.0, 2.4, 3.0, 4.0), (2.0, 2.4, 3.0, 4.0))
    other = model("layerdrop(rate=0.2)", (2.1, 2.3, 2.9, 3.0), (2.2, 2.5, 2.8, 3.0))
    assert _compared(other, plain) == (
        "layerdrop(rate=0.2): its loss is below the plain model's in every seed with 2 and 3 "
        "layers dropped evenly, above it in every seed with 0."
    )
    assert _compared(plain, plain) == (
        "plain: its loss is below the plain model's in every seed at no number of layers dropped "
        "evenly."
    )


def test_the_price_is_the_plain_model_after_the_same_time() -> None:
    plain = model("identity", (2.0, 2.5), (2.0, 2.5))
    other = model("layerdrop(rate=0.2)", (2.4, 2.5), (2.6, 2.5), time=0.75, expected=0.8)
    assert _priced(other, plain) == (
        "layerdrop(rate=0.2): a training step takes 0.75 of the time of a plain one (the expected "
        "share of the layers is 0.80). After the same time the plain model has made 75 steps and "
        "its loss is 2.500 (2.500 to 2.500); this one's, whole, is 2.500 (2.400 to 2.600): lower "
        "in 1 of 2 seeds."
    )


def test_remarks_say_what_the_numbers_say() -> None:
    plain = model("identity", (2.0, 2.3, 2.5, 3.0, 5.0))
    other = model("layerdrop(rate=0.5)", (2.2, 2.25, 2.3, 2.35, 2.6), time=0.5, expected=0.5)
    text = list(remarks([plain, other], 3.25))
    assert text[0] == (
        "Validation loss with all 5 layers, mean and range over 1 seed: plain 2.000, "
        "layerdrop(rate=0.5) 2.200 nats (unigram entropy 3.250)."
    )
    assert text[1] == (
        "Rise of the loss with 1 of 5 layers dropped evenly: plain 0.300, "
        "layerdrop(rate=0.5) 0.050."
    )
    assert "with 2 of 5 layers" in text[2] and "plain 0.500" in text[2]
    assert text[3].endswith("in the worst seed: plain 0, layerdrop(rate=0.5) 2.")
    assert len(text) == 7


def test_models_that_hardly_learned_are_named_first() -> None:
    assert UNTRAINED == 0.3
    plain = model("identity", (2.9, 3.0), (2.949, 3.0))
    other = model("layerdrop(rate=0.5)", (2.8, 2.9), (2.951, 3.0))
    text = list(remarks([plain, other], 3.25))
    assert text[0] == (
        "Hardly trained: layerdrop(rate=0.5). In the worst seed the loss with all layers is less "
        "than 0.3 nats below the unigram entropy 3.250, so what is said below about dropping "
        "layers means little; train for more steps."
    )
    assert text[1].startswith("Validation loss with all 2 layers")
    both = next(iter(remarks([plain, other], 3.2)))
    assert both.startswith("Hardly trained: plain, layerdrop(rate=0.5). ")


@pytest.mark.parametrize(("width", "tables"), [(60, 2), (80, 1)])
def test_every_model_can_be_told_apart_in_a_narrow_terminal(
    outcome: tuple[Outcome, list[Any]], width: int, tables: int
) -> None:
    """What does not fit beside the names stands in a second table, below them again."""
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    outcome_screen(outcome[0]).show(console)
    text = console.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]
    assert "…" not in text
    rows = text[text.index("a training step over the plain one") :].split("\n\n")[0].splitlines()
    for name in ("plain", *CONNECTIONS[1:]):
        assert sum(row.startswith(f"{name} ") for row in rows) == tables


def test_the_command_gives_what_was_asked_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[LayerDroppingOptions] = []

    def experiment(setting: LayerDroppingOptions, **_given: Any) -> Outcome:
        asked.append(setting)
        return layer_dropping(SMALL)

    monkeypatch.setattr(sys.modules[layer_dropping.__module__], "layer_dropping", experiment)
    words = ["reproduce", "layer-dropping", "--json"]
    for more in (
        ["--quick", "-o", str(tmp_path / "out")],
        ["--depth", "4", "--steps", "7", "--seeds", "1"],
    ):
        with pytest.raises(SystemExit) as left:
            run([*words, *more])
        assert not left.value.code
        assert len(json.loads(capsys.readouterr().out)["lines"]) == 8
    assert asked == [LayerDroppingOptions.quick(), LayerDroppingOptions(depth=4, steps=7, seeds=1)]
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [
        "outcome.leadline",
        "picture.svg",
        "table.csv",
    ]
    with (tmp_path / "out" / "table.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    times = [row for row in rows if row["quantity"] == "time"]
    assert [row["name"] for row in times] == ["plain", *CONNECTIONS[1:]]
    assert {row["layers dropped"] for row in times} == {""}
    assert times[0]["value"] == "1.0"
