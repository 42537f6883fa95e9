"""`--dry-run`, and the refusal of what does not fit: before any weight is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import leadline as ll
from leadline.cli.request.room import load_with_room
from leadline.cli.screen.voice import Voice
from leadline.models.loading import LoadedModel, pretrained, sources

SIZES: dict[str, Any] = {
    "n_layer": 2,
    "n_embd": 16,
    "n_head": 2,
    "vocab_size": 50,
    "n_positions": 64,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny GPT-2 that save_pretrained wrote."""
    from transformers import GPT2Config, GPT2LMHeadModel

    path = tmp_path_factory.mktemp("tiny")
    torch.manual_seed(0)
    GPT2LMHeadModel(GPT2Config(**SIZES)).save_pretrained(path)
    return path


@pytest.fixture
def weights_closed(monkeypatch):
    """Whoever loads a model fails."""

    def refuse(*_, **__):
        raise AssertionError("weights were read")

    monkeypatch.setattr(pretrained, "_pretrained_class", refuse)
    monkeypatch.setattr(sources, "_from_source", refuse)


@pytest.fixture
def room_for(monkeypatch):
    """Pretend that so many bytes are free."""

    def pretend(count):
        monkeypatch.setattr("leadline.instruments.cost.room.free_memory", lambda: count)

    return pretend


def test_a_folder_is_counted_by_its_configuration(leadline, folder, weights_closed):
    said = leadline("measure", folder, "--random", "2x8", "--dry-run")
    assert said.code == 0, said.err
    assert said.out.startswith("About ")
    assert said.out.rstrip().endswith("Nothing was measured, and no weights were read.")


def test_a_folder_without_its_weights_is_counted_like_the_model(leadline, folder, tmp_path):
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    arguments = ("--random", "2x8", "--dry-run", "--json")
    bare = json.loads(leadline("measure", tmp_path, *arguments).out)
    sets = [f"--set={name}={value}" for name, value in SIZES.items()]
    whole = json.loads(leadline("measure", "--random-init", "gpt2", *sets, *arguments).out)
    assert bare["flops"] == whole["flops"] > 0
    assert bare["weights"] == whole["weights"] > 0
    assert bare["passes"] == whole["passes"] == {"anatomy_forward": 2, "forward": 1, "backward": 1}


def test_a_gguf_file_is_counted_by_its_header(leadline, gguf, weights_closed):
    said = leadline("measure", gguf, "--random", "1x8", "--dry-run", "--json")
    assert said.code == 0, said.err
    block = 4 * 16 * 16 + 3 * 16 * 32
    # Two products for each weight of a block and of the head, for 8 tokens, and 4 n^2 d for attention.
    forward = 2 * 8 * (2 * block + 16 * 50) + 2 * 4 * 8**2 * 16
    [part] = [part for part in json.loads(said.out)["parts"] if part["name"] == "forward"]
    assert part["flops"] == forward


@pytest.fixture
def gguf(tmp_path):
    """A GGUF file of a tiny Llama: a header, and tensors cut off right behind it."""
    writer_of = pytest.importorskip("gguf").GGUFWriter
    path = tmp_path / "tiny.gguf"
    writer = writer_of(str(path), "llama")
    writer.add_block_count(2)
    writer.add_context_length(64)
    writer.add_embedding_length(16)
    writer.add_feed_forward_length(32)
    writer.add_head_count(2)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(50)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


COMMANDS = ("measure", "jacobian", "lyapunov", "paths", "diagnose")


@pytest.mark.parametrize("command", COMMANDS)
def test_what_does_not_fit_is_refused_before_weights_are_read(
    leadline, folder, weights_closed, room_for, command
):
    room_for(100_000)
    said = leadline(command, folder, "--random", "8x64")
    assert said.code == 2
    assert f"{command} was asked for {Path(folder).name} at 8 x 64 tokens" in said.err
    assert "100 kB are free" in said.err
    assert "--anyway" in said.err


def test_what_would_fit_does(leadline, folder, weights_closed, room_for):
    room_for(1_000_000)
    said = leadline("measure", folder, "--random", "8x64", "--probes", "stream,gradient")
    assert "What would fit: 2 x 64 tokens, or 8 x 16 tokens." in said.err


def test_anyway_goes_on(leadline, folder, room_for):
    room_for(100_000)
    assert leadline("measure", folder, "--random", "8x64", "--anyway").code == 0


def test_the_tokenizer_is_read_once(room_for):
    reads = []

    class Asked:
        model, seed, device, stream = "a", 0, "cpu", None

        def typed_size(self):
            return None

        def described(self, *, runnable):
            assert runnable
            return self.load()

        def load(self):
            model = ll.Transformer(ll.Recipe(depth=1, width=8, heads=2, vocabulary=9), seed=0)
            return LoadedModel(model, "a", "b", lambda: reads.append(1) or "words")

        def inputs(self, loaded):
            assert loaded.tokenizer == "words"
            return ll.random_tokens(loaded.model, examples=1, length=4)

    room_for(10**9)
    request: Any = Asked()
    with Voice() as voice:
        loaded = load_with_room(voice, request, "lyapunov", anyway=False)
    assert loaded.tokenizer == "words"
    assert reads == [1]
