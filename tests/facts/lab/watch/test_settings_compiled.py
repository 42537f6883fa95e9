"""A watched run under torch.compile computes what it computes alone, with the same graphs."""

import pytest
import torch
from torch import nn
from torch._dynamo.backends.registry import lookup_backend
from torch.nn import functional as F

from leadline.lab.watch.watch import watch
from tests.plain_gpt import PlainGPT
from tests.twin_runs import UPDATES, batches, rows_of, run_twice, sampled_steps

# Dynamo looks at attributes that warn, and calls parts of torch that are old.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
SCALE = 256.0
RANDOM = "layers are read of random tokens"


class LossModel(PlainGPT):
    """Returns its loss, or the logits; it drops values."""

    def __init__(self, loss):
        super().__init__(["none", "none"])
        self.loss = loss
        self.drop = nn.Dropout(0.1)

    def forward(self, idx):
        x = self.drop(self.wte(idx))
        for block in self.h:
            x = block(x)
        logits = self.head(self.ln(x))
        return F.cross_entropy(logits.flatten(0, 1), idx.flatten()) if self.loss else logits


class Graphs:
    """A backend that counts what it is asked to compile."""

    def __init__(self, backend):
        self.count = 0
        self._backend = lookup_backend(backend)

    def __call__(self, graph, inputs):
        self.count += 1
        return self._backend(graph, inputs)


def check(
    tmp_path, compiled, *, watched="model", late=False, backend="eager", loss=True, every=2,
    notes=(), gradients=True, graphs=0,
):  # fmt: skip
    """Run a loop alone and watched; `compiled(model, backend)` returns what the loop calls.

    The line of the watch stands behind it, or before it (`late`); `graphs` more than without a
    watch may be compiled.
    """
    counts = []

    def loop(run):
        torch._dynamo.reset()
        torch.manual_seed(1)
        model = LossModel(loss).train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        counting = Graphs(backend)
        if late:
            run.watch(model, optimizer)
        called = compiled(model, counting)
        if not late:
            run.watch(model, optimizer, watched=called if watched == "compiled" else model)
        for batch in batches():
            tokens = batch["input_ids"]
            value = called(tokens)
            value = value if loss else F.cross_entropy(value.flatten(0, 1), tokens.flatten())
            run.loss(value)
            if value.grad_fn is not None:  # else the compiled function has called it
                value.backward()
            optimizer.step()
            optimizer.zero_grad()
        counts.append(counting.count)

    alone, beside = run_twice(loop, tmp_path, every=every)
    assert beside.differences(alone) == []
    assert 0 < counts[0] <= counts[1] <= counts[0] + graphs
    for sentence, expected in zip(beside.watcher.notes, notes, strict=True):
        assert expected in sentence
    for quantity in ["stream.norm", "weights.update_ratio", *["gradient.stream"] * gradients]:
        assert sorted(rows_of(beside.path, quantity)) == sampled_steps(UPDATES, every), quantity
    return beside


def whole(model, backend):
    return torch.compile(model, backend=backend)


def whole_graph(model, backend):
    return torch.compile(model, backend=backend, fullgraph=True)


def in_place(model, backend):
    model.compile(backend=backend, fullgraph=True)
    return model


def by_forward(model, backend):
    model.forward = torch.compile(model.forward, backend=backend, fullgraph=True)
    return model


def block_by_block(model, backend):
    for block in model.h:
        block.compile(backend=backend, fullgraph=True)
    return model


def blocks_exchanged(model, backend):
    for at, block in enumerate(model.h):
        model.h[at] = torch.compile(block, backend=backend, fullgraph=True)
    return model


@pytest.mark.parametrize("compiled", [whole, whole_graph])
@pytest.mark.parametrize("every", [1, 2])
def test_the_compiled_module_is_watched(tmp_path, compiled, every):
    check(tmp_path, compiled, watched="compiled", every=every)


def test_passes_that_autograd_compiles_ahead_of_time(tmp_path):
    check(tmp_path, whole, watched="compiled", backend="aot_eager")


def test_a_compiled_module_that_returns_logits_has_no_gradient_at_the_stream(tmp_path):
    notes = ["returns no loss"]
    check(tmp_path, whole, watched="compiled", loss=False, notes=notes, gradients=False)


def sampled_gradients(tmp_path, compiled, passes):
    """The gradient at the stream of an update that is made of these passes, and the notes."""
    torch._dynamo.reset()
    torch.manual_seed(1)
    model = LossModel(True).eval()
    # A graph that was made ahead of time can be gone through once.
    backend = "eager" if passes is twice_through_one_graph else "aot_eager"
    called = compiled(model, backend) if compiled else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    with watch(called if compiled is whole else model, optimizer, every=1, quiet=True) as one:
        passes(called, batches(1, examples=4)[0]["input_ids"])
        if passes is scaled_in_parts:
            for parameter in model.parameters():
                if parameter.grad is not None:
                    parameter.grad /= SCALE
        optimizer.step()
        rows = one.record.select("gradient.stream") if "gradient.stream" in one.record else []
        return {row.site: row.value for row in rows}, one.notes


