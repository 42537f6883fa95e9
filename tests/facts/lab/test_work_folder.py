"""The folder beside a record: one sweep at a time, one folder per cell, nothing left over."""

import pytest

from leadline.errors import LabError
from leadline.lab.cell import Paused, run_cell
from leadline.lab.work_folder import (
    LOCK,
    cell_folder,
    remove_cell,
    saved_step,
    working_folder,
)


def test_the_folder_is_gone_when_nothing_is_left_in_it(tmp_path):
    with working_folder(tmp_path / "s.leadline") as folder:
        assert folder == tmp_path / "s.leadline.work"
        assert (folder / LOCK).exists()
    assert list(tmp_path.iterdir()) == []


def test_what_unfinished_cells_need_stays(tmp_path):
    with working_folder(tmp_path / "s") as folder:
        cell_folder(folder, "a").mkdir()
    with working_folder(tmp_path / "s") as folder:
        assert cell_folder(folder, "a").is_dir()
        remove_cell(folder, "a")
    assert list(tmp_path.iterdir()) == []


def test_two_at_a_time_are_refused_and_one_after_the_other_are_not(tmp_path):
    with (
        working_folder(tmp_path / "s"),
        pytest.raises(LabError, match="Another sweep is working"),
        working_folder(tmp_path / "s"),
    ):
        pass
    with working_folder(tmp_path / "s"), working_folder(tmp_path / "other"):
        pass


def test_a_folder_that_cannot_be_made_is_a_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(LabError, match="cannot be written: Not a directory"),
        working_folder(tmp_path / "file" / "s"),
    ):
        pass


def test_cells_with_like_names_have_folders_of_their_own(tmp_path):
    one = cell_folder(tmp_path, "connection=hyper(lanes=4), depth=12, placement=post, seed=1")
    other = cell_folder(tmp_path, "connection=hyper(lanes=4), depth=12, placement=post, seed=2")
    assert one != other
    assert one.name.startswith("connection-hyper-lanes-4-depth-12")
    assert len(one.name) <= 51
    assert cell_folder(tmp_path, "a/../b").parent == tmp_path


def test_the_step_of_a_checkpoint_is_read_without_its_tensors(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr("leadline.lab.trainer.BEAT", 0.0)
    assert saved_step(tmp_path) == -1

    def pause(beat):
        if beat.step == 4:
            raise Paused

    with pytest.raises(Paused):
        run_cell(tiny("depth=1").cells()[0], folder=tmp_path, beat=pause)
    assert saved_step(tmp_path) == 4
    next(tmp_path.iterdir()).write_bytes(b"broken")
    assert saved_step(tmp_path) == -1
