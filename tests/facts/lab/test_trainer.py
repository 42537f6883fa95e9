"""A run: its rows, its ends, and going on to the bit."""

import copy
import dataclasses
import math

import pytest
import torch
from torch import nn

from leadline.errors import LabError
from leadline.lab.checkpoint import FILE
from leadline.lab.cost import flops_of
from leadline.lab.optimizer import FlatAdamW
from leadline.lab.tasks import Batch, Task, build_task
from leadline.lab.trainer import WINDOW, Trainer, model_for
from leadline.lab.training import Training
from leadline.lab.watch.watch import watch
from leadline.numerics.denormals import is_flushing
from leadline.numerics.half_precision import prepare_half_products
from leadline.parts import Recipe
from leadline.record.rows.site import RUN

TINY = Recipe(depth=2, width=16, heads=2, vocabulary=32, context=8)


class Counting(Task):
    """Predict the next of 32 numbers that go round."""

    name = "counting"
    vocabulary, length = 32, 8

    def train(self, step, examples, *, seed):
        drawn = torch.Generator().manual_seed(1000 * seed + step)
        return self._batch(torch.randint(32, (examples, 1), generator=drawn))

    def validation(self, examples):
        return self._batch(torch.arange(examples)[:, None])

    def _batch(self, starts):
        row = (starts + torch.arange(9)) % 32
        return Batch(row[:, :-1], row[:, 1:])


FAST = Training(task="identity", steps=12, batch=4, log=3, validate=6, examples=4, gauges=6)


def trainer(training=FAST, recipe=TINY, **fields):
    return Trainer(model_for(recipe, Counting(), seed=0), Counting(), training, **fields)


def rows(run):
    return [dataclasses.astuple(reading) for reading in run.readings]


def of(run, quantity):
    return {r.step: r.value for r in run.readings if r.quantity == quantity}


def test_a_run_learns_to_count():
    run = trainer(FAST.but(steps=300, rate=0.01, gauges=0, validate=0))
    ending = run.run()
    assert (ending.status, ending.steps) == ("finished", 300)
    assert ending.loss < 0.1 < math.log(32)


def test_rows_come_every_so_many_steps_and_at_the_end():
    run = trainer(FAST.but(steps=14))
    run.run()
    assert list(of(run, "train.loss")) == [3, 6, 9, 12, 14]
    assert list(of(run, "validation.loss")) == [0, 6, 12, 14]
    assert list(of(run, "gauge.token_cosine")) == [0, 6, 12, 14]
    assert all(r.site == RUN for r in run.readings)


def test_the_training_loss_of_a_row_is_the_mean_since_the_row_before():
    run, every = trainer(FAST), trainer(FAST.but(log=1))
    run.run()
    every.run()
    single = of(every, "train.loss")
    for step, value in of(run, "train.loss").items():
        assert value == pytest.approx(sum(single[s] for s in (step - 2, step - 1, step)) / 3)


def test_the_losses_are_those_of_a_loop_by_hand():
    run = trainer(FAST.but(log=1, steps=5, rate=0.01))
    run.run()
    model = model_for(TINY, Counting(), seed=0)
    optimizer = FlatAdamW(model, decay=0.01)
    losses = []
    for step in range(5):
        batch = Counting().train(step, 4, seed=0)
        logits = model(batch.ids)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch.targets.flatten())
        optimizer.zero()
        loss.backward()
        optimizer.step(0.01)
        losses.append(float(loss.detach()))
    assert list(of(run, "train.loss").values()) == pytest.approx(losses, rel=1e-5)


def test_the_gauges_are_those_of_a_measurement():
    from leadline.instruments.passes.measurement import measure
    from leadline.lab.gauges import task_loss
    from leadline.models.inputs import Inputs

    run = trainer()
    run.run()
    batch = Counting().validation(4)
    record = measure(
        run.model,
        Inputs({"input_ids": batch.ids}, kind="task"),
        probes="stream,tokens,gradient",
        loss=lambda output, _: task_loss(output, batch.targets),
    )
    cosine = record.by_layer("tokens.cosine").values[-1]
    gradient = record.by_layer("gradient.stream").values
    norm = record.by_layer("stream.norm", statistic="mean").values
    assert of(run, "gauge.token_cosine")[12] == pytest.approx(cosine)
    assert of(run, "gauge.gradient_ratio")[12] == pytest.approx(gradient[0] / gradient[-1])
    assert of(run, "gauge.stream_growth")[12] == pytest.approx(norm[-1] / norm[0])


