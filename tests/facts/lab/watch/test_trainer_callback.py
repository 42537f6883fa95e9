"""LeadlineCallback in the Trainer of transformers: right numbers, an unchanged training, one record."""

import logging

import pytest
import torch

import leadline
from leadline.reading.watch.history import History
from leadline.record import Finding, Record
from leadline.record.run.watching import attempts_of
from tests.watched import Trace, assert_same, examples, run_python, steps_of, tiny_gpt2

transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.filterwarnings("ignore:.*pin_memory.*:UserWarning")


def trainer(folder, *, callbacks=(), model=None, updates=6, data=16, **arguments):
    """A Trainer that does nothing but to train."""
    args = transformers.TrainingArguments(
        output_dir=str(folder),
        max_steps=updates,
        per_device_train_batch_size=2,
        learning_rate=1e-3,
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
        **({"save_strategy": "no", "logging_strategy": "no"} | arguments),
    )
    return transformers.Trainer(
        model=tiny_gpt2() if model is None else model,
        args=args,
        train_dataset=examples(data),
        eval_dataset=examples(4, seed=2),
        callbacks=list(callbacks),
    )


def trained(folder, path=None, *, every=2, **arguments):
    """Train, watched where a path is given; return what was computed, and the callback."""
    callback = None if path is None else leadline.LeadlineCallback(path, every, quiet=True)
    one = trainer(folder, callbacks=[] if callback is None else [callback], **arguments)
    with Trace(one.model) as trace:
        one.train()
    return trace, callback


SETTINGS = {
    "plain": {},
    "accumulation": {"gradient_accumulation_steps": 2},
    "uneven accumulation": {"gradient_accumulation_steps": 3},
    "clipping": {"max_grad_norm": 0.1},
    "no clipping": {"max_grad_norm": 0.0},
    "checkpointing": {
        "gradient_checkpointing": True,
        "gradient_checkpointing_kwargs": {"use_reentrant": False},
    },
    "reentrant checkpointing": {
        "gradient_checkpointing": True,
        "gradient_checkpointing_kwargs": {"use_reentrant": True},
    },
    "bf16": {"bf16": True},
    "evaluation in between": {"eval_strategy": "steps", "eval_steps": 1},
    "evaluation first": {"eval_strategy": "steps", "eval_steps": 3, "eval_on_start": True},
    "sgd": {"optim": "sgd"},
    "adafactor": {"optim": "adafactor"},
}


FEW_SETTINGS = ("accumulation", "clipping", "checkpointing", "bf16", "evaluation in between")
"""What is tried at every run of the tests; the others are slow."""


@pytest.mark.parametrize(
    "setting",
    [
        pytest.param(setting, marks=[] if setting in FEW_SETTINGS else [pytest.mark.slow])
        for setting in SETTINGS
    ],
)
def test_a_watched_training_is_the_same_bit_for_bit(tmp_path, setting):
    path = tmp_path / "run.leadline"
    alone, _ = trained(tmp_path, **SETTINGS[setting])
    watched, callback = trained(tmp_path, path, **SETTINGS[setting])
    assert_same(alone, watched)
    assert callback.notes == []
    assert steps_of(path, "train.loss") == [1, 2, 3, 4, 5, 6]
    for quantity in ("stream.norm", "update.ratio", "gradient.stream", "weights.update_ratio"):
        assert steps_of(path, quantity) == [1, 2, 4, 6], quantity


def test_the_loss_is_that_of_the_update(tmp_path):
    path = tmp_path / "run.leadline"
    trace, _ = trained(tmp_path, path, gradient_accumulation_steps=2)
    with Record.open(path) as record:
        losses = History.of(record).of_run("train.loss").values.tolist()
    # The Trainer divides every loss by the number of micro-batches before backward.
    halves = torch.stack(trace.losses).double().view(6, 2).sum(1)
    assert 3.0 < halves[0] < 5.0  # about ln 64
    assert losses == pytest.approx(halves.tolist(), rel=1e-6)


def test_clipping_is_told_and_gradients_are_those_before_it(tmp_path):
    clipped, free = tmp_path / "clipped.leadline", tmp_path / "free.leadline"
    trained(tmp_path, clipped, max_grad_norm=0.1, updates=1)
    trained(tmp_path, free, max_grad_norm=0.0, updates=1)

    def first(path, quantity):
        with Record.open(path) as record:
            return record.select(quantity)[0].value

    norm = first(free, "train.gradient_norm")
    assert norm > 0.2
    assert first(clipped, "train.gradient_norm") == pytest.approx(norm, rel=1e-4)
    assert first(clipped, "train.clipping") == pytest.approx(0.1 / norm, rel=1e-3)
    assert first(free, "train.clipping") == 1.0


