"""What cannot be streamed is refused in a sentence, before anything is written."""

from __future__ import annotations

import json
import re

import pytest
import torch

import leadline
from leadline.errors import InputError, LoadingError
from leadline.models.loading import load_model
from leadline.models.streaming import decision
from leadline.models.streaming.pager import pager_of
from leadline.models.streaming.recomputing import checkpointed_forward
from leadline.testing.zoo import ZOO

pytest.importorskip("transformers")
safetensors = pytest.importorskip("safetensors.torch")


@pytest.fixture
def folder(tmp_path):
    """A tiny Llama in several shards."""
    ZOO["llama"].build(0).save_pretrained(tmp_path / "tiny", max_shard_size="100KB")
    return tmp_path / "tiny"


def shards(folder):
    return sorted(folder.glob("model-*.safetensors"))


def test_a_missing_shard_is_named(folder):
    shards(folder)[1].unlink()
    with pytest.raises(LoadingError, match=r"model-00002-of-.* is missing"):
        load_model(folder, stream=True)


def test_a_truncated_shard_is_named(folder):
    shard = shards(folder)[0]
    shard.write_bytes(shard.read_bytes()[:-100])
    with pytest.raises(LoadingError, match=r"model-00001-of-.* is cut short or damaged"):
        load_model(folder, stream=True)


@pytest.mark.parametrize("stream", [True, False])
def test_a_shard_of_another_model_is_named(folder, stream):
    safetensors.save_file({"other.weight": torch.ones(3)}, shards(folder)[0])
    with pytest.raises(
        LoadingError, match=r"does not hold .*; it holds 1 other tensor, such as other"
    ):
        load_model(folder, stream=stream)


def test_a_tensor_of_another_shape_is_named(folder):
    shard = shards(folder)[0]
    tensors = safetensors.load_file(shard)
    name = next(name for name, tensor in tensors.items() if tensor.ndim == 2)
    shape = list(tensors[name].shape)
    tensors[name] = torch.ones(shape[0] + 1, shape[1])
    safetensors.save_file(tensors, shard, metadata={"format": "pt"})
    words = f"{name} is stored as {[shape[0] + 1, shape[1]]} and the configuration asks for {shape}"
    with pytest.raises(LoadingError, match=re.escape(words)):
        load_model(folder, stream=True)


def test_too_little_memory_for_one_block_says_how_much_is_needed(folder, monkeypatch):
    monkeypatch.setattr(decision, "free_memory", lambda: 30_000)
    with pytest.raises(
        LoadingError,
        match=r"not enough memory even for one block .*'model\..*' takes .* kB, .* 30 kB are free",
    ):
        load_model(folder, stream=True)


def test_a_model_that_does_not_fit_is_streamed_unasked_and_says_why(folder, monkeypatch):
    count = sum(p.nbytes for p in load_model(folder, stream=False).model.parameters())
    monkeypatch.setattr(decision, "free_memory", lambda: count - 1)
    pager = pager_of(load_model(folder).model)
    assert pager is not None
    assert re.fullmatch(r"the weights take \d+ kB and \d+ kB of memory are free", pager.why)
    assert pager_of(load_model(folder, stream=False).model) is None
    monkeypatch.setattr(decision, "free_memory", lambda: count)
    assert pager_of(load_model(folder).model) is None
    # In float64 the same weights take twice the memory.
    monkeypatch.setattr(decision, "free_memory", lambda: count + count // 2)
    assert pager_of(load_model(folder, dtype="float64").model) is not None


def test_load_takes_the_wish(folder):
    assert pager_of(leadline.load(folder, stream=True).model) is not None
    assert pager_of(leadline.load(folder).model) is None


@pytest.mark.parametrize(
    ("source", "options"),
    [
        ("gpt2", {"random_init": True, "overrides": {"n_layer": 2, "n_embd": 8, "n_head": 2}}),
        ("default", {"recipe": True}),
        ("leadline.testing.tiny:nothing", {}),
    ],
)
def test_what_has_no_files_is_not_streamed(source, options):
    with pytest.raises(LoadingError, match="no files of weights to stream from"):
        load_model(source, stream=True, **options)


def test_another_device_is_not_streamed(folder):
    with pytest.raises(LoadingError, match="computes on the CPU"):
        load_model(folder, stream=True, device="cuda")


def test_pickles_are_refused_as_ever(folder):
    for shard in shards(folder):
        shard.unlink()
    (folder / "model.safetensors.index.json").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"x")
    with pytest.raises(LoadingError, match="pickle"):
        load_model(folder, stream=True)


def test_an_index_without_a_map_is_refused(folder):
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {}}))
    with pytest.raises(LoadingError, match="no weight_map"):
        load_model(folder, stream=True)


