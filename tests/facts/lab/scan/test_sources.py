"""Which checkpoints folders, patterns and lists name, and at which steps they are."""

import json

import pytest

from leadline.errors import LabError
from leadline.lab.scan.sources import find_checkpoints, step_in


def make(place, *files, step=None):
    place.mkdir(parents=True, exist_ok=True)
    for name in files or ("config.json", "model.safetensors"):
        (place / name).write_bytes(b"{}")
    if step is not None:
        (place / "trainer_state.json").write_text(json.dumps({"global_step": step}))
    return place


def names(*sources):
    return [(one.name, one.step) for one in find_checkpoints(sources)]


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("checkpoint-500", 500),
        ("step-2000", 2000),
        ("step2000", 2000),
        ("global_step143000", 143000),
        ("iter_0001000", 1000),
        ("epoch=3-step=1200", 1200),
        ("step10k", 10_000),
        ("step-1M", 1_000_000),
        ("model-steps_7", 7),
        ("step1000-tokens4B", 1000),
        ("ckpt-12", 12),
        ("checkpoint-3-step-70", 70),
        ("0042", 42),
        ("gpt2-medium", None),
        ("llama-7b", None),
        ("footstep-5", None),
        ("checkpoint", None),
        ("step-7b", None),
    ],
)
def test_steps_are_read_from_names(name, step):
    assert step_in(name) == step


def test_a_folder_of_checkpoints_comes_in_the_order_of_steps(tmp_path):
    for step in (1000, 200, 30):
        make(tmp_path / f"checkpoint-{step}")
    (tmp_path / "logs").mkdir()
    assert names(tmp_path) == [
        ("checkpoint-30", 30),
        ("checkpoint-200", 200),
        ("checkpoint-1000", 1000),
    ]
    assert {one.group for one in find_checkpoints([tmp_path])} == {str(tmp_path)}


def test_the_trainer_knows_the_step_better_than_the_name(tmp_path):
    make(tmp_path / "last", step=700)
    make(tmp_path / "checkpoint-5", step=6)
    make(tmp_path / "checkpoint-8", step="many")
    assert names(tmp_path) == [("checkpoint-5", 6), ("checkpoint-8", 8), ("last", 700)]


def test_the_output_of_the_trainer_is_its_model_and_its_checkpoints(tmp_path):
    out = make(tmp_path / "out")
    make(out / "checkpoint-10", "config.json", "model.safetensors", "optimizer.pt")
    make(out / "checkpoint-10" / "global_step10", "mp_rank_00_model_states.pt")
    make(out / "original", "consolidated.00.pth")
    assert names(out) == [("out", None), ("checkpoint-10", 10)]


def test_a_zoo_is_searched_below_and_gguf_files_are_models(tmp_path):
    make(tmp_path / "a" / "base")
    make(tmp_path / "b", "recipe.json", "model.safetensors")
    make(tmp_path / ".cache" / "c")
    make(tmp_path / "ggufs", "x-step5.gguf", "big-00001-of-00002.gguf", "big-00002-of-00002.gguf")
    assert names(tmp_path) == [
        ("a/base", None),
        ("b", None),
        ("ggufs/x-step5", 5),
        ("ggufs/big-00001-of-00002", None),
    ]


def test_folders_with_pickles_only_are_checkpoints_that_loading_refuses(tmp_path):
    make(tmp_path / "step-1", "pytorch_model.bin")
    make(tmp_path / "step-2", "config.json")
    make(tmp_path / "step-3", "optimizer.pt", "rng_state.pth", "training_args.bin")
    assert names(tmp_path) == [("step-1", 1), ("step-2", 2)]


def test_patterns_lists_and_several_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for run in ("a", "b"):
        for step in (9, 10):
            make(tmp_path / run / f"checkpoint-{step}")
    assert names("a/checkpoint-*") == [("checkpoint-9", 9), ("checkpoint-10", 10)]
    assert names("a", "b") == [
        *(("a/checkpoint-9", 9), ("a/checkpoint-10", 10)),
        *(("b/checkpoint-9", 9), ("b/checkpoint-10", 10)),
    ]
    assert names(str(tmp_path / "?" / "*-9")) == [("a/checkpoint-9", 9), ("b/checkpoint-9", 9)]
    (tmp_path / "b" / "list.txt").write_text(
        "# the last ones\n\na/checkpoint-10\ncheckpoint-10\nowner/model\npackage:make\n"
    )
    assert names("b/list.txt") == [
        ("a/checkpoint-10", 10),
        ("b/checkpoint-10", 10),
        ("owner/model", None),
        ("package:make", None),
    ]


def test_a_checkpoint_that_is_named_twice_is_one(tmp_path):
    make(tmp_path / "checkpoint-1")
    assert names(tmp_path, tmp_path / "checkpoint-1") == [("checkpoint-1", 1)]


def test_a_link_to_a_checkpoint_is_not_a_second_one(tmp_path):
    make(tmp_path / "checkpoint-1")
    (tmp_path / "latest").symlink_to(tmp_path / "checkpoint-1")
    assert names(tmp_path) == [("checkpoint-1", 1)]


def test_what_is_not_there_is_left_to_loading_and_an_empty_folder_is_a_row_among_others(tmp_path):
    make(tmp_path / "good")
    (tmp_path / "empty").mkdir()
    found = find_checkpoints([tmp_path / "good", tmp_path / "empty", "./nowhere"])
    assert {one.name for one in found} == {"good", "empty", "./nowhere"}


def test_nothing_at_all_is_refused(tmp_path):
    with pytest.raises(LabError, match="holds no checkpoint: no folder in it has weights"):
        find_checkpoints([tmp_path])
    with pytest.raises(LabError, match=r"Nothing is at .*checkpoint-"):
        find_checkpoints([str(tmp_path / "checkpoint-*")])
    with pytest.raises(LabError, match="No checkpoint was named"):
        find_checkpoints([])
    (tmp_path / "l.txt").write_text("# nothing\n")
    with pytest.raises(LabError, match="names no checkpoint"):
        find_checkpoints([tmp_path / "l.txt"])
    (tmp_path / "l.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(LabError, match="cannot be read"):
        find_checkpoints([tmp_path / "l.txt"])
