"""A callback is of the class that its trainer wants, and no other trainer is imported for it."""

import pickle
import types

import pytest

import leadline
from leadline.lab.watch.callbacks import bases
from leadline.lab.watch.callbacks.callback import LeadlineCallback
from tests.watched import run_python

transformers = pytest.importorskip("transformers")
lightning = pytest.importorskip("lightning.pytorch")
pytorch_lightning = pytest.importorskip("pytorch_lightning")

TRAINERS = {
    "transformers": transformers.TrainerCallback,
    "lightning.pytorch": lightning.Callback,
    "pytorch_lightning": pytorch_lightning.Callback,
}


@pytest.fixture
def imported(monkeypatch):
    """Pretend that only these trainers have been imported."""

    def pretend(*names):
        monkeypatch.setattr(bases, "sys", types.SimpleNamespace(modules=dict.fromkeys(names)))

    return pretend


def made():
    return leadline.LeadlineCallback("run.leadline", 10, stop=True, sinks=["csv"])


@pytest.mark.parametrize("names", [[one] for one in TRAINERS] + [list(TRAINERS)])
def test_a_callback_has_the_bases_of_the_trainers_in_use(imported, names):
    imported(*names)
    callback = made()
    assert isinstance(callback, leadline.LeadlineCallback)
    for name, base in TRAINERS.items():
        assert isinstance(callback, base) == (name in names)
    assert type(callback).__name__ == "LeadlineCallback"
    assert type(made()) is type(callback)  # one class for all, so that trainers notice a second one


def test_without_any_it_has_the_bases_of_all_that_are_installed(imported):
    imported()
    callback = made()
    assert all(isinstance(callback, base) for base in TRAINERS.values())


def test_where_none_is_installed_a_sentence_says_what_to_do(imported, monkeypatch):
    imported()
    monkeypatch.setattr(bases, "_is_installed", lambda name: False)
    with pytest.raises(leadline.MissingExtra, match=r"leadline\[watch\].*leadline\.watch before"):
        made()


@pytest.mark.parametrize("name", TRAINERS)
def test_every_event_of_the_trainer_has_an_answer(imported, name):
    imported(name)
    callback = made()
    events = [one for one in dir(TRAINERS[name]) if one.startswith("on_")]
    assert len(events) > 15
    assert all(callable(getattr(callback, one)) for one in events)


def test_a_callback_can_be_sent_to_another_process(imported):
    imported(*TRAINERS)
    callback = made()
    again = pickle.loads(pickle.dumps(callback))
    assert type(again) is type(callback)
    assert (again.path, again.every, again.stop, again.snapshot) == (
        "run.leadline",
        10,
        True,
        False,
    )
    assert again._options == callback._options


class Mine(LeadlineCallback):
    """A callback that somebody has changed."""


def test_a_subclass_keeps_its_class(imported):
    imported("transformers")
    mine = Mine("run.leadline")
    assert isinstance(mine, Mine) and isinstance(mine, transformers.TrainerCallback)
    assert type(pickle.loads(pickle.dumps(mine))) is type(mine)


SCRIPT = """
import sys
import leadline
trainers = {"transformers", "lightning", "pytorch_lightning"}
assert not trainers & set(sys.modules), "leadline"
leadline.watch
assert not trainers & set(sys.modules), "leadline.watch"
import transformers
callback = leadline.LeadlineCallback("run.leadline")
assert isinstance(callback, transformers.TrainerCallback)
assert not {"lightning", "pytorch_lightning"} & set(sys.modules), "callback"
"""


def test_leadline_imports_no_trainer(tmp_path):
    run_python("-c", SCRIPT, folder=tmp_path)


@pytest.mark.slow
def test_a_trainer_that_is_imported_after_the_callback_is_made_takes_it(tmp_path):
    script = """
import lightning.pytorch, transformers
import leadline
callback = leadline.LeadlineCallback("run.leadline")
assert isinstance(callback, transformers.TrainerCallback)
assert isinstance(callback, lightning.pytorch.Callback)
"""
    run_python("-c", script, folder=tmp_path)