def in_parts(called, tokens):
    for part in tokens.chunk(2):
        (called(part) / -2).backward()


def scaled_in_parts(called, tokens):
    scaler = torch.amp.GradScaler("cpu", init_scale=SCALE)
    for part in tokens.chunk(2):
        (scaler.scale(0.1 * called(part)) / 2).backward()


def twice_through_one_graph(called, tokens):
    loss = called(tokens)
    (0.1 * loss).backward(retain_graph=True)
    torch.autograd.grad(loss, [loss], retain_graph=True)
    (0.2 * loss.square()).backward()


@pytest.mark.parametrize("passes", [in_parts, scaled_in_parts, twice_through_one_graph])
@pytest.mark.parametrize("compiled", [whole, in_place, block_by_block])
def test_the_gradient_at_the_stream_is_that_of_what_the_loop_makes_of_the_loss(
    tmp_path, compiled, passes
):
    read, notes = sampled_gradients(tmp_path, compiled, passes)
    expected, _ = sampled_gradients(tmp_path, None, passes)
    assert len(expected) == 3
    assert read == pytest.approx(expected, rel=1e-4)
    assert notes == []


def test_what_is_not_trained_by_the_returned_loss_has_no_gradient_at_the_stream(tmp_path):
    class Both(LossModel):
        def forward(self, idx):
            logits = super().forward(idx)
            return {"loss": logits.mean(), "logits": logits}

    def passes(called, tokens):
        logits = called(tokens)["logits"]
        F.cross_entropy(logits.flatten(0, 1), tokens.flatten()).backward()

    torch._dynamo.reset()
    model = Both(False)
    called = whole(model, "aot_eager")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    with watch(called, optimizer, every=1, quiet=True) as one:
        passes(called, batches(1)[0]["input_ids"])
        optimizer.step()
        assert "gradient.stream" not in [row.quantity for row in one.record.select()]
    assert ["something else than the loss that it returns" in note for note in one.notes] == [True]


@pytest.mark.parametrize("late", [False, True])
def test_the_inner_module_is_watched_and_random_tokens_are_measured(tmp_path, late):
    beside = check(tmp_path, whole_graph, late=late, notes=[RANDOM])
    # Who has a trainer compile the model can give no other module, but a batch.
    assert "LeadlineCallback(path, probe=batch)" in beside.watcher.notes[0]


@pytest.mark.parametrize("compiled", [in_place, by_forward, block_by_block, blocks_exchanged])
def test_models_and_blocks_that_are_compiled_in_place(tmp_path, compiled):
    check(tmp_path, compiled)


@pytest.mark.parametrize("compiled", [by_forward, block_by_block, blocks_exchanged])
def test_models_and_blocks_that_are_compiled_behind_the_line(tmp_path, compiled):
    check(tmp_path, compiled, late=True)


def test_a_model_that_is_compiled_in_place_behind_the_line_is_read_from_the_second_sample(tmp_path):
    with pytest.raises(AssertionError, match=r"stream\.norm"):
        check(tmp_path, in_place, late=True)
    assert sorted(rows_of(tmp_path / "run.leadline", "stream.norm")) == [2, 4]


def test_a_compiled_function_around_passes_in_both_directions(tmp_path):
    def compiled(model, backend):
        def update(tokens):
            loss = model(tokens)
            loss.backward()
            return loss.detach()

        return torch.compile(update, backend=backend)

    check(tmp_path, compiled, notes=[RANDOM], graphs=1)


def test_a_compiled_step_is_not_counted_and_not_changed(tmp_path):
    def loop(run):
        torch._dynamo.reset()
        torch.manual_seed(1)
        model = LossModel(True).train()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
        run.watch(model, optimizer, follow=False)
        step = torch.compile(optimizer.step, backend="eager")
        for batch in batches():
            loss = model(batch["input_ids"])
            run.loss(loss)
            loss.backward()
            step()
            optimizer.zero_grad()

    plain, watched = run_twice(loop, tmp_path)
    assert watched.differences(plain) == []
    assert watched.watcher.step == 0
    assert "No step of the optimizer was seen" in watched.watcher.notes[0]


@pytest.mark.inductor
@pytest.mark.parametrize("compiled", [whole, in_place, block_by_block])
def test_inductor(tmp_path, compiled):
    watched = "compiled" if compiled is whole else "model"
    check(tmp_path, compiled, watched=watched, backend="inductor")
