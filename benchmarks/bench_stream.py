"""What does streaming a model from its files cost, and how much memory does it save?

A Llama of 20 layers of width 1,280 with random weights, 1.6 GB in float32, written shard by shard and
measured with all default probes and gradients on 1 x 128 tokens: loaded whole, and streamed. Each
runs in a process of its own. Peak memory is the resident memory of the whole process (interpreter
and libraries among it, which are stated apart) and what the work adds to it. Time is that of loading
and measuring, with the files in the system's cache for both; seconds of the processor beside it. On
one thread: threads that wait for each other on a busy machine count as work.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from _harness import Result, median_with_interval

ROUNDS = 3
GIGABYTE = 1e9

_RUN = """
import json, sys, time
from pathlib import Path
import leadline, torch, transformers
from transformers import LlamaForCausalLM
from leadline.models.inputs import random_inputs
from leadline.models.loading import load_model

def status(key):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))

before = status("VmRSS")
Path("/proc/self/clear_refs").write_text("5")
start, processor = time.perf_counter(), time.process_time()
loaded = load_model(sys.argv[1], stream=sys.argv[2] == "streamed")
record = leadline.measure(loaded, random_inputs(loaded.model, examples=1, length=128))
print(json.dumps({
    "seconds": time.perf_counter() - start,
    "processor": time.process_time() - processor,
    "before": before,
    "peak": status("VmHWM"),
    "streaming": record.provenance.get("streaming", {}).get("peak_bytes"),
}))
"""


def measured(folder: Path, how: str) -> dict[str, Any]:
    """One measurement in a new process: seconds, and memory before it and at its highest."""
    command = [sys.executable, "-c", _RUN, str(folder), how]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    return json.loads(done.stdout.splitlines()[-1])


def run() -> Iterable[Result]:
    """Measure in turn, in memory and streamed."""
    from leadline.models.streaming.cost import LlamaSize
    from leadline.testing.large import write_llama

    with tempfile.TemporaryDirectory() as name:
        size = LlamaSize("bench", 20, 1280, 3456, 1280, 8000)
        total = write_llama(Path(name), size)
        rounds = [
            {how: measured(Path(name), how) for how in ("whole", "streamed")} for _ in range(ROUNDS)
        ]
    what = f"streaming, {total / GIGABYTE:.1f} GB with gradients"
    detail = {how: rounds[-1][how] for how in ("whole", "streamed")}
    targets = {"peak": 0.35, "added": 0.35, "seconds": 1.6, "processor": 1.6}
    words = {
        "peak": "peak memory of the process",
        "added": "peak memory above the interpreter's",
        "seconds": "time",
        "processor": "processor time",
    }
    for key, target in targets.items():
        values = np.asarray([_value(r["streamed"], key) / _value(r["whole"], key) for r in rounds])
        middle, low, high = median_with_interval(values)
        yield Result(
            f"{what}: {words[key]}",
            "streamed / in memory",
            middle,
            target,
            len(values),
            (low, high),
            detail=detail,
        )


def _value(one: dict[str, Any], key: str) -> float:
    return one["peak"] - one["before"] if key == "added" else one[key]
