"""How long does a user wait for a command, beside a script that does the same by hand?

Every command is a process of its own, from its start to its end. `measure` is compared with a
process that does by hand what cannot be left out: it imports torch and transformers, draws the
weights of the same model, makes the same inputs, and runs one plain forward and one backward pass
with the loss. A round runs both. Records to report on and to compare are made first.

The file cache is warm: each command runs once before it is timed. How long a disk takes to read two
gigabytes of libraries for the first time is no property of the command. Bytecode is kept, as
an installation keeps it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np

from _harness import Result, interleave, median_with_interval, ratio

ROOT = Path(__file__).resolve().parent.parent
LEADLINE = [sys.executable, "-m", "leadline"]
QUICK, SLOW = 9, 5
"""Rounds of what takes a fraction of a second, and of what takes seconds."""
MODEL = ["--random-init", "gpt2"]
SIZES = ("1x128", "4x128")
BY_HAND = """
import sys, torch
from transformers import GPT2Config, GPT2LMHeadModel
examples, length = map(int, sys.argv[1].split("x"))
torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config()).eval()
ids = torch.randint(model.config.vocab_size, (examples, length))
logits = model(ids, use_cache=False).logits
torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()).backward()
"""
FIRST_NAMES = {
    "import leadline; leadline.Record": ("import leadline; leadline.Record", None),
    "import leadline; leadline.measure": ("import leadline; leadline.measure", None),
    "import torch alone": ("import torch", None),
}
COMMANDS = {
    "--help": 0.25,
    "measure --help": None,
    "diagnose --help": None,
    "list": None,
    "explain R01": None,
    "explain pre-norm": None,
}


def run() -> Iterable[Result]:
    """One line for each thing that is typed."""
    for name, (code, target) in FIRST_NAMES.items():
        yield _seconds(name, [sys.executable, "-c", code], target)
    for command, target in COMMANDS.items():
        yield _seconds(f"leadline {command}", [*LEADLINE, *command.split()], target)
    for size in SIZES:
        contenders = {
            "leadline measure": _process([*LEADLINE, "measure", *MODEL, "--random", size]),
            "by hand": _process([sys.executable, "-c", BY_HAND, size]),
        }
        times = interleave(contenders, rounds=SLOW, warmup=1)
        name = f"leadline measure, GPT-2 with random weights, {size}"
        yield ratio(times, "leadline measure", "by hand", name=name, target=1.5)
    with tempfile.TemporaryDirectory() as folder:
        yield from _reading(Path(folder))
    # On the tree that is installed here: make is told not to look whether that is up to date.
    make = ["make", "demo", f"VENV={sys.prefix}", "--old-file", f"{sys.prefix}/.ready-all"]
    yield _seconds("make demo", make, 20.0, rounds=3)


def _reading(folder: Path) -> Iterable[Result]:
    """What is done with records of a model of 12 layers, attention among them."""
    first, second = (str(folder / f"{seed}.leadline") for seed in (0, 1))
    probes = ["--probes", "default,attention"]
    for seed, file in enumerate((first, second)):
        command = [*LEADLINE, "measure", *MODEL, "--random", "1x128", *probes]
        _process([*command, "--seed", str(seed), "-o", file])()
    page = str(folder / "page.html")
    yield _seconds("leadline report, a page", [*LEADLINE, "report", first, "-o", page], 1.0)
    yield _seconds("leadline compare", [*LEADLINE, "compare", first, second], 1.0)
    command = [*LEADLINE, "compare", first, second, "-o", page]
    yield _seconds("leadline compare, a page", command, None)


def _seconds(name: str, command: list[str], target: float | None, *, rounds: int = QUICK) -> Result:
    times = interleave({name: _process(command)}, rounds=rounds, warmup=1)[name]
    middle, low, high = median_with_interval(np.asarray(times))
    return Result(name, "seconds", middle, target, rounds, (low, high))


def _process(command: list[str]) -> Callable[[], object]:
    def once() -> object:
        return subprocess.run(
            command,
            cwd=ROOT,
            env=_environment(os.environ),
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    return once


def _environment(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name != "PYTHONDONTWRITEBYTECODE"}
