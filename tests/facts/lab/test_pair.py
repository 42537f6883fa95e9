"""The two small trained models that come with the package."""

import json
import re
import shlex
from pathlib import Path

import pytest

from leadline.cli.request.models import read_overrides
from leadline.lab import pair
from leadline.lab.fields import split_fields
from leadline.lab.tasks import build_task
from leadline.lab.trainer import Trainer
from leadline.lab.training import Training
from leadline.models.loading import load
from leadline.parts import Recipe

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


def command_in(text):
    """The fields that a `leadline train` in a text sets."""
    command = text[text.index("train --set placement") :]
    words = shlex.split(command[: command.index("--save")].replace("\\\n", " "))
    fields = read_overrides([word for word in words if re.fullmatch(r"[a-z]+=[\w]+", word)])
    fields["task"] = words[words.index("--task") + 1]
    fields["steps"] = int(words[words.index("--steps") + 1])
    fields["layers"] = "--layers" in words
    return fields


@pytest.mark.parametrize("name", MODELS)
def test_the_command_on_the_page_and_in_the_makefile_is_the_one_that_made_them(name):
    makefile = (Path(__file__).parents[3] / "Makefile").read_text().replace("$$norm", name)
    page = (pair.__doc__ or "").replace("placement=pre", f"placement={name}")
    assert command_in(page) == command_in(makefile)
    of_recipe, of_training = split_fields(command_in(page))
    assert Training.from_json(of_training).to_json() == MADE[name]["training"]
    recipe = Recipe.from_json(of_recipe).but(vocabulary=256, context=128)
    assert recipe == MODELS[name]()[0].recipe


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
