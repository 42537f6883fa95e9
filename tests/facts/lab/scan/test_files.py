"""The files of a checkpoint: when they count as changed, and how much memory the model needs."""

import os
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import save_file

from leadline.lab.scan import files
from leadline.lab.scan.files import ALLOWANCE, COPIES, fingerprint, free_memory, memory_needed
from leadline.lab.scan.sources import CheckpointSource


@pytest.fixture
def place(tmp_path):
    weights = {"a": np.zeros((3, 5), np.float32), "b": np.zeros(7, np.float16)}
    save_file(weights, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text("{}")
    return tmp_path


def source(place):
    return CheckpointSource("x", str(place))


def test_a_fingerprint_changes_with_the_files_that_loading_reads(place):
    first = fingerprint(source(place))
    assert first == fingerprint(source(place))
    for name in ("trainer_state.json", "optimizer.pt", "README.md"):
        (place / name).write_text("{}")
    assert fingerprint(source(place)) == first
    (place / "config.json").write_text('{"a": 1}')
    second = fingerprint(source(place))
    assert second != first
    os.utime(place / "model.safetensors", ns=(1, 1))
    assert fingerprint(source(place)) != second


def test_what_is_no_path_has_no_fingerprint_and_no_size():
    assert fingerprint(source("owner/model")) == ""
    assert memory_needed(source("owner/model")) is None


def test_memory_is_four_times_the_weights_and_three_hundred_mebibytes(place):
    assert (COPIES, ALLOWANCE) == (4, 300 * 1024 * 1024)
    stored = 3 * 5 * 4 + 7 * 2
    assert memory_needed(source(place)) == 4 * stored + ALLOWANCE
    assert memory_needed(source(place), dtype="bfloat16") == 4 * 22 * 2 + ALLOWANCE
    assert memory_needed(source(place), dtype="float64") == 4 * 22 * 8 + ALLOWANCE


@pytest.mark.parametrize("content", [b"", b"1234567", b"\xff" * 30, b"\x02" + b"\0" * 7 + b"[]"])
def test_damaged_weights_have_no_size(place, content):
    (place / "model.safetensors").write_bytes(content)
    assert memory_needed(source(place)) is None


def test_free_memory_is_what_the_system_says(monkeypatch):
    psutil = pytest.importorskip("psutil")
    assert free_memory() == pytest.approx(psutil.virtual_memory().available, rel=0.2)
    monkeypatch.setattr(files, "Path", lambda _: files.__path__)
    with pytest.raises(AttributeError):
        free_memory()


@pytest.mark.slow
def test_a_model_takes_no_more_memory_than_is_said(tmp_path):
    script = (
        "import sys, transformers\n"
        "from leadline.lab.engines.engine import Orders\n"
        "from leadline.lab.scan.examination import CheckpointWork\n"
        "from leadline.lab.scan.files import memory_needed\n"
        "from leadline.lab.scan.settings import ScanSettings\n"
        "from leadline.lab.scan.sources import CheckpointSource\n"
        "import leadline.instruments.visit.visit\n"
        "def of(key):\n"
        "    lines = open('/proc/self/status').read().splitlines()\n"
        "    return int(next(x for x in lines if x.startswith(key)).split()[1]) * 1024\n"
        "one = CheckpointSource('x', sys.argv[1])\n"
        "before = of('VmRSS')\n"
        "done = CheckpointWork('x', one, '', ScanSettings()).perform(None, Orders(), lambda b: 0)\n"
        "assert done.facts['status'] == 'measured', done.facts\n"
        "print((of('VmHWM') - before) / memory_needed(one))\n"
    )
    make = (
        "import sys, transformers\n"
        "c = transformers.GPT2Config(n_layer=8, n_embd=512, n_head=8, vocab_size=4000)\n"
        "transformers.GPT2LMHeadModel(c).save_pretrained(sys.argv[1])\n"
    )
    for text in (make, script):
        done = subprocess.run(
            [sys.executable, "-c", text, tmp_path], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    assert 0.4 < float(done.stdout.split()[-1]) < 1.0
