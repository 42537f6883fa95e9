"""The numbers of a watched run are those that another route gives."""

import copy
import math

import pytest
import torch
from torch import nn

import leadline
from leadline.instruments.passes.probes.gradient import PARAMETERS
from leadline.lab.watch.sampling.outputs import LOGIT_TOKENS
from leadline.lab.watch.watch import watch
from leadline.record.rows.site import OUTSIDE, RUN
from tests.twin_runs import batches
from tests.watched import tiny_gpt2

FROM_MEASURE = (
    "stream.norm",
    "stream.largest",
    "stream.float16_room",
    "update.norm",
    "update.ratio",
    "tokens.cosine",
    "gradient.stream",
)


def still(**options):
    """A model that drops nothing, in training mode."""
    return tiny_gpt2(dropout=0.0, **options).train()


def sampled(model, optimizer, passes, *, note=None, **options):
    """Watch every update in memory; `passes` are called one after the other, with the optimizer."""
    with watch(model, optimizer, None, every=1, quiet=True, **options) as one:
        for each in passes:
            each(model, optimizer)
        assert [note in sentence for sentence in one.notes] == ([] if note is None else [True])
        return one.record.select()


def update(batch, clip=None):
    """One plain update."""

    def run(model, optimizer):
        model(**batch).loss.backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        optimizer.zero_grad()

    return run


def values(rows, quantity, step=1):
    """The numbers of a quantity at a step, by (stack, layer, point)."""
    found = {
        (row.site.stack, row.site.layer, row.site.point): row.value
        for row in rows
        if row.quantity == quantity and row.step == step
    }
    assert found, quantity
    return found


def of_run(rows, quantity, step=1):
    (value,) = [r.value for r in rows if r.quantity == quantity and r.step == step]
    return value


def measured(model, inputs):
    return leadline.measure(
        model, inputs, probes="stream,extremes,update,tokens,gradient", loss="next-token"
    )


def headlines(record, quantity):
    """What a measurement says about a quantity, in the same form."""
    definition = record.quantities[quantity]
    return {
        (row.site.stack, row.site.layer, row.site.point): row.value
        for row in record.select(quantity, statistic=definition.headline)
        if row.site.head is None
        and not (definition.lives_on == "stream" and row.site.sublayer is not None)
    }


def adam(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-2, betas=(0.8, 0.9), weight_decay=0.1)


# --- layers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [1, 3])
def test_layers_are_what_a_measurement_of_the_same_weights_says(step):
    rounds = batches(step, examples=3)
    model = still()
    optimizer = adam(model)
    states = []
    model.register_forward_pre_hook(
        lambda m, _: states.append(copy.deepcopy(m.state_dict())) if m.training else None
    )
    rows = sampled(model, optimizer, [update(batch) for batch in rounds])
    before = still()
    before.load_state_dict(states[-1])
    record = measured(before, rounds[-1]["input_ids"])
    for quantity in FROM_MEASURE:
        expected = headlines(record, quantity)
        assert values(rows, quantity, step) == pytest.approx(expected, rel=2e-5), quantity


def test_padding_counts_nowhere():
    (batch,) = batches(1, examples=3)
    mask = torch.ones_like(batch["input_ids"])
    mask[0, 5:] = mask[2, 9:] = 0
    batch = {
        **batch,
        "attention_mask": mask,
        "labels": batch["labels"].masked_fill(mask == 0, -100),
    }
    model = still()
    inputs = {"input_ids": batch["input_ids"], "attention_mask": mask}
    record = measured(copy.deepcopy(model), inputs)
    rows = sampled(model, adam(model), [update(batch)])
    for quantity in FROM_MEASURE:
        expected = headlines(record, quantity)
        assert values(rows, quantity) == pytest.approx(expected, rel=2e-5), quantity


def test_what_bfloat16_loses_is_that_of_the_first_example():
    (batch,) = batches(1, examples=3)
    model = still()
    record = leadline.measure(copy.deepcopy(model), batch["input_ids"][:1], probes="update")
    rows = sampled(model, adam(model), [update(batch)])
    expected = headlines(record, "update.bf16_loss")
    assert values(rows, "update.bf16_loss") == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("accumulated", [1, 3])
