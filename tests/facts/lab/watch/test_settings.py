"""A watched run computes what the same run computes alone, bit for bit, in every kind of loop."""

from functools import partial

import pytest
import torch
from torch import nn

from tests.twin_runs import UPDATES, batches, rows_of, run_twice, sampled_steps, train
from tests.watched import tiny_gpt2

LAYERS = ("stream.norm", "gradient.stream", "update.ratio", "weights.update_ratio")


def check(loop, folder, *, every=2, updates=UPDATES, layers=LAYERS, notes=(), steps=None, **more):
    """Run a loop alone and watched; the samples are where they belong, and nothing differs."""
    plain, watched = run_twice(loop, folder, every=every, **more)
    assert watched.differences(plain) == []
    for sentence, expected in zip(watched.watcher.notes, notes, strict=True):
        assert expected in sentence
    assert watched.watcher.step == updates
    assert list(rows_of(watched.path, "train.loss")) == list(range(1, updates + 1))
    for quantity in layers:
        found = sorted(rows_of(watched.path, quantity))
        assert found == (steps or sampled_steps(updates, every)), quantity
    return watched


def adam(model, **options):
    return torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2, **options)


# --- loops -------------------------------------------------------------------------------------


def plain_loop(run, *, optimizer=adam, clip=None, model=tiny_gpt2, given=...):
    trained = model()
    stepper = optimizer(trained)
    run.watch(trained, stepper, given=given)
    train(run, trained, stepper, batches(), clip=clip)


@pytest.mark.parametrize("every", [1, 2, 5, 1000])
def test_a_plain_loop(tmp_path, every):
    check(plain_loop, tmp_path, every=every)


def test_attention_and_further_probes(tmp_path):
    watched = check(plain_loop, tmp_path, attention=True, probes="rank,memory", snapshot=True)
    assert sorted(rows_of(watched.path, "attention.entropy")) == [1, 2, 4]
    assert sorted(rows_of(watched.path, "tokens.stable_rank")) == [1, 2, 4]


def test_a_fixed_batch(tmp_path):
    probe = batches(1, seed=9)[0]["input_ids"]
    check(plain_loop, tmp_path, probe=probe)


def test_clipping(tmp_path):
    watched = check(partial(plain_loop, clip=0.3), tmp_path, every=1)
    factors = [rows[0].value for rows in rows_of(watched.path, "train.clipping").values()]
    assert len(factors) == UPDATES
    assert all(factor < 0.5 for factor in factors)


def test_gradient_accumulation(tmp_path):
    def loop(run):
        model = tiny_gpt2()
        optimizer = adam(model)
        run.watch(model, optimizer)
        for at, batch in enumerate(batches(3 * UPDATES), start=1):
            loss = model(**batch).loss / 3
            run.loss(loss)
            loss.backward()
            if at % 3 == 0:
                optimizer.step()
                optimizer.zero_grad()

    check(loop, tmp_path)


# --- precision ---------------------------------------------------------------------------------


def scaled_loop(run, *, dtype, scale=None, infinite=(), unscale=True, **options):
    """A loop with autocast and a loss scaler; the loss of some passes is infinite."""
    model = tiny_gpt2()
    optimizer = adam(model, **options)
    run.watch(model, optimizer)
    scaler = torch.amp.GradScaler("cpu", init_scale=scale or 1.0, enabled=scale is not None)
    for at, batch in enumerate(batches(UPDATES + len(infinite))):
        with torch.autocast("cpu", dtype):
            loss = model(**batch).loss
        run.loss(loss)
        scaler.scale(loss * torch.inf if at in infinite else loss).backward()
        if unscale:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(tmp_path, dtype):
    check(partial(scaled_loop, dtype=dtype), tmp_path)


@pytest.mark.parametrize("unscale", [True, False])
def test_a_loss_scaler(tmp_path, unscale):
    check(partial(scaled_loop, dtype=torch.float16, scale=2.0**10, unscale=unscale), tmp_path)


