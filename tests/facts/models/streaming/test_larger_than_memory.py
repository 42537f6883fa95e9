"""A model is measured with its gradients in a quarter of the memory that its weights take."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from leadline.models.streaming.cost import LlamaSize

pytest.importorskip("transformers")
pytest.importorskip("safetensors")

RUN = """
import json, sys
from pathlib import Path
import leadline
from transformers import LlamaForCausalLM
from leadline.models.inputs import random_inputs
from leadline.models.loading import load_model

def status(key):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))

before = status("VmRSS")
Path("/proc/self/clear_refs").write_text("5")
loaded = load_model(sys.argv[1], stream=sys.argv[2] == "streamed")
record = leadline.measure(loaded, random_inputs(loaded.model, examples=1, length=32))
values = [[r.quantity, str(r.site), r.statistic, r.value] for r in record.select()]
print(json.dumps({
    "before": before, "peak": status("VmHWM"), "values": values,
    "streaming": record.provenance.get("streaming"),
}))
"""


def measured(folder, how):
    """One measurement in a process of its own, and the most memory that it ever had."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(folder), how],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_peak_memory_is_at_most_035_of_the_one_in_memory(tmp_path):
    from leadline.testing.large import write_llama

    total = write_llama(tmp_path, LlamaSize("1 GB", 20, 1280, 3456, 1280, 8000))
    assert total > 1.5e9
    streamed, whole = (measured(tmp_path, how) for how in ("streamed", "whole"))
    assert streamed["values"] == whole["values"]
    # With the interpreter and its libraries in both, and without.
    assert streamed["peak"] <= 0.35 * whole["peak"]
    added = streamed["peak"] - streamed["before"]
    assert added <= 0.35 * (whole["peak"] - whole["before"])
    assert whole["streaming"] is None


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_four_gigabytes_are_measured_with_gradients_in_one(tmp_path):
    from leadline.testing.large import write_llama

    total = write_llama(tmp_path, LlamaSize("4 GB", 20, 2048, 5632, 2048, 8000))
    assert total >= 4e9
    streamed = measured(tmp_path, "streamed")
    assert streamed["peak"] - streamed["before"] <= total / 4
    assert streamed["peak"] <= total / 4  # with the interpreter and its libraries
    facts = streamed["streaming"]
    assert facts["recomputed_blocks"] == facts["blocks"] == 20
    assert facts["bytes"] == total
    assert any(quantity == "gradient.parameters" for quantity, *_ in streamed["values"])
