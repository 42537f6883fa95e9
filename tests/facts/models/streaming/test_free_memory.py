"""Free memory is that of the machine, or of the container or job that this process runs in."""

from __future__ import annotations

import pytest

from leadline.models.streaming import memory

MB = 2**20


@pytest.fixture
def groups(tmp_path, monkeypatch):
    """A tree of control groups, and the groups of this process."""
    monkeypatch.setattr(memory, "GROUPS", tmp_path / "groups")
    monkeypatch.setattr(memory, "OWN_GROUPS", tmp_path / "own")

    def write(own, groups):
        (tmp_path / "own").write_text(own)
        for place, files in groups.items():
            folder = tmp_path / "groups" / place
            folder.mkdir(parents=True, exist_ok=True)
            for name, value in files.items():
                (folder / name).write_text(f"{value}\n")

    return write


def test_without_limits_it_is_what_the_machine_has(groups):
    machine = memory.free_memory()
    groups("0::/job\n", {"job": {"memory.max": "max", "memory.current": 5 * MB}})
    assert memory.free_memory() == pytest.approx(machine, rel=0.3)
    assert memory.free_memory() > 100 * MB


def test_a_limited_job_has_what_its_limit_leaves(groups):
    stat = f"anon {MB}\nactive_file {2 * MB}\ninactive_file {MB}"
    job = {"memory.max": 50 * MB, "memory.current": 20 * MB, "memory.stat": stat}
    groups("0::/slice/job\n", {"slice/job": job})
    assert memory.free_memory() == (50 - (20 - 3)) * MB
    # A limit above it counts as well.
    groups("0::/slice/job\n", {"slice": job | {"memory.max": 30 * MB}})
    assert memory.free_memory() == (30 - (20 - 3)) * MB
    groups("0::/slice/job\n", {"slice": job | {"memory.max": 3 * MB}})
    assert memory.free_memory() == 0


def test_a_container_sees_its_own_group_as_the_root(groups):
    stat = f"total_active_file 0\ntotal_inactive_file {4 * MB}"
    root = {
        "memory.limit_in_bytes": 64 * MB,
        "memory.usage_in_bytes": 10 * MB,
        "memory.stat": stat,
    }
    groups("9:name=systemd:/\n4:cpu,memory:/docker/of-the-host\n", {"memory": root})
    assert memory.free_memory() == (64 - (10 - 4)) * MB