def test_the_gradient_at_the_stream_is_that_of_the_first_micro_batch_before_clipping(accumulated):
    model = still()
    rounds = batches(accumulated)
    caught = {}

    def catch(layer):
        def hook(module, args, output):
            if layer not in caught and torch.is_grad_enabled():
                caught[layer] = None
                first = output if isinstance(output, torch.Tensor) else output[0]
                first.register_hook(lambda g: caught.__setitem__(layer, g.double().norm().item()))

        return hook

    def accumulate(model, optimizer):
        for batch in rounds:
            (model(**batch).loss / accumulated).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()

    optimizer = adam(model)
    with watch(model, optimizer, None, quiet=True) as one:
        # The proof of the anatomy is over when a block of the loop's own pass is called.
        model(input_ids=rounds[0]["input_ids"][:1])
        one._course._layers.give_up()
        for layer, block in enumerate(model.transformer.h, start=1):
            block.register_forward_hook(catch(layer))
        accumulate(model, optimizer)
        rows = one.record.select()
    found = {layer: v for (_, layer, _), v in values(rows, "gradient.stream").items() if layer}
    assert found == pytest.approx(caught, rel=1e-6)


@pytest.mark.parametrize("scale", [1.0, 2.0**12])
def test_a_loss_scale_is_taken_out_of_every_number(scale):
    (batch,) = batches(1)

    def scaled(model, optimizer):
        scaler = torch.amp.GradScaler("cpu", init_scale=scale)
        scaler.scale(model(**batch).loss).backward()
        scaler.step(optimizer)
        scaler.update()

    model = still()
    plain = sampled(model, adam(model), [update(batch)])
    for options in ({}, {"fused": True}):
        model = still()
        optimizer = torch.optim.AdamW(
            model.parameters(), lr=1e-2, betas=(0.8, 0.9), weight_decay=0.1, **options
        )
        rows = sampled(model, optimizer, [scaled])
        for quantity in ("gradient.stream", "gradient.parameters", "weights.update_ratio"):
            expected = values(plain, quantity)
            assert values(rows, quantity) == pytest.approx(expected, rel=1e-3), quantity
        for quantity in ("train.loss", "train.gradient_norm", "train.clipping", "output.log_z"):
            assert of_run(rows, quantity) == pytest.approx(of_run(plain, quantity), rel=1e-3)


def test_a_fixed_batch_is_measured_after_the_update():
    probe = batches(1, seed=9)[0]["input_ids"]
    model = still()
    rows = sampled(model, adam(model), [update(batches(1)[0])], probe=probe)
    record = measured(model, probe)
    for quantity in FROM_MEASURE:
        expected = headlines(record, quantity)
        assert values(rows, quantity) == pytest.approx(expected, rel=2e-5), quantity


# --- gradients, weights, optimizer ---------------------------------------------------------------


def group_of(name):
    """The write that a parameter of GPT-2 serves, by its name alone."""
    parts = name.split(".")
    if parts[:2] != ["transformer", "h"]:
        return (OUTSIDE, 0, name)
    role = "attention" if parts[3] in ("attn", "ln_1") else "mlp"
    return ("decoder", int(parts[2]) + 1, role)


def by_group(model, number):
    """Sums of `number(name, parameter)` over the parameters of each write."""
    sums = {}
    for name, parameter in model.named_parameters():
        sums[group_of(name)] = sums.get(group_of(name), 0.0) + number(name, parameter)
    return sums


def squares(tensor):
    return tensor.double().square().sum().item()


@pytest.mark.parametrize("clip", [None, 0.05, 1e6])
def test_gradients_are_read_before_clipping(clip):
    (batch,) = batches(1)
    twin = still()
    twin(**batch).loss.backward()
    expected = {k: math.sqrt(v) for k, v in by_group(twin, lambda _, p: squares(p.grad)).items()}
    norm = math.sqrt(sum(v * v for v in expected.values()))
    model = still()
    rows = sampled(model, adam(model), [update(batch, clip)])
    assert values(rows, PARAMETERS.name) == pytest.approx(expected, rel=1e-4)
    assert of_run(rows, "train.gradient_norm") == pytest.approx(norm, rel=1e-4)
    factor = min(1.0, (clip or math.inf) / (norm + 1e-6))
    assert of_run(rows, "train.clipping") == pytest.approx(factor, rel=1e-4)


def test_what_is_no_clipping_by_one_factor_is_not_taken_for_it():
    (batch,) = batches(1)

    def by_value(model, optimizer):
        model(**batch).loss.backward()
        nn.utils.clip_grad_value_(model.parameters(), 1e-3)
        optimizer.step()

    model = still()
    rows = sampled(model, adam(model), [by_value], note="clipping by value")
    expected = by_group(model, lambda _, p: squares(p.grad))
    assert values(rows, PARAMETERS.name) == pytest.approx(
        {key: math.sqrt(value) for key, value in expected.items()}, rel=1e-5
    )
    assert not [row for row in rows if row.quantity == "train.clipping"]


