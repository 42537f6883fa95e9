"""A ring holds the last updates, whatever ends the process that writes it."""

import json
import struct

import numpy as np
import pytest

from leadline.errors import RecordError
from leadline.record.run.ring import BATCH, FIRST_COLUMNS, Ring, read_ring, ring_path

SITES = [{"stack": "decoder", "layer": 1, "sublayer": 1}, {"stack": "model", "layer": 0}]


def filled(path, steps, *, slots=4):
    ring = Ring(path, SITES, slots=slots)
    for step in steps:
        ring.put(step, [step + 0.5, 1e-3, 2.0, 3.0 * step, float("nan")], batch=f"batch {step} ü")
    return ring


def test_constants():
    assert FIRST_COLUMNS == ("step", "loss", "rate", "gradient_norm")
    assert BATCH == 120


def test_it_stands_beside_its_record(tmp_path):
    assert ring_path(tmp_path / "run.leadline") == tmp_path / "run.leadline.ring"


@pytest.mark.parametrize("last", [1, 3, 4, 5, 11])
def test_the_last_updates_are_there_in_their_order(tmp_path, last):
    ring = filled(tmp_path / "a", range(1, last + 1))
    found = read_ring(tmp_path / "a")  # while it is open: nothing waits in a buffer
    steps = list(range(max(1, last - 3), last + 1))
    assert found.steps == steps
    assert found.sites == SITES
    assert found.batches == [f"batch {step} ü" for step in steps]
    assert found.rows[:, 1].tolist() == [step + 0.5 for step in steps]
    assert found.rows[:, 4].tolist() == [3.0 * step for step in steps]
    assert np.isnan(found.rows[:, 5]).all()
    ring.remove()
    assert not (tmp_path / "a").exists()


def test_the_layout_is_what_the_module_says(tmp_path):
    filled(tmp_path / "a", [6]).close()
    data = (tmp_path / "a").read_bytes()
    assert data[:16] == b"LEADLINE RING 1\n"
    (length,) = struct.unpack_from("<Q", data, 16)
    assert json.loads(data[24 : 24 + length]) == {"slots": 4, "sites": SITES}
    row = struct.unpack_from("<6d", data, 24 + length + (6 % 4) * 48)
    assert row[:5] == (6.0, 6.5, 1e-3, 2.0, 18.0)
    names = 24 + length + 4 * 48 + (6 % 4) * BATCH
    assert data[names:].startswith("batch 6 ü".encode() + b"\0")
    assert len(data) == 24 + length + 4 * (48 + BATCH)


def test_a_row_that_is_half_written_does_not_count(tmp_path, monkeypatch):
    ring = filled(tmp_path / "a", [1, 2, 3, 4])
    written = []
    write = ring._write

    def die(at, data):
        if len(written) == 3:  # after the numbers, before the step
            raise KeyboardInterrupt
        written.append(at)
        write(at, data)

    monkeypatch.setattr(ring, "_write", die)
    with pytest.raises(KeyboardInterrupt):
        ring.put(5, [0.0] * 5)
    assert read_ring(tmp_path / "a").steps == [2, 3, 4]
    ring.close()


def test_long_names_of_batches_are_cut_and_short_ones_replace_them(tmp_path):
    ring = Ring(tmp_path / "a", [], slots=1)
    ring.put(1, [0.0] * 3, batch="ü" * 100)
    assert read_ring(tmp_path / "a").batches == ["ü" * 60]
    ring.put(2, [0.0] * 3, batch="b")
    assert read_ring(tmp_path / "a").batches == ["b"]
    ring.put(3, [0.0] * 3)
    assert read_ring(tmp_path / "a").batches == [""]
    with pytest.raises(ValueError, match="4 values, and a row has 3"):
        ring.put(4, [0.0] * 4)
    ring.close()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"something else",
        b"LEADLINE RING 1\n",
        b"LEADLINE RING 1\n" + struct.pack("<Q", 4) + b"[1]!",
    ],
)
def test_what_is_no_ring_is_refused(tmp_path, data):
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(RecordError, match="does not hold the last updates"):
        read_ring(tmp_path / "a")


def test_a_ring_that_is_cut_short_is_refused_and_a_missing_one_too(tmp_path):
    filled(tmp_path / "a", [1]).close()
    (tmp_path / "a").write_bytes((tmp_path / "a").read_bytes()[:-5])
    with pytest.raises(RecordError, match="does not hold"):
        read_ring(tmp_path / "a")
    with pytest.raises(RecordError, match="No such file"):
        read_ring(tmp_path / "b")


def test_a_full_disk_is_an_error_and_does_not_end_the_process(tmp_path, monkeypatch):
    ring = Ring(tmp_path / "a", [], slots=2)

    class Full:
        def seek(self, at):
            pass

        def write(self, data):
            return 0

        def close(self):
            pass

    file, ring._file = ring._file, Full()
    with pytest.raises(OSError, match="No space"):
        ring.put(1, [0.0] * 3)
    ring._file = file
    ring.close()


def test_rows_become_readings_of_the_run_and_of_every_group(tmp_path):
    from leadline.instruments.passes.probes.gradient import PARAMETERS

    ring = Ring(tmp_path / "r", [{"stack": "decoder", "layer": 2}], slots=4)
    for step in (7, 8, 9):
        ring.put(step, [3.0, 1e-3, 1.5, 0.5])
    readings = read_ring(ring.path).readings(after=7, without=[8])
    assert {one.step for one in readings} == {9}
    values = {(one.quantity, one.site.layer): one.value for one in readings}
    assert values == {
        ("train.loss", 0): 3.0,
        ("train.rate", 0): 1e-3,
        ("train.gradient_norm", 0): 1.5,
        (PARAMETERS.name, 2): 0.5,
    }
    ring.remove()