def test_a_resumed_training_goes_on_in_the_same_record(tmp_path):
    path = tmp_path / "run.leadline"
    saving = {"save_strategy": "steps", "save_steps": 3}
    trained(tmp_path / "out", path, updates=3, **saving)
    callback = leadline.LeadlineCallback(path, 2, quiet=True)
    again = trainer(tmp_path / "out", callbacks=[callback], updates=6, **saving)
    again.train(resume_from_checkpoint=True)
    assert steps_of(path, "train.loss") == [1, 2, 3, 4, 5, 6]
    assert steps_of(path, "stream.norm") == [1, 2, 4, 6]
    with Record.open(path) as record:
        assert [(one.run, one.first) for one in attempts_of(record)] == [("", 1), ("", 4)]


def test_a_resumed_training_computes_and_records_what_an_uninterrupted_one_does(tmp_path):
    """A constant rate, so that the end of the run does not change its beginning."""
    saving = {"save_strategy": "steps", "save_steps": 3, "lr_scheduler_type": "constant"}
    whole, parts = tmp_path / "whole.leadline", tmp_path / "parts.leadline"
    trained(tmp_path / "a", whole, updates=6, **saving)
    trained(tmp_path / "b", parts, updates=3, **saving)
    callback = leadline.LeadlineCallback(parts, 2, quiet=True)
    trainer(tmp_path / "b", callbacks=[callback], updates=6, **saving).train(
        resume_from_checkpoint=True
    )

    def rows(path):
        with Record.open(path) as record:
            return {
                (one.quantity, one.statistic, one.site, one.step): one.value
                for one in record.select()
            }

    assert rows(parts) == rows(whole)


def test_a_training_that_goes_back_keeps_what_it_does_again_apart(tmp_path):
    path = tmp_path / "run.leadline"
    saving = {"save_strategy": "steps", "save_steps": 2}
    trained(tmp_path / "out", path, updates=5, **saving)
    callback = leadline.LeadlineCallback(path, 2, quiet=True)
    again = trainer(tmp_path / "out", callbacks=[callback], updates=6, **saving)
    again.train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-2"))
    with Record.open(path) as record:
        first, second = attempts_of(record)
        assert (first.first, second.first) == (1, 3)
    assert steps_of(path, "train.loss", run=first.run) == [1, 2, 3, 4, 5]
    assert steps_of(path, "train.loss", run=second.run) == [3, 4, 5, 6]


class Explosion(transformers.TrainerCallback):
    """Puts a NaN into the weights before one update, so that the first alarm rings."""

    def __init__(self, at):
        self.at = at

    def on_step_begin(self, args, state, control, model=None, **given):
        if state.global_step + 1 == self.at:
            with torch.no_grad():
                model.transformer.h[1].mlp.c_fc.weight[0, 0] = float("nan")


@pytest.mark.parametrize(("stop", "updates"), [(True, 4), (False, 6)])
def test_a_serious_warning_stops_the_training_if_that_is_asked(tmp_path, stop, updates):
    path = tmp_path / "run.leadline"
    heard = []
    callback = leadline.LeadlineCallback(path, 2, stop=stop, on_warning=heard.append, quiet=True)
    one = trainer(tmp_path, callbacks=[Explosion(4), callback])
    one.train()
    assert one.state.global_step == updates
    assert all(isinstance(finding, Finding) for finding in heard)
    assert heard[0].code == "G01"
    assert callback.warnings[0].details["step"] == 4
    with Record.open(path) as record:
        assert [finding.code for finding in record.findings][:1] == ["G01"]


class Broken(Exception):
    """What ends a training."""


class Break(transformers.TrainerCallback):
    def on_step_end(self, args, state, control, **given):
        if state.global_step == 3:
            raise Broken


def test_an_exception_passes_and_everything_up_to_it_can_be_read(tmp_path):
    path = tmp_path / "run.leadline"
    with leadline.LeadlineCallback(path, 2, quiet=True) as callback, pytest.raises(Broken):
        trainer(tmp_path, callbacks=[callback, Break()]).train()
    assert steps_of(path, "train.loss") == [1, 2, 3]
    assert steps_of(path, "stream.norm") == [1, 2]
    with Record.open(path) as record:
        assert record.provenance["watch"]["closed"]