@pytest.mark.parametrize("infinite", [(0,), (1, 4), (0, 1, 2)])
def test_steps_that_a_scaler_skips_are_no_updates(tmp_path, infinite):
    loop = partial(scaled_loop, dtype=torch.float16, scale=2.0**10, infinite=infinite)
    watched = check(loop, tmp_path, every=1)
    assert watched.watcher.warnings == []  # the infinite gradients belong to no update


def test_a_fused_optimizer_that_skips_by_itself_has_no_sample_then(tmp_path):
    loop = partial(scaled_loop, dtype=torch.float16, scale=2.0**10, infinite=(1,), fused=True)
    watched = check(loop, tmp_path, every=1, updates=UPDATES + 1, steps=[1, 3, 4, 5, 6])
    assert watched.watcher.warnings == []


# --- optimizers --------------------------------------------------------------------------------

OPTIMIZERS = {
    "fused": partial(adam, fused=True),
    "foreach": partial(adam, foreach=True),
    "one by one": partial(adam, foreach=False),
    "amsgrad": partial(adam, amsgrad=True),
    "sgd": lambda model: torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9),
    "rmsprop": lambda model: torch.optim.RMSprop(model.parameters(), lr=1e-3),
    "adafactor": lambda model: torch.optim.Adafactor(model.parameters(), lr=1e-2),
    "adagrad": lambda model: torch.optim.Adagrad(model.parameters(), lr=1e-2),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(tmp_path, name):
    notes = ["Adafactor keeps it by rows and columns"] if name == "adafactor" else []
    check(partial(plain_loop, optimizer=OPTIMIZERS[name]), tmp_path, notes=notes)


def test_no_optimizer_is_named(tmp_path):
    check(partial(plain_loop, given=None), tmp_path)


@pytest.mark.parametrize("rarely", [1, 2, 3])
@pytest.mark.parametrize("given", [..., None])
@pytest.mark.parametrize("every", [1, 2])
def test_several_optimizers_that_step_at_different_rates(tmp_path, rarely, given, every):
    def loop(run):
        model = tiny_gpt2()
        parameters = list(model.parameters())
        often = torch.optim.AdamW(parameters[:9], lr=1e-2)
        seldom = torch.optim.SGD(parameters[9:], lr=1e-2)
        run.watch(model, [often, seldom], given=given)
        for at, batch in enumerate(batches(6), start=1):
            loss = model(**batch).loss
            run.loss(loss)
            loss.backward()
            often.step()
            often.zero_grad()
            if at % rarely == 0:
                seldom.step()
                seldom.zero_grad()

    # The second one has not stepped by the second sample, and nobody knows of it.
    notes = ["in no optimizer that stepped so far"] if given is None and rarely == 3 else []
    watched = check(loop, tmp_path, every=every, updates=6, notes=notes)
    kept = [rows[0].value for rows in rows_of(watched.path, "train.loss").values()]
    assert kept == [float(loss) for loss in watched.losses]


def test_a_backward_pass_between_the_steps_makes_two_updates(tmp_path):
    def loop(run):
        model = tiny_gpt2()
        parameters = list(model.parameters())
        steppers = [torch.optim.AdamW(part, lr=1e-2) for part in (parameters[:9], parameters[9:])]
        run.watch(model, steppers)
        for at, batch in enumerate(batches(4)):
            loss = model(**batch).loss
            run.loss(loss)
            loss.backward()
            steppers[at % 2].step()
            model.zero_grad()

    check(loop, tmp_path, every=1, updates=4)


# --- what else happens in loops ----------------------------------------------------------------


def test_evaluation_passes_in_between(tmp_path):
    def loop(run):
        model = tiny_gpt2()
        optimizer = adam(model)
        run.watch(model, optimizer)
        for batch in batches():
            model.eval()
            with torch.no_grad():
                run.loss(model(**batch).loss)
            with torch.inference_mode():
                value = model(**batch).loss.clone()
            run.loss(torch.tensor(value.item()))
            run.loss(model(**batch).loss)  # with gradients, and nobody asks for them
            model.train()
            train(run, model, optimizer, [batch])

    check(loop, tmp_path)