def test_norms_of_gradients_in_half_precision_are_not_rounded():
    (batch,) = batches(1)
    model = still().to(torch.bfloat16)
    rows = sampled(model, torch.optim.SGD(model.parameters(), lr=1e-3), [keep_gradients(batch)])
    expected = by_group(model, lambda _, p: squares(p.grad))
    assert values(rows, PARAMETERS.name) == pytest.approx(
        {key: math.sqrt(value) for key, value in expected.items()}, rel=1e-5
    )


def keep_gradients(batch):
    def run(model, optimizer):
        model(**batch).loss.backward()
        optimizer.step()

    return run


def test_updates_of_small_tensors_are_read_to_the_last_number():
    (batch,) = batches(1)
    model = still()
    before = {name: one.detach().clone() for name, one in model.named_parameters()}
    rows = sampled(model, adam(model), [update(batch)])
    changes = by_group(model, lambda name, p: squares(p.detach() - before[name]))
    weights = by_group(model, lambda name, _: squares(before[name]))
    expected = {key: math.sqrt(changes[key] / weights[key]) for key in changes if weights[key]}
    assert values(rows, "weights.update_ratio") == pytest.approx(expected, rel=1e-5)


def test_surprise_follows_from_the_gradients_of_all_updates_before():
    rounds = batches(4)
    model = still()
    optimizer = adam(model)
    history = []
    optimizer.register_step_pre_hook(
        lambda *_: history.append({n: p.grad.double().clone() for n, p in model.named_parameters()})
    )
    rows = sampled(model, optimizer, [update(batch) for batch in rounds])
    beta = 0.9
    for step in (2, 4):
        sums, counts = {}, {}
        for name, gradient in history[step - 1].items():
            v = sum(
                (1 - beta) * beta ** (step - 2 - at) * history[at][name].square()
                for at in range(step - 1)
            ) / (1 - beta ** (step - 1))
            seen = v > 0
            key = group_of(name)
            ratios = gradient[seen].square() / v[seen]
            sums[key] = sums.get(key, 0.0) + ratios.sum().item()
            counts[key] = counts.get(key, 0) + int(seen.sum())
        expected = {key: math.sqrt(sums[key] / counts[key]) for key in sums if counts[key]}
        assert values(rows, "optimizer.surprise", step) == pytest.approx(expected, rel=1e-3)
    assert not [r for r in rows if r.quantity == "optimizer.surprise" and r.step == 1]


def test_an_optimizer_without_second_moments_has_no_surprise():
    model = still()
    stepper = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
    rows = sampled(model, stepper, [update(batch) for batch in batches(3)])
    assert "optimizer.surprise" not in {row.quantity for row in rows}


# --- the run -------------------------------------------------------------------------------------


def test_the_loss_of_an_update_is_the_sum_of_its_micro_batches():
    rounds = batches(3)
    losses = []

    def accumulate(model, optimizer):
        for batch in rounds:
            loss = model(**batch).loss / 3
            losses.append(loss.item())
            loss.backward()
        optimizer.step()

    model = still()
    rows = sampled(model, adam(model), [accumulate])
    assert of_run(rows, "train.loss") == pytest.approx(sum(losses), rel=1e-6)


def test_a_loss_that_the_loop_names_stands_in_place_of_what_backward_gets():
    (batch,) = batches(1)
    model = still()
    optimizer = adam(model)
    with watch(model, optimizer, None, quiet=True) as one:
        loss = model(**batch).loss
        one.loss(loss)
        one.loss(2.0)
        (loss * 1000.0).backward()
        optimizer.step()
        assert of_run(one.record.select(), "train.loss") == pytest.approx(loss.item() + 2.0)


def test_the_rate_is_that_of_the_update():
    model = still()
    optimizer = adam(model)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5**step)

    def scheduled(model, optimizer):
        update(batches(1)[0])(model, optimizer)
        schedule.step()

    rows = sampled(model, optimizer, [scheduled] * 3)
    assert [of_run(rows, "train.rate", step) for step in (1, 2, 3)] == [1e-2, 5e-3, 2.5e-3]


@pytest.mark.parametrize("examples", [1, 12])
def test_log_z_is_the_mean_over_evenly_spaced_tokens(examples):
    (batch,) = batches(1, examples=examples)
    model = still()
    with torch.no_grad():
        logits = model(input_ids=batch["input_ids"]).logits.double().flatten(0, 1)
    spacing = max(1, len(logits) // LOGIT_TOKENS)
    expected = logits[::spacing].exp().sum(-1).log().mean().item()
    rows = sampled(model, adam(model), [update(batch)])
    assert of_run(rows, "output.log_z") == pytest.approx(expected, rel=1e-6)
    assert all(row.site == RUN for row in rows if row.quantity.startswith(("train", "output")))