def test_after_an_exception_the_same_file_can_be_watched_again(tmp_path):
    """As when a cell of a notebook is run a second time."""
    path = tmp_path / "run.leadline"
    first = leadline.LeadlineCallback(path, 2, quiet=True)
    with pytest.raises(Broken):
        trainer(tmp_path, callbacks=[first, Break()]).train()
    _, second = trained(tmp_path, path)
    assert not first.watch.active
    assert [note for note in second.notes if "begins at step 1" not in note] == []
    with Record.open(path) as record:
        assert [one.first for one in attempts_of(record)] == [1, 1]


def test_one_callback_watches_one_training_after_the_other(tmp_path):
    callback = leadline.LeadlineCallback(tmp_path / "run.leadline", 2, quiet=True)
    one = trainer(tmp_path, callbacks=[callback], updates=2)
    one.train()
    one.train()
    with Record.open(callback.path) as record:
        assert [attempt.first for attempt in attempts_of(record)] == [1, 1]


def test_snapshots_name_the_batches(tmp_path):
    callback = leadline.LeadlineCallback(tmp_path / "run.leadline", 2, snapshot=True, quiet=True)
    one = trainer(
        tmp_path,
        callbacks=[Explosion(4), callback],
        data=12,
        gradient_accumulation_steps=2,
    )
    one.train()
    with Record.open(callback.path) as record:
        snapshots = record.provenance["watch"]["snapshots"]
    # Six batches of two, two of them an update, so three updates an epoch.
    assert snapshots[0]["batches"] == {
        "1": "epoch 0, batches 0 to 1",
        "2": "epoch 0, batches 2 to 3",
        "3": "epoch 0, batches 4 to 5",
        "4": "epoch 1, batches 0 to 1",
    }


def test_a_part_of_the_model_is_watched_if_it_is_named(tmp_path):
    callback = leadline.LeadlineCallback(
        tmp_path / "run.leadline", 2, module="transformer", quiet=True
    )
    trainer(tmp_path, callbacks=[callback]).train()
    assert callback.notes == []
    with Record.open(callback.path) as record:
        assert record.provenance["model"]["class"] == "GPT2Model"
    assert steps_of(callback.path, "stream.norm") == [1, 2, 4, 6]


@pytest.mark.parametrize(
    ("options", "part"),
    [({"module": "nowhere"}, "nowhere"), ({"every": 0}, "every")],
)
def test_wrong_options_are_a_sentence_and_the_training_goes_on(tmp_path, caplog, options, part):
    callback = leadline.LeadlineCallback(tmp_path / "run.leadline", stop=True, **options)
    one = trainer(tmp_path, callbacks=[callback], updates=2)
    with caplog.at_level(logging.WARNING, "leadline.watch"):
        one.train()
    assert one.state.global_step == 2
    assert part in caplog.text


def test_adapters_are_watched_in_their_base(tmp_path):
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(target_modules=["c_attn"], fan_in_fan_out=True)

    def adapted():
        model = tiny_gpt2()
        return peft.get_peft_model(model, config)

    path = tmp_path / "run.leadline"
    alone, _ = trained(tmp_path, model=adapted())
    watched, callback = trained(tmp_path, path, model=adapted())
    assert_same(alone, watched)
    assert callback.notes == []
    assert steps_of(path, "stream.norm") == [1, 2, 4, 6]


TWO_PROCESSES = """
import sys
import torch
from tests.facts.lab.watch.test_trainer_callback import Explosion, trainer
import leadline

folder = sys.argv[1]
callback = leadline.LeadlineCallback(f"{folder}/run.leadline", 2, stop=True, quiet=True)
one = trainer(folder, callbacks=[Explosion(4), callback], data=32, ddp_backend="gloo")
one.train()
print(f"process {torch.distributed.get_rank()} of {torch.distributed.get_world_size()}: "
      f"{one.state.global_step} updates", flush=True)
torch.distributed.destroy_process_group()
"""


@pytest.mark.slow
def test_several_processes_stop_together(tmp_path):
    """The first process alone has warnings; a process that went on would wait for ever."""
    script = tmp_path / "script.py"
    script.write_text(TWO_PROCESSES)
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2")
    ended = run_python(*launcher, script, tmp_path, folder=tmp_path)
    for rank in (0, 1):
        assert f"process {rank} of 2: 4 updates" in ended.stdout
    assert steps_of(tmp_path / "run.leadline", "train.loss") == [1, 2, 3, 4]
