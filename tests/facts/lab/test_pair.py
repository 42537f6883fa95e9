"""The two small trained models that come with the package."""

import json

import pytest

from leadline.lab import pair
from leadline.lab.tasks import build_task
from leadline.lab.trainer import Trainer
from leadline.lab.training import Training
from leadline.loading import load

MADE = json.loads((pair.folder("pre").parent / "made.json").read_text())
MODELS = {"pre": pair.pre, "post": pair.post}


@pytest.mark.parametrize("name", MODELS)
def test_the_files_are_small(name):
    assert sum(file.stat().st_size for file in pair.folder(name).iterdir()) <= 1.5e6


def test_only_the_placement_differs():
    pre, post = (MODELS[name]()[0].recipe for name in ("pre", "post"))
    assert pre.but(placement="post") == post
    assert (pre.depth, pre.width, pre.heads, pre.context) == (6, 64, 4, 128)


@pytest.mark.parametrize("name", MODELS)
def test_they_have_learned_more_than_which_byte_follows_which(name):
    model, _ = MODELS[name]()
    task = build_task("stdlib(length=128)")
    training = Training(task="stdlib(length=128)", examples=512, gauges=0)
    loss = Trainer(model, task, training).validate()
    known = task.entropies(512)
    assert loss < known.bigram - 0.5
    if task.facts()["digest"] == MADE[name]["task"]["digest"]:
        # Another version of Python has another text.
        assert loss == pytest.approx(MADE[name]["loss"], abs=1e-4)
        assert known.unigram == pytest.approx(MADE[name]["task"]["unigram"])


def test_the_page_tells_the_losses_that_were_reached():
    assert f"{MADE['pre']['loss']:.3f} (pre) and {MADE['post']['loss']:.3f} nats (post)" in (
        pair.__doc__ or ""
    )
    task = MADE["pre"]["task"]
    assert f"there is {task['unigram']:.3f}, the bigram entropy {task['bigram']:.3f}" in (
        pair.__doc__ or ""
    )


def test_they_read_text_by_their_bytes():
    loaded = load("leadline.lab.pair:pre")
    assert loaded.tokenizer("def") == [100, 101, 102]
    assert load(str(pair.folder("post"))).tokenizer("def") == [100, 101, 102]


def test_they_write_something_like_python():
    model, tokenizer = pair.post()
    import torch

    ids = torch.tensor([tokenizer("    def __init__(self")])
    text = tokenizer.decode(model.generate(ids, steps=24)[0].tolist())
    assert text.startswith("    def __init__(self")
    assert ":" in text[21:]
