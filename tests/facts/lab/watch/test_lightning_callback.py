"""LeadlineCallback in Lightning: right numbers, an unchanged training, one record."""

import logging
import types

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

import leadline
from leadline.lab.watch.callbacks.trained import called_module, ids_in
from leadline.reading.watch.history import History
from leadline.record import Record
from leadline.record.run.watching import attempts_of
from tests.watched import Trace, assert_same, examples, steps_of, tiny_gpt2

lightning = pytest.importorskip("lightning.pytorch")

pytestmark = [
    # What Lightning has to say about small trainings, and what torch says about Lightning.
    pytest.mark.filterwarnings("ignore::lightning.fabric.utilities.warnings.PossibleUserWarning"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec.* is deprecated:FutureWarning"),
]


class Language(lightning.LightningModule):
    """A language model as people write it: the model in `self.model`, the loss from it."""

    def __init__(self, rate=1e-3):
        super().__init__()
        self.model = tiny_gpt2()
        self.rate = rate

    def training_step(self, batch, batch_idx):
        return self.model(**self.inputs(batch)).loss

    def validation_step(self, batch, batch_idx):
        self.model(**self.inputs(batch))

    @staticmethod
    def inputs(batch):
        return {name: batch[name] for name in ("input_ids", "labels")}

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.rate)


def trainer(folder, *, callbacks=(), updates=6, **options):
    return lightning.Trainer(
        default_root_dir=folder,
        max_steps=updates,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=list(callbacks),
        **({"enable_checkpointing": False} | options),
    )


def batches(count=32, seed=1, size=2):
    return DataLoader(examples(count, seed=seed), batch_size=size)


def trained(folder, path=None, *, every=2, module=None, options=None, **settings):
    module = Language() if module is None else module
    callback = None
    if path is not None:
        callback = leadline.LeadlineCallback(path, every, quiet=True, **(options or {}))
    one = trainer(folder, callbacks=[] if callback is None else [callback], **settings)
    torch.manual_seed(3)
    with Trace(module) as trace:
        one.fit(module, batches(), batches(4, seed=2))
    return trace, callback