def test_a_model_that_is_trained_in_evaluation_mode(tmp_path):
    check(partial(plain_loop, model=lambda: tiny_gpt2().eval()), tmp_path)


def test_a_second_model_that_is_trained_in_the_same_loop(tmp_path):
    def loop(run):
        model, other = tiny_gpt2(), tiny_gpt2(seed=1)
        optimizer, second = adam(model), adam(other)
        run.watch(model, optimizer)
        for batch in batches():
            (7.0 * other(**batch).loss).backward()
            second.step()
            other.zero_grad()
            train(run, model, optimizer, [batch])

    watched = check(loop, tmp_path)
    kept = [rows[0].value for rows in rows_of(watched.path, "train.loss").values()]
    assert kept == [float(loss) for loss in watched.losses]


@pytest.mark.parametrize("fault", [RuntimeError("out of memory"), KeyboardInterrupt()])
@pytest.mark.parametrize("at", [1, 3])
def test_a_pass_that_fails_and_is_made_again(tmp_path, fault, at):
    def fail(*_):
        raise fault

    def loop(run):
        model = tiny_gpt2(dropout=0.0)
        optimizer = adam(model)
        run.watch(model, optimizer)
        for number, batch in enumerate(batches(), start=1):
            if number == at:
                handle = model.transformer.h[1].mlp.register_forward_pre_hook(fail)
                with pytest.raises(type(fault)):
                    model(**batch)
                handle.remove()
            train(run, model, optimizer, [batch])

    first = at == 1 and isinstance(fault, RuntimeError)  # the proof fails, and is tried again
    check(loop, tmp_path, every=1, notes=["it is tried again"] if first else [])


def test_a_backward_pass_that_fails_and_is_made_again(tmp_path):
    def fail(gradient):
        raise RuntimeError("out of memory")

    def loop(run):
        model = tiny_gpt2(dropout=0.0)
        optimizer = adam(model)
        run.watch(model, optimizer)
        for batch in batches():
            logits = model(input_ids=batch["input_ids"]).logits
            logits.register_hook(fail)
            with pytest.raises(RuntimeError, match="memory"):
                logits.square().mean().backward()
            model.zero_grad()
            train(run, model, optimizer, [batch])

    watched = check(loop, tmp_path, layers=("weights.update_ratio",), every=1)
    kept = [rows[0].value for rows in rows_of(watched.path, "train.loss").values()]
    assert kept == [float(loss) for loss in watched.losses]


def test_frozen_parameters_stay_frozen_and_some_are_thawed_later(tmp_path):
    def loop(run):
        model = tiny_gpt2()
        frozen = [model.transformer.wte.weight, *model.transformer.h[0].parameters()]
        for parameter in frozen:
            parameter.requires_grad_(False)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        run.watch(model, optimizer)
        for at, batch in enumerate(batches()):
            if at == 2:
                for parameter in frozen:
                    parameter.requires_grad_(True)
            train(run, model, optimizer, [batch])

    watched = check(loop, tmp_path, every=1)
    read = rows_of(watched.path, "weights.update_ratio")
    layers = {step: {row.site.layer for row in rows} for step, rows in read.items()}
    assert layers[1] == layers[2] == {0, 2}
    assert layers[3] == layers[5] == {0, 1, 2}


def test_a_loss_that_is_changed_in_place_afterwards_is_kept_as_it_was(tmp_path):
    def loop(run):
        model = tiny_gpt2()
        optimizer = adam(model)
        run.watch(model, optimizer)
        for batch in batches():
            loss = model(**batch).loss
            run.loss(loss)
            loss.backward()
            with torch.no_grad():
                loss.mul_(100.0)
            optimizer.step()
            optimizer.zero_grad()

    watched = check(loop, tmp_path)
    kept = [rows[0].value for rows in rows_of(watched.path, "train.loss").values()]
    assert kept == [float(loss) for loss in watched.losses]
