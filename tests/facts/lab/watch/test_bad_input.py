"""Wrong arguments of a watch: a sentence in its notes, or the error where that is asked for."""

import math

import pytest
import torch
from torch import nn

import leadline
from leadline.errors import InputError, LeadlineError
from leadline.lab.watch.watch import watch
from tests.twin_runs import batches, rows_of, run_twice, train
from tests.watched import tiny_gpt2


def trained(folder, **wrong):
    """Train with a watch whose arguments are wrong; return it with the losses."""
    model = tiny_gpt2(dropout=0.0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    given = {"model": model, "optimizer": optimizer, "path": folder / "run.leadline"} | wrong
    first = [given.pop(name) for name in ("model", "optimizer", "path")]
    one = watch(*first, quiet=True, **given)
    losses = []
    for batch in batches(3):
        loss = model(**batch).loss
        losses.append(loss.item())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    one.close()
    return one, losses


OFF = {
    "every 0": ({"every": 0}, "every is 0; give a whole number of at least 1."),
    "every -3": ({"every": -3}, "every is -3; give a whole number of at least 1."),
    "every a text": ({"every": "a"}, "every is 'a'; give a whole number of at least 1."),
    "every a fraction": ({"every": 2.5}, "every is 2.5; give a whole number of at least 1."),
    "start negative": ({"start": -1}, "start is -1; give a whole number of at least 0."),
    "no module": ({"model": 3}, "The model is 3, not a torch module"),
    "a class": ({"model": nn.Linear}, "The class Linear was given as the model"),
    "no optimizer": ({"optimizer": 3}, "needs the optimizer whose steps it counts, and got 3"),
    "an empty list": ({"optimizer": []}, "the list is empty"),
    "a list of others": ({"optimizer": ["adam"]}, "got 'adam'"),
    "no such folder": ({"path": "/no/such/folder/run.leadline"}, "No such file or directory"),
    "no anatomy": ({"anatomy": 3}, "anatomy is 3; give what leadline.anatomy_of or leadline.dec"),
    "a path that is none": ({"path": 3}, "3"),
}


@pytest.mark.parametrize("name", OFF)
def test_what_cannot_be_watched_is_said_and_the_training_goes_on(tmp_path, name):
    wrong, sentence = OFF[name]
    _, losses = trained(tmp_path / "not", model=tiny_gpt2(), path=None)
    one, beside = trained(tmp_path, **wrong)
    assert beside == losses
    assert not one.active
    (note,) = one.notes
    assert sentence in note
    assert note.endswith("The run is not watched; training continues.")
    assert (one.step, one.warnings, one.should_stop) == (0, [], False)


@pytest.mark.parametrize("name", OFF)
def test_with_strict_the_error_is_raised(tmp_path, name):
    wrong, sentence = OFF[name]
    with pytest.raises(LeadlineError) as error:
        trained(tmp_path, strict=True, **wrong)
    assert sentence in str(error.value)
    assert torch.autograd.backward.__module__ == "torch.autograd"


LESS = {
    "an unknown probe": ({"probes": "nope"}, "No probe is called 'nope'"),
    "a probe with passes of its own": ({"probes": "jacobian"}, "runs passes of its own"),
    "an unknown sink": ({"sinks": "nope"}, "No sink is called 'nope'"),
    "a sink that is none": ({"sinks": [3]}, "Nothing goes to 3"),
}


@pytest.mark.parametrize("name", LESS)
def test_what_is_watched_with_less(tmp_path, name):
    wrong, sentence = LESS[name]
    one, _ = trained(tmp_path, every=1, **wrong)
    (note,) = one.notes
    assert sentence in note
    assert sorted(rows_of(one.path, "stream.norm")) == [1, 2, 3]


@pytest.mark.parametrize("probes", ["nope", "jacobian"])
def test_with_strict_probes_are_refused(tmp_path, probes):
    with pytest.raises(LeadlineError):
        trained(tmp_path, probes=probes, strict=True)


tokens = torch.zeros(2, 3, dtype=torch.long)
FIXED = {
    "a name that the model has not": ({"nonsense": tokens}, "could not be proved on", [2, 3]),
    "too many tensors": ((tokens,) * 50, "does not fit the model", [1, 2, 3]),
    # What a data loader gives: the second argument of GPT-2 is a cache of keys and values.
    "inputs and targets": ((tokens, tokens), "of a data loader's (inputs, targets)", [2, 3]),
}


@pytest.mark.parametrize("name", FIXED)
def test_a_fixed_batch_that_does_not_fit_is_named_and_the_loops_own_are_read(tmp_path, name):
    probe, sentence, steps = FIXED[name]
    one, losses = trained(tmp_path, every=1, probe=probe)
    assert not any(map(math.isnan, losses))
    (note,) = one.notes
    assert sentence in note
    assert "(probe=...)" in note
    assert sorted(rows_of(one.path, "stream.norm")) == steps


def test_with_strict_a_fixed_batch_is_refused(tmp_path):
    with pytest.raises(InputError, match="50 tensors"):
        trained(tmp_path, probe=(tokens,) * 50, strict=True)


def test_a_relative_path_is_that_of_the_folder_in_which_the_watch_began(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other").mkdir()
    model = tiny_gpt2(dropout=0.0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    with watch(model, optimizer, "run.leadline", every=2, snapshot=True, quiet=True) as one:
        for batch in batches(4):
            monkeypatch.chdir(tmp_path / "other")
            model(**batch).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        assert (tmp_path / "run.leadline.ring").exists()
        assert str(one.path) == "run.leadline"
        again = watch(model, optimizer, tmp_path / "run.leadline", quiet=True)
        assert "A watch that this process began before" in again.notes[0]
        again.close()
    assert one.notes == []
    assert [file.name for file in tmp_path.iterdir() if file.is_file()] == ["run.leadline"]
    assert sorted(rows_of(tmp_path / "run.leadline", "train.gradient_norm")) == [1, 2, 3, 4]


def test_an_optimizer_that_never_steps(tmp_path):
    other = torch.optim.SGD(tiny_gpt2(seed=1).parameters(), lr=1e-2)
    one, _ = trained(tmp_path, optimizer=other)
    assert one.step == 0
    assert one.notes == [
        "No step of the optimizer was seen, so there is nothing to show: is this the optimizer "
        "that the loop steps?"
    ]
    with leadline.Record.open(one.path) as record:
        assert len(record) == 0
        assert record.provenance["watch"]["closed"]


def test_the_watched_module_is_not_the_one_that_is_called(tmp_path):
    one, _ = trained(tmp_path, every=1, model=tiny_gpt2(seed=1))
    assert "is this the module that the loop calls?" in one.notes[0]
    assert sorted(rows_of(one.path, "train.loss")) == [1, 2, 3]


class Odd(nn.Module):
    """No stream runs through it: every block changes the width."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(64, 8)
        self.blocks = nn.ModuleList([nn.Linear(8, 16), nn.Linear(16, 32), nn.Linear(32, 64)])

    def forward(self, input_ids, labels):
        x = self.embed(input_ids)
        for block in self.blocks:
            x = block(x).tanh()
        loss = nn.functional.cross_entropy(x.flatten(0, 1), labels.flatten())
        return type("Output", (), {"loss": loss, "logits": x})()


def test_of_a_model_without_a_stream_gradients_and_weights_are_read_by_its_blocks(tmp_path):
    def loop(run):
        torch.manual_seed(0)
        model = Odd()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        run.watch(model, optimizer)
        train(run, model, optimizer, batches())

    plain, watched = run_twice(loop, tmp_path, every=1)
    assert watched.differences(plain) == []
    (note,) = watched.watcher.notes
    assert "The anatomy of Odd could not be proved" in note
    assert "tried again" not in note
    assert rows_of(watched.path, "stream.norm") == {}
    for quantity in ("gradient.parameters", "weights.update_ratio", "train.loss", "output.log_z"):
        assert sorted(rows_of(watched.path, quantity)) == [1, 2, 3, 4, 5], quantity
    assert sorted(rows_of(watched.path, "optimizer.surprise")) == [2, 3, 4, 5]
    sites = {str(row.site) for row in rows_of(watched.path, "weights.update_ratio")[1]}
    assert {row.site.layer for row in rows_of(watched.path, "weights.update_ratio")[1]} == {
        0,
        1,
        2,
        3,
    }
    assert len(sites) == 4


def test_a_wrong_anatomy_is_refused_like_none(tmp_path):
    wrong = leadline.declare(blocks="transformer.h", writes=["ln_1", "mlp"])
    one, _ = trained(tmp_path, every=1, anatomy=wrong)
    assert "could not be proved" in one.notes[0]
    assert sorted(rows_of(one.path, "weights.update_ratio")) == [1, 2, 3]


def test_a_model_without_parameters_and_an_optimizer_of_another(tmp_path):
    model = nn.Sequential(nn.Identity())
    weight = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    with watch(model, optimizer, tmp_path / "a", every=1, quiet=True) as one:
        for _ in range(2):
            model(weight).sum().backward()
            optimizer.step()
    assert one.step == 2
    assert sorted(rows_of(one.path, "train.loss")) == [1, 2]


def test_errors_are_those_of_the_input():
    with pytest.raises(InputError):
        watch(tiny_gpt2(), [], None, strict=True, quiet=True)