SETTINGS = {
    "plain": {},
    "accumulation": {"accumulate_grad_batches": 2},
    "clipping": {"gradient_clip_val": 0.1},
    "bf16": {"precision": "bf16-mixed"},
    "validation in between": {"val_check_interval": 1},
    "accumulation, clipping, validation": {
        "accumulate_grad_batches": 2,
        "gradient_clip_val": 0.1,
        "val_check_interval": 3,
    },
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_watched_training_is_the_same_bit_for_bit(tmp_path, setting):
    path = tmp_path / "run.leadline"
    alone, _ = trained(tmp_path, **SETTINGS[setting])
    watched, callback = trained(tmp_path, path, **SETTINGS[setting])
    assert_same(alone, watched)
    assert callback.notes == []
    assert steps_of(path, "train.loss") == [1, 2, 3, 4, 5, 6]
    for quantity in ("stream.norm", "update.ratio", "gradient.stream", "weights.update_ratio"):
        assert steps_of(path, quantity) == [1, 2, 4, 6], quantity


def test_gradient_checkpointing_is_the_same_bit_for_bit(tmp_path):
    def checkpointing():
        module = Language()
        module.model.gradient_checkpointing_enable({"use_reentrant": False})
        return module

    path = tmp_path / "run.leadline"
    alone, _ = trained(tmp_path, module=checkpointing())
    watched, callback = trained(tmp_path, path, module=checkpointing())
    assert_same(alone, watched)
    assert callback.notes == []
    assert steps_of(path, "gradient.stream") == [1, 2, 4, 6]


def test_gradients_are_those_of_their_own_update_before_clipping(tmp_path):
    """Lightning runs forward and backward inside of the optimizer's step."""
    clipped, free = tmp_path / "clipped.leadline", tmp_path / "free.leadline"
    norms = []

    class Norms(lightning.Callback):
        def on_before_optimizer_step(self, trainer, pl_module, optimizer):
            squares = [parameter.grad.square().sum() for parameter in pl_module.parameters()]
            norms.append(torch.stack(squares).double().sum().sqrt().item())

    callback = leadline.LeadlineCallback(clipped, 2, quiet=True)
    one = trainer(tmp_path, callbacks=[callback, Norms()], gradient_clip_val=0.1)
    one.fit(Language(), batches())
    with Record.open(clipped) as record:
        history = History.of(record)
    series = history.of_run("train.gradient_norm")
    assert series.steps.tolist() == [1, 2, 4, 6]
    expected = [norms[step - 1] for step in series.steps]
    assert min(expected) > 0.2
    assert series.values.tolist() == pytest.approx(expected, rel=1e-3)
    factors = [0.1 / norm for norm in expected]
    assert history.of_run("train.clipping").values.tolist() == pytest.approx(factors, rel=1e-3)
    trained(tmp_path, free)
    with Record.open(free) as record:
        assert set(History.of(record).of_run("train.clipping").values) == {1.0}


def test_the_loss_is_the_mean_over_the_micro_batches(tmp_path):
    path = tmp_path / "run.leadline"
    trace, _ = trained(tmp_path, path, accumulate_grad_batches=2)
    with Record.open(path) as record:
        losses = History.of(record).of_run("train.loss").values.tolist()
    assert losses == pytest.approx(torch.stack(trace.losses).double().view(6, 2).sum(1).tolist())
    assert 3.0 < losses[0] < 5.0  # about ln 64


def test_a_resumed_training_goes_on_in_the_same_record(tmp_path):
    path = tmp_path / "run.leadline"
    first = trainer(tmp_path, callbacks=[leadline.LeadlineCallback(path, 2, quiet=True)], updates=3)
    first.fit(Language(), batches())
    first.save_checkpoint(tmp_path / "three.ckpt")
    callback = leadline.LeadlineCallback(path, 2, quiet=True)
    trainer(tmp_path, callbacks=[callback]).fit(
        Language(), batches(), ckpt_path=tmp_path / "three.ckpt", weights_only=False
    )
    assert callback.notes == []
    assert steps_of(path, "train.loss") == [1, 2, 3, 4, 5, 6]
    assert steps_of(path, "stream.norm") == [1, 2, 4, 6]
    with Record.open(path) as record:
        assert [(one.run, one.first) for one in attempts_of(record)] == [("", 1), ("", 4)]


class Explosion(lightning.Callback):
    """Puts a NaN into the weights before one update."""

    def __init__(self, at):
        self.at = at

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if trainer.global_step + 1 == self.at:
            with torch.no_grad():
                pl_module.model.transformer.h[1].mlp.c_fc.weight[0, 0] = float("nan")


@pytest.mark.parametrize(("stop", "updates"), [(True, 4), (False, 6)])
def test_a_serious_warning_stops_the_training_if_that_is_asked(tmp_path, stop, updates):
    callback = leadline.LeadlineCallback(tmp_path / "run.leadline", 2, stop=stop, quiet=True)
    one = trainer(tmp_path, callbacks=[Explosion(4), callback])
    one.fit(Language(), batches())
    assert one.global_step == updates
    assert callback.warnings[0].code == "G01"
    assert callback.warnings[0].details["step"] == 4


class Broken(Exception):
    """What ends a training."""


class Break(lightning.Callback):
    def on_train_batch_end(self, trainer, *_):
        if trainer.global_step == 3:
            raise Broken


def test_an_exception_ends_the_watch(tmp_path):
    callback = leadline.LeadlineCallback(tmp_path / "run.leadline", 2, quiet=True)
    with pytest.raises(Broken):
        trainer(tmp_path, callbacks=[callback, Break()]).fit(Language(), batches())
    assert not callback.watch.active
    assert steps_of(callback.path, "train.loss") == [1, 2, 3]
    with Record.open(callback.path) as record:
        assert record.provenance["watch"]["closed"]


def test_snapshots_name_epoch_batch_and_examples(tmp_path):
    rows = [{**row, "index": at} for at, row in enumerate(examples(12))]
    callback = leadline.LeadlineCallback(tmp_path / "run.leadline", 2, snapshot=True, quiet=True)
    one = trainer(tmp_path, callbacks=[Explosion(4), callback], accumulate_grad_batches=2)
    one.fit(Language(), DataLoader(rows, batch_size=2))
    with Record.open(callback.path) as record:
        batches_of = record.provenance["watch"]["snapshots"][0]["batches"]
    # Six batches of two, two of them an update, so three updates an epoch.
    assert batches_of["1"] == "epoch 0, batch 0, index [0, 1]; epoch 0, batch 1, index [2, 3]"
    assert batches_of["3"] == "epoch 0, batch 4, index [8, 9]; epoch 0, batch 5, index [10, 11]"
    assert batches_of["4"] == "epoch 1, batch 0, index [0, 1]; epoch 1, batch 1, index [2, 3]"


class TwoOptimizers(Language):
    """Steps embeddings and blocks by optimizers of their own, by hand."""

    def __init__(self):
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch, batch_idx):
        optimizers = self.optimizers()
        loss = self.model(**self.inputs(batch)).loss
        for optimizer in optimizers:
            optimizer.zero_grad()
        self.manual_backward(loss)
        for optimizer in optimizers:
            optimizer.step()

    def configure_optimizers(self):
        inside = list(self.model.transformer.h.parameters())
        outside = [p for p in self.parameters() if all(p is not one for one in inside)]
        return torch.optim.AdamW(outside, lr=1e-3), torch.optim.SGD(inside, lr=1e-2)


def test_several_optimizers_make_one_update(tmp_path):
    path = tmp_path / "run.leadline"
    alone, _ = trained(tmp_path, module=TwoOptimizers(), updates=12)
    watched, callback = trained(tmp_path, path, module=TwoOptimizers(), updates=12)
    assert_same(alone, watched)
    assert callback.notes == []
    assert steps_of(path, "train.loss") == [1, 2, 3, 4, 5, 6]
    assert steps_of(path, "stream.norm") == [1, 2, 4, 6]


