"""Pages of files come and go without changing a number; what was written stays."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
import torch

from leadline.models.streaming.mapped import FileMappings, Region, joined
from leadline.models.streaming.memory import MemoryPeaks, return_freed_memory
from leadline.models.streaming.scratch import Scratch

safetensors = pytest.importorskip("safetensors.torch")

COUNT = 4 * 2**20


def resident(kind):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(kind))


@pytest.fixture
def tensor(tmp_path):
    """Sixteen megabytes of a file."""
    values = torch.arange(COUNT, dtype=torch.float32)
    safetensors.save_file({"values": values}, tmp_path / "one.safetensors")
    return safetensors.load_file(tmp_path / "one.safetensors")["values"]


def test_pages_that_are_given_back_leave_memory_and_come_again(tensor):
    region = FileMappings().region_of(tensor)
    assert region is not None
    assert not region.shared
    total = float(tensor.double().sum())
    full = resident("RssFile")
    assert region.give_back()
    assert resident("RssFile") < full - 0.9 * tensor.nbytes
    assert float(tensor.double().sum()) == total == COUNT * (COUNT - 1) / 2


def test_a_written_page_is_never_given_back(tensor):
    region = FileMappings().region_of(tensor)
    assert region is not None
    tensor[COUNT // 2] = -1.0
    assert not region.give_back()
    assert float(tensor[COUNT // 2]) == -1.0


def test_memory_of_its_own_lies_in_no_file():
    assert FileMappings().region_of(torch.ones(COUNT)) is None
    assert FileMappings().region_of(torch.empty(0)) is None


def test_regions_are_rounded_inward_and_joined_over_less_than_a_page():
    page = 4096
    assert Region(page + 1, 3 * page + 1, False).pages == (2 * page, 3 * page)
    near, far = Region(0, 100, False), Region(5000, 9000, False)
    assert joined([far, Region(300, 400, False), near]) == [Region(0, 400, False), far]
    assert joined([near, Region(50, 80, False)]) == [near]
    assert len(joined([near, Region(100, 200, True)])) == 2


def test_scratch_keeps_values_in_a_file_without_a_name(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    scratch = Scratch(tmp_path)
    values = torch.randn(300, 500).to(torch.bfloat16)
    kept = scratch.keep(values)
    assert torch.equal(kept, values)
    region = FileMappings().region_of(kept)
    assert region is not None
    assert region.shared
    kept[0, 0] = 7.0  # goes to the file, so that it may be given back
    assert region.give_back()
    assert float(kept[0, 0]) == 7.0
    assert list(tmp_path.iterdir()) == []
    assert (scratch.tensors, scratch.bytes) == (1, values.nbytes)


def test_a_file_that_another_thread_lets_go_of_is_passed_by(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    scratch = Scratch(tmp_path)
    kept = [scratch.keep(torch.randn(300, 500)) for _ in range(2)]
    states = []

    def listed(self, is_wanted):
        regions = [self.region_of(one) for one in kept]
        kept.pop(0)  # gone between the look and the advice
        states.append(gc.isenabled())
        return regions

    monkeypatch.setattr(FileMappings, "of_files", listed)
    values = kept[1].clone()
    scratch.let_go()
    assert torch.equal(kept[0], values)
    assert states == [False] and gc.isenabled()


def test_parameters_that_are_set_meanwhile_are_caught(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    scratch = Scratch(tmp_path)
    with scratch.catching():
        caught = torch.nn.Linear(256, 256)
    free = torch.nn.Linear(256, 256)
    mappings = FileMappings()
    assert mappings.region_of(caught.weight) is not None
    assert mappings.region_of(caught.bias) is None  # small
    assert mappings.region_of(free.weight) is None
    assert float(caught.weight.detach().std()) > 0  # drawn after it was caught


def test_a_full_disk_is_said_before_anything_is_written(tmp_path, monkeypatch):
    from leadline.errors import LoadingError

    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    scratch = Scratch(tmp_path)
    with pytest.raises(LoadingError, match=r"1,000,000\.0 GB .* are free there; set TMPDIR"):
        scratch.expect(10**15)

    def no_room(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", no_room)
    with pytest.raises(LoadingError, match=r"cannot be kept in .*No space left"):
        scratch.keep(torch.ones(100))
    assert list(tmp_path.iterdir()) == []


def test_peaks_tell_own_memory_from_that_of_files(tensor):
    return_freed_memory()
    peaks = MemoryPeaks()
    peaks.look()
    own, files = peaks.own, peaks.files
    float(tensor.sum())
    block = torch.ones(8 * COUNT)
    peaks.look()
    assert peaks.files >= files + 0.9 * tensor.nbytes
    assert peaks.own >= own + 0.9 * block.nbytes
    assert peaks.both <= peaks.own + peaks.files
