"""A model in the cache of the hub, whose files are links to files that are named by their sums."""

from __future__ import annotations

import hashlib
import re

import pytest

import leadline
from leadline.models.loading import load_model
from leadline.models.streaming import decision, mapped
from leadline.models.streaming.pager import pager_of
from leadline.models.streaming.scratch import Scratch
from leadline.testing.zoo import ZOO

pytest.importorskip("transformers")
pytest.importorskip("huggingface_hub")

NAME, REVISION = "somebody/tiny", "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def snapshot(tmp_path, monkeypatch):
    """A tiny Llama in several shards, as the hub's own library keeps it."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    place = tmp_path / "models--somebody--tiny"
    folder = place / "snapshots" / REVISION
    ZOO["llama"].build(0).save_pretrained(folder, max_shard_size="100KB")
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text(REVISION)
    (place / "blobs").mkdir()
    for file in list(folder.iterdir()):
        name = hashlib.sha256(file.read_bytes()).hexdigest()
        file.rename(place / "blobs" / name)
        file.symlink_to(f"../../blobs/{name}")
    return folder


def shards(folder):
    return sorted(file.name for file in folder.glob("model-*.safetensors"))


@pytest.mark.parametrize("dtype", [None, "bfloat16"])
def test_the_files_have_the_names_of_the_model(snapshot, dtype):
    for source in (NAME, snapshot):
        loaded = load_model(source, stream=True, dtype=dtype)
        record = leadline.measure(
            loaded, leadline.random_inputs(loaded.model, examples=2, length=8), probes="stream"
        )
        assert record.provenance["streaming"]["files"] == shards(snapshot)


def test_a_fetched_model_that_does_not_fit_is_streamed_like_a_folder(snapshot, monkeypatch):
    count = sum(p.nbytes for p in load_model(NAME, stream=False).model.parameters())
    monkeypatch.setattr(decision, "free_memory", lambda: count - 1)
    pager = pager_of(load_model(NAME).model)
    assert pager is not None
    assert re.fullmatch(r"the weights take \d+ kB and \d+ kB of memory are free", pager.why)
    # What is still to be fetched is not known.
    (snapshot / shards(snapshot)[1]).unlink()
    with pytest.raises(leadline.LoadingError, match=r"the hub did not give it|no weights"):
        load_model(NAME)


def test_the_pages_of_the_files_behind_the_links_are_given_back(snapshot, monkeypatch):
    safetensors = pytest.importorskip("safetensors")
    given_back = []

    def give_back(region):
        given_back.append(region)
        return True

    monkeypatch.setattr(mapped.Region, "give_back", give_back)
    with safetensors.safe_open(snapshot / shards(snapshot)[0], framework="pt") as file:
        tensor = file.get_tensor(next(iter(file.keys())))
        Scratch(snapshot).let_go()
        place = mapped.FileMappings().region_of(tensor)
    assert any(one.start <= place.start and place.end <= one.end for one in given_back)
