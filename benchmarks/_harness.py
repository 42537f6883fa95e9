"""How things are compared: interleaved, in one process, as ratios with an interval.

A round runs every contender once, and each round starts with another one, so that a slow drift of
the machine falls on all alike. The ratio is taken within each round; reported are the median over
the rounds and its 95 % interval by the bootstrap (percentiles of the medians of resampled rounds).

Peak memory is taken in a process of its own: what `work` adds to the resident memory at its
highest, above what stood before it.

A benchmark is a file `bench_NAME.py` with a docstring that asks a question and a function
`run() -> Iterable[Result]`.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import importlib.util
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

__all__ = [
    "Peak",
    "Result",
    "exponent",
    "interleave",
    "load_file",
    "median_with_interval",
    "peak_memory",
    "ratio",
]

Times = dict[str, list[float]]


@dataclass(frozen=True)
class Result:
    """One line of the table. `spread` is the 95 % interval of the ratio.

    The target is the most that the ratio may be, or the least where `at_least`.
    """

    name: str
    compared: str
    ratio: float
    target: float | None
    repetitions: int
    spread: tuple[float, float]
    met: bool | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)
    at_least: bool = False

    def __post_init__(self) -> None:
        if self.met is None and self.target is not None:
            met = self.ratio >= self.target if self.at_least else self.ratio <= self.target
            object.__setattr__(self, "met", met)

    def to_json(self) -> dict[str, Any]:
        """Return the result as it stands in results.json."""
        return asdict(self) | {"spread": list(self.spread), "detail": dict(self.detail)}


def interleave(
    contenders: Mapping[str, Callable[[], object]],
    *,
    rounds: int = 15,
    warmup: int = 2,
    clock: Callable[[], float] = time.perf_counter,
) -> Times:
    """Time every contender once per round, in rotating order; return seconds by name."""
    names = list(contenders)
    for _ in range(warmup):
        for name in names:
            contenders[name]()
    times: Times = {name: [] for name in names}
    for number in range(rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            with _without_collector():
                start = clock()
                contenders[name]()
                times[name].append(clock() - start)
    return times


def ratio(
    times: Times,
    contender: str,
    baseline: str,
    *,
    name: str,
    target: float | None = None,
    detail: Mapping[str, Any] | None = None,
    at_least: bool = False,
) -> Result:
    """Return the ratio of two contenders of one interleaved run."""
    quotients = np.asarray(times[contender]) / np.asarray(times[baseline])
    middle, low, high = median_with_interval(quotients)
    seconds = {each: float(np.median(times[each])) for each in (contender, baseline)}
    return Result(
        name=name,
        compared=f"{contender} / {baseline}",
        ratio=middle,
        target=target,
        repetitions=len(quotients),
        spread=(low, high),
        detail={"seconds": seconds, **(detail or {})},
        at_least=at_least,
    )


def median_with_interval(
    values: Sequence[float] | np.ndarray, *, resamples: int = 10_000, seed: int = 0
) -> tuple[float, float, float]:
    """Return the median and its 95 % bootstrap interval."""
    sample = np.asarray(values, dtype=np.float64)
    draws = np.random.default_rng(seed).integers(len(sample), size=(resamples, len(sample)))
    low, high = np.quantile(np.median(sample[draws], axis=1), [0.025, 0.975])
    return float(np.median(sample)), float(low), float(high)


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Return b of the least-squares line log(value) = a + b log(size): 1 is linear growth."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


@dataclass(frozen=True)
class Peak:
    """Resident memory in bytes: before the work, and at its highest during it."""

    before: int
    highest: int

    @property
    def added(self) -> int:
        """What the work added at its highest."""
        return self.highest - self.before


def peak_memory(file: str | Path, function: str, *arguments: str) -> Peak:
    """Measure in a new process the peak of what `function` of `file` returns.

    `function(*arguments)` prepares and returns the work, a callable; only the work is measured.
    """
    command = [sys.executable, __file__, str(file), function, *arguments]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return Peak(**json.loads(done.stdout.splitlines()[-1]))


def load_file(path: str | Path) -> ModuleType:
    """Import a Python file by its path."""
    path = Path(path)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


@contextmanager
def _without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _measure_peak(work: Callable[[], object]) -> Peak:
    """Run `work` in this process; Linux keeps the high-water mark, elsewhere a thread samples."""
    gc.collect()
    _give_memory_back()
    if _forget_peak():
        before = _status("VmRSS")
        work()
        return Peak(before, max(before, _status("VmHWM")))
    import psutil

    process, finished, samples = psutil.Process(), threading.Event(), [0]

    def sample() -> None:
        while not finished.wait(0.001):
            samples.append(process.memory_info().rss)

    before = process.memory_info().rss
    thread = threading.Thread(target=sample)
    thread.start()
    try:
        work()
    finally:
        finished.set()
        thread.join()
    return Peak(before, max(before, *samples))


def _give_memory_back() -> None:
    """Return freed pages to the system, so that they count as new when they are used again."""
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    except (OSError, AttributeError):
        return


def _forget_peak() -> bool:
    """Reset the high-water mark of this process; say whether that worked."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
        _status("VmHWM")
    except (OSError, LookupError):
        return False
    return True


def _status(key: str) -> int:
    """Read one line of /proc/self/status, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == key:
            return int(value.split()[0]) * 1024
    raise LookupError(key)


def _main() -> None:
    parser = argparse.ArgumentParser(description="Measure the peak memory of one function.")
    parser.add_argument("file")
    parser.add_argument("function")
    parser.add_argument("arguments", nargs="*")
    asked = parser.parse_args()
    work = getattr(load_file(asked.file), asked.function)(*asked.arguments)
    print(json.dumps(asdict(_measure_peak(work))))


if __name__ == "__main__":
    _main()