class NoPager:
    """Takes notice of nothing."""

    def compute_again(self, path):
        assert path == "block"


def test_a_block_whose_input_is_changed_afterwards_is_refused():
    """Autograd sees no fault, for the block keeps its products alone; computed again, they differ."""
    block = checkpointed_forward(lambda x: (2 * x).square(), "block", NoPager(), set())
    x = torch.ones(3, requires_grad=True)
    entered = x * 3
    total = block(entered).sum()
    with torch.no_grad():
        entered.add_(1.0)
    with pytest.raises(InputError, match="'block' was changed in place"):
        total.backward()


def test_a_block_that_keeps_something_between_its_calls_is_refused(folder):
    loaded = load_model(folder, stream=True)
    batch = leadline.random_inputs(loaded.model, examples=2, length=8)
    anatomy = leadline.anatomy_of(loaded, batch)
    mlp, calls = loaded.model.model.layers[1].mlp, []
    plain = mlp.forward

    def grows(x):
        calls.append(None)
        return plain(x) + torch.cat([x] * len(calls)).square()[: len(x)] * 0

    mlp.forward = grows
    with pytest.raises(InputError, match="computed other tensors when it ran again"):
        leadline.measure(loaded, batch, anatomy=anatomy)


def test_copies_of_a_streamed_model_that_do_not_fit_are_refused(folder, monkeypatch):
    loaded = load_model(folder, stream=True)
    count = sum(p.nbytes for p in loaded.model.parameters())
    monkeypatch.setattr(decision, "free_memory", lambda: 2 * count)
    assert decision.copy_refusal(loaded.model) is None
    monkeypatch.setattr(decision, "free_memory", lambda: 2 * count - 2)
    refusal = r"{} \d+ [kM]B of memory, of which \d+ kB are free"
    assert re.fullmatch(
        refusal.format("a copy of it takes"), decision.copy_refusal(loaded.model) or ""
    )
    assert re.fullmatch(
        refusal.format("its weights 5 times over take"),
        decision.copy_refusal(loaded.model, times=5) or "",
    )
    assert decision.copy_refusal(torch.nn.Linear(2, 2)) is None
    answer = leadline.diagnose(
        loaded, leadline.random_inputs(loaded.model, examples=2, length=8), train=1
    )
    could_not = answer.record.provenance["visit"]["could_not"]
    assert "streamed" in could_not["twin"]
    assert "streamed" in could_not["short_run"]


@pytest.mark.parametrize("stream", [True, False])
def test_a_quantisation_whose_library_is_missing_is_refused(folder, stream):
    file = folder / "config.json"
    content = json.loads(file.read_text())
    content["quantization_config"] = {"quant_method": "gptq", "bits": 4}
    file.write_text(json.dumps(content))
    with pytest.raises(LoadingError, match=r"needs a library that is not installed|do not fit"):
        load_model(folder, stream=stream)


@pytest.mark.parametrize(
    "when",
    [
        ("reading the anatomy, forward", 1, 3),
        ("measuring, forward", 2, 3),
        ("measuring, backward", 1, 3),
    ],
)
def test_a_file_that_is_written_while_it_is_measured_is_refused(tmp_path, when):
    ZOO["llama"].build(0).save_pretrained(tmp_path / "one")
    ZOO["llama"].build(1).save_pretrained(tmp_path / "other")
    file, other = (tmp_path / name / "model.safetensors" for name in ("one", "other"))
    loaded = load_model(tmp_path / "one", stream=True)
    batch = leadline.random_inputs(loaded.model, examples=2, length=8)
    steps = []

    def write(*step):
        steps.append(step)
        if steps.count(when) != 1 or step != when:
            return
        with file.open("r+b") as stream:
            stream.write(other.read_bytes())

    with pytest.raises(LoadingError, match=r"model\.safetensors was written after it had been"):
        leadline.measure(loaded, batch, path=tmp_path / "a.leadline", progress=write)
    assert not (tmp_path / "a.leadline").exists()


@pytest.mark.parametrize("change", ["replaced", "removed"])
def test_a_file_that_is_replaced_by_another_one_stays_as_it_was(tmp_path, change):
    ZOO["llama"].build(0).save_pretrained(tmp_path / "one")
    ZOO["llama"].build(1).save_pretrained(tmp_path / "other")
    file, other = (tmp_path / name / "model.safetensors" for name in ("one", "other"))
    loaded = load_model(tmp_path / "one", stream=True)
    batch = leadline.random_inputs(loaded.model, examples=2, length=8)
    before = [r.value for r in leadline.measure(loaded, batch, probes="stream").select()]
    if change == "replaced":
        other.replace(file)
    else:
        file.unlink()
    assert [r.value for r in leadline.measure(loaded, batch, probes="stream").select()] == before
