"""How long does it take before anything can begin?

Seconds of `import leadline` in a new interpreter, and of building the task `stdlib`, which reads
and splits its text.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Sequence

import numpy as np

from _harness import Result, interleave, median_with_interval
from leadline.lab.tasks import TASKS

ROUNDS = 9
IMPORT_SECONDS, TASK_SECONDS = 0.1, 0.3
IMPORT = (
    "import time; start = time.perf_counter(); import leadline; print(time.perf_counter() - start)"
)


def run() -> Iterable[Result]:
    """One line for the import, one for the task."""
    times = [
        float(subprocess.check_output([sys.executable, "-c", IMPORT], text=True))
        for _ in range(ROUNDS)
    ]
    yield _seconds("import leadline", times, target=IMPORT_SECONDS)
    work = {"build": lambda: TASKS.build("stdlib")}
    times = interleave(work, rounds=ROUNDS, warmup=1)["build"]
    yield _seconds("building the task stdlib", times, target=TASK_SECONDS)


def _seconds(name: str, times: Sequence[float], *, target: float) -> Result:
    middle, low, high = median_with_interval(np.asarray(times))
    return Result(name, "seconds", middle, target, len(times), (low, high))