def test_gauges_do_not_change_the_run():
    with_gauges, without = trainer(FAST.but(gauges=2)), trainer(FAST.but(gauges=0))
    with_gauges.run()
    without.run()
    assert of(with_gauges, "train.loss") == of(without, "train.loss")


def test_every_layer_is_kept_where_it_is_asked_for():
    run = trainer(FAST.but(layers=True))
    run.run()
    names = {quantity.name for quantity in run.quantities}
    assert {r.quantity for r in run.readings} <= names
    layers = {r.site.layer for r in run.readings if r.quantity == "stream.norm" and r.step == 6}
    assert layers == {0, 1, 2}


def test_layers_are_read_as_a_watch_reads_them():
    """The same model and batches in a plain loop with AdamW, watched: what it reads of the update."""
    training = FAST.but(layers=True, gauges=3, clip=0.5)
    model = model_for(TINY, Counting(), seed=0).double().train()
    run = Trainer(copy.deepcopy(model), Counting(), training)
    run.run()
    groups = [
        {"params": [p for p in model.parameters() if p.ndim >= 2], "weight_decay": training.decay},
        {"params": [p for p in model.parameters() if p.ndim < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=training.rate)
    with watch(model, optimizer, every=3, quiet=True) as one:
        for step in range(training.steps):
            batch = run.task.train(step, training.batch, seed=run.seed)
            logits = model(batch.ids).flatten(0, 1)
            torch.nn.functional.cross_entropy(logits, batch.targets.flatten()).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            optimizer.zero_grad()
        for name in ("weights.update_ratio", "optimizer.surprise"):
            watched = {(r.step, r.site): r.value for r in one.record.select(name) if r.step != 1}
            ours = {(r.step, r.site): r.value for r in run.readings if r.quantity == name}
            assert len(watched) >= 10
            assert {step for step, _ in watched} == {3, 6, 9, 12}
            assert ours.keys() == watched.keys()
            for (step, site), value in watched.items():
                # The gradient of a bias of keys is rounding, and so is what it is divided by.
                off = 0.05 if name == "optimizer.surprise" and site.point == "attention" else 1e-3
                assert ours[step, site] == pytest.approx(value, rel=off), (name, step, site)
        of_layers = {row.quantity for row in one.record.select() if row.site.stack != "run"}
    assert len(of_layers) == 11
    assert of_layers <= {row.quantity for row in run.readings}


def test_pieces_of_a_batch_give_the_gradient_of_the_whole():
    whole, pieces = trainer(FAST.but(log=1)), trainer(FAST.but(log=1, accumulate=4))
    whole.run()
    pieces.run()
    assert list(of(pieces, "train.loss").values()) == pytest.approx(
        list(of(whole, "train.loss").values()), rel=1e-3
    )
    assert of(pieces, "train.gradient_norm")[1] == pytest.approx(
        of(whole, "train.gradient_norm")[1], rel=1e-4
    )


def test_pieces_weigh_by_the_targets_that_count():
    class Uneven(Counting):
        def train(self, step, examples, *, seed):
            batch = super().train(step, examples, seed=seed)
            targets = batch.targets.clone()
            targets[0, 1:] = -100
            targets[1, :] = -100
            return Batch(batch.ids, targets)

    def first(accumulate):
        run = Trainer(
            model_for(TINY, Uneven(), seed=0), Uneven(), FAST.but(log=1, accumulate=accumulate)
        )
        run.run()
        return of(run, "train.loss")[1], of(run, "train.gradient_norm")[1]

    assert first(4) == pytest.approx(first(1), rel=1e-4)


def test_a_clipped_gradient_moves_the_weights_as_one_of_that_norm(monkeypatch):
    seen = []
    step = FlatAdamW.step
    monkeypatch.setattr(
        FlatAdamW, "step", lambda self, rate: (seen.append(float(self.norm())), step(self, rate))
    )
    run = trainer(FAST.but(clip=1e-3))
    run.run()
    assert seen == pytest.approx([1e-3] * 12, rel=2e-3)
    assert min(of(run, "train.gradient_norm").values()) > 1e-2


def test_half_precision_is_near_full_precision():
    full, half = trainer(), trainer(FAST.but(precision="bfloat16"))
    assert half.precision == "bfloat16"
    assert (full.half_route, half.half_route) == (None, prepare_half_products())
    full.run()
    half.run()
    assert half.validate() == pytest.approx(full.validate(), abs=0.05)
    assert of(full, "train.loss") != of(half, "train.loss")


# --- ends --------------------------------------------------------------------------------------


class Breaking(Counting):
    """A model that is trained on it gets a weight that is no number at step 5."""

    model = None

    def train(self, step, examples, *, seed):
        if step == 5:
            with torch.no_grad():
                self.model.head.projection.weight[0, 0] = math.nan
        return super().train(step, examples, seed=seed)


def test_a_loss_that_is_no_number_ends_the_run_with_its_step():
    task = Breaking()
    model = model_for(TINY, task, seed=0)
    task.model = model
    run = Trainer(model, task, FAST.but(log=2))
    ending = run.run()
    assert (ending.status, ending.steps) == ("diverged", 6)
    assert ending.reason == "the loss was not finite at step 6"
    assert math.isnan(ending.loss)
    assert math.isnan(of(run, "train.loss")[6])
    assert max(of(run, "validation.loss")) == 0


@pytest.mark.parametrize("log", [0, 3, 50])
def test_a_loss_that_stops_falling_ends_the_run(log):
    run = trainer(FAST.but(rate=1e-12, plateau=6, steps=100, least=1.0, log=log))
    ending = run.run()
    # No mean of ten falls by a whole nat below the first one; the second is judged at step 20.
    assert (ending.status, ending.steps) == ("plateau", 20)
    every = trainer(FAST.but(rate=1e-12, steps=10, log=1))
    every.run()
    first = sum(of(every, "train.loss").values()) / 10
    assert ending.reason == f"no training loss below {first:.3f} in 6 steps"
    assert WINDOW == 10


def test_the_last_step_is_read_whatever_ended_the_run():
    run = trainer(FAST.but(rate=1e-12, plateau=6, steps=100, least=1.0, log=7, gauges=15))
    assert run.run().steps == 20
    assert max(of(run, "train.loss")) == max(of(run, "gauge.token_cosine")) == 20
    assert max(of(run, "validation.loss")) == 20


def test_a_loss_that_keeps_falling_goes_on():
    run = trainer(FAST.but(rate=0.01, plateau=6, steps=60))
    assert run.run().status == "finished"


def test_a_stream_that_is_not_finite_when_a_gauge_is_due_is_a_divergence():
    class Exploding(Counting):
        def train(self, step, examples, *, seed):
            if step == 2:
                with torch.no_grad():
                    self.model.embedding.tokens.weight.fill_(math.inf)
            return super().train(step, examples, seed=seed)

    for gauges in (1, 3, 100):
        task = Exploding()
        model = model_for(TINY, task, seed=0)
        task.model = model
        ending = Trainer(model, task, FAST.but(gauges=gauges, steps=8)).run()
        assert (ending.status, ending.steps) == ("diverged", 3)
        assert math.isnan(ending.loss)
    ending = trainer(FAST.but(rate=1e38, steps=1)).run()
    assert (ending.status, ending.reason) == (
        "diverged",
        "the validation loss was not finite at step 1",
    )


def test_time_ends_the_run():
    ending = trainer(FAST.but(seconds=1e-6)).run()
    assert (ending.status, ending.steps) == ("seconds", 0)
    assert math.isfinite(ending.loss)


def test_a_budget_of_operations_limits_the_steps():
    cost = flops_of(TINY, examples=4, length=8)
    ending = trainer(FAST.but(flops=5.5 * cost)).run()
    assert (ending.status, ending.steps) == ("finished", 5)
    assert "FLOPs allow 5 of 12 steps" in ending.reason
    with pytest.raises(LabError, match="One step costs"):
        trainer(FAST.but(flops=0.5 * cost))


def test_the_operations_are_those_of_the_products():
    recipe = Recipe(depth=3, width=32, heads=2, vocabulary=64, context=16)
    tokens, length, width = 4 * 16, 16, 32
    weights = 3 * 12 * width**2 + 64 * width
    attention = 3 * 2 * length * width  # scores and weighted sums, for each token
    expected = 3 * 2 * tokens * (weights + attention)
    assert flops_of(recipe, examples=4, length=16) == pytest.approx(expected, rel=0.02)


# --- going on ----------------------------------------------------------------------------------


class Cut(Exception):
    """Somebody pulls the plug."""


def cut_at(step):
    def beat(now):
        if now.step >= step:
            raise Cut

    return beat


@pytest.fixture
def talkative(monkeypatch):
    monkeypatch.setattr("leadline.lab.trainer.BEAT", 0.0)


@pytest.mark.parametrize(
    "recipe",
    [TINY, TINY.but(connection="dropout"), TINY.but(connection="layerdrop", placement="post")],
    ids=lambda r: r.choice("connection").name,
)
def test_a_run_that_was_cut_goes_on_to_the_bit(recipe, tmp_path, talkative):
    whole = trainer(recipe=recipe)
    expected = whole.run()
    for step in (1, 4, 7, 10):
        with pytest.raises(Cut):
            trainer(recipe=recipe, folder=tmp_path).run(beat=cut_at(step))
    last = trainer(recipe=recipe, folder=tmp_path)
    assert last.step == 10
    ending = last.run()
    assert rows(last) == rows(whole)
    assert ending.loss == expected.loss
    for mine, theirs in zip(last.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_a_checkpoint_is_written_as_time_passes(tmp_path):
    trainer(FAST.but(steps=3), folder=tmp_path, every=0.0).run()
    assert (tmp_path / FILE).is_file()
    assert [p.name for p in tmp_path.iterdir()] == [FILE]


def test_an_ended_run_ends_at_once_when_it_is_asked_again(tmp_path):
    first = trainer(folder=tmp_path)
    ending = first.run()
    again = trainer(folder=tmp_path)
    assert again.run() == ending
    assert rows(again) == rows(first)


def test_a_checkpoint_of_another_run_is_refused_with_the_difference(tmp_path):
    trainer(folder=tmp_path).run()
    with pytest.raises(LabError, match=r"training.rate is 0.001 there and 0.5 here"):
        trainer(FAST.but(rate=0.5), folder=tmp_path)


def test_a_damaged_checkpoint_is_a_sentence(tmp_path):
    trainer(folder=tmp_path).run()
    path = tmp_path / FILE
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(LabError, match="cannot be read"):
        trainer(folder=tmp_path)


def test_a_checkpoint_that_cannot_be_written_is_a_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(LabError, match="cannot be written"):
        trainer(folder=tmp_path / "file").run()


def test_training_leaves_the_random_numbers_as_they_were():
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    trainer(recipe=TINY.but(connection="dropout")).run()
    assert torch.equal(torch.random.get_rng_state(), before)


def test_numbers_below_the_normal_range_are_zero_while_training(talkative):
    seen = []
    trainer().run(beat=lambda _: seen.append(is_flushing()))
    assert seen[:-1] == [True] * 11
    assert not is_flushing()


def test_seeds_give_other_batches():
    one, two = trainer(seed=0), trainer(seed=1)
    one.run()
    two.run()
    assert of(one, "train.loss") != of(two, "train.loss")


def test_a_model_of_others_is_trained_by_its_logits():
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        n_layer=2, n_embd=16, n_head=2, n_positions=8, vocab_size=32, bos_token_id=0, eos_token_id=0
    )
    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(config)
    run = Trainer(model, Counting(), FAST.but(steps=60, rate=0.01, gauges=30))
    ending = run.run()
    assert ending.loss < 2.5 < math.log(32)
    assert of(run, "gauge.gradient_ratio")[60] > 0


def test_a_real_task_is_learned_beyond_its_frequencies():
    task = build_task("stdlib(length=16)")
    recipe = Recipe(depth=2, width=32, heads=2, init="xavier")
    run = Trainer(
        model_for(recipe, task, seed=0),
        task,
        Training(task="stdlib(length=16)", steps=150, rate=0.003),
    )
    assert run.run().loss < task.entropies(64).unigram - 0.3