class InTurn(Language):
    """Trains a critic and the model in turn, by hand, with a backward pass each."""

    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.critic = nn.Linear(64, 1)

    def forward(self, **inputs):
        return self.model(**inputs)

    def training_step(self, batch, batch_idx):
        ours, critics = self.optimizers()
        out = self(**self.inputs(batch))
        critics.zero_grad()
        self.manual_backward(self.critic(out.logits.detach()).square().mean())
        critics.step()
        ours.zero_grad()
        self.manual_backward(self(**self.inputs(batch)).loss)
        ours.step()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.model.parameters()), torch.optim.SGD(
            self.critic.parameters(), lr=1e-2
        )


@pytest.mark.parametrize(("module", "of_a_batch"), [("model", 1), (None, 2)])
def test_optimizers_that_step_in_turn_are_counted_alike_when_a_training_is_resumed(
    tmp_path, module, of_a_batch
):
    path = tmp_path / "run.leadline"

    def fit(batches_made, **given):
        callback = leadline.LeadlineCallback(path, 1, module=module, quiet=True)
        one = trainer(tmp_path, callbacks=[callback], updates=2 * batches_made)
        one.fit(InTurn(), batches(), **given)
        one.save_checkpoint(tmp_path / "last.ckpt")
        return callback

    fit(3)
    callback = fit(5, ckpt_path=tmp_path / "last.ckpt", weights_only=False)
    assert not [note for note in callback.notes if "reaches step" in note]
    assert steps_of(path, "train.loss") == list(range(1, 5 * of_a_batch + 1))
    with Record.open(path) as record:
        begun = [(one.run, one.first) for one in attempts_of(record)]
    assert begun == [("", 1), ("", 3 * of_a_batch + 1)]


def test_two_callbacks_may_watch_two_modules(tmp_path):
    both = [
        leadline.LeadlineCallback(tmp_path / name, 1, module=name, quiet=True)
        for name in ("model", "critic")
    ]
    trainer(tmp_path, callbacks=both, updates=4).fit(InTurn(), batches())
    assert [steps_of(one.path, "weights.update_ratio") for one in both] == [[1, 2], [1, 2]]


def test_wrong_options_are_a_sentence_and_the_training_goes_on(tmp_path, caplog):
    callback = leadline.LeadlineCallback(tmp_path / "run.leadline", module="nowhere", stop=True)
    one = trainer(tmp_path, callbacks=[callback], updates=2)
    with caplog.at_level(logging.WARNING, "leadline.watch"):
        one.fit(Language(), batches())
    assert one.global_step == 2
    assert "module is 'nowhere', and Language has no module of that name." in caplog.text


def test_a_callback_alone_is_no_list(tmp_path):
    callback = leadline.LeadlineCallback(tmp_path / "run.leadline", quiet=True)
    one = lightning.Trainer(
        callbacks=callback, logger=False, enable_checkpointing=False, accelerator="cpu",
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    assert callback in one.callbacks


# --- what a training step calls --------------------------------------------------------------------


class Several(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.small, self.large = nn.Linear(2, 2), nn.Linear(9, 9)


class WithForward(Several):
    def forward(self, x):
        return self.small(x)


class OneWithForward(Language):
    def forward(self, **batch):
        return self.model(**batch)


class Own(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = nn.Linear(2, 2)
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x):
        return self.model(x) * self.scale


def test_the_only_child_is_watched_else_what_has_a_forward_else_the_largest():
    language = Language()
    language.metric = nn.Identity()  # without parameters
    assert called_module(language, None) is language.model
    assert called_module(language, "model.transformer") is language.model.transformer
    one = OneWithForward()  # its training step calls self.model all the same
    assert called_module(one, None) is one.model
    several = Several()
    assert called_module(several, None) is several.large
    for module in (WithForward(), Own()):
        assert called_module(module, None) is module
    assert called_module(several.small, None) is several.small


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        ({"id": ["a", "b"]}, "id ['a', 'b']"),
        ({"x": 1, "indices": torch.tensor([3, 4])}, "indices [3, 4]"),
        ({"x": 1}, ""),
        ([torch.ones(2)], ""),
        (types.SimpleNamespace(id=3), ""),
    ],
)
def test_a_batch_says_which_examples_it_holds(batch, words):
    assert ids_in(batch) == words


def test_the_package_under_its_older_name_is_watched_too(tmp_path):
    older = pytest.importorskip("pytorch_lightning")

    class Older(older.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = tiny_gpt2()

        def training_step(self, batch, batch_idx):
            return self.model(**batch).loss

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=1e-3)

    callback = leadline.LeadlineCallback(tmp_path / "run.leadline", 2, quiet=True)
    one = older.Trainer(
        max_steps=4,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[callback],
    )
    one.fit(Older(), batches())
    assert callback.notes == []
    assert steps_of(callback.path, "stream.norm") == [1, 2, 4]
