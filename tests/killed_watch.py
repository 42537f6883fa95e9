"""Train and be killed, again and again, and say after each death what the record holds.

    python -m tests.killed_watch FILE KILLS SEED

One process imports torch and forks for every life; the child goes on in the same record and says
after each update how far it is. A line of JSON per life: what the child has said, and what stands in
the record and in its ring.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import torch

import leadline
from leadline.record import Record
from leadline.record.run.ring import read_ring, ring_path
from leadline.record.run.watching import attempts_of
from tests.watched import LENGTH, VOCABULARY, tiny_gpt2

EVERY = 3


def live(path: Path, start: int, out: int) -> None:
    """Train until somebody ends it."""
    model = tiny_gpt2(dropout=0.0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tokens = torch.randint(VOCABULARY, (2, LENGTH))
    watch = leadline.watch(
        model, optimizer, path, every=EVERY, snapshot=True, start=start, quiet=True
    )
    while True:
        watch.batch(f"batch {watch.step + 1}")
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        os.write(out, f"{watch.step}\n".encode())


def die(path: Path, start: int, chance: random.Random) -> int:
    """Let a child live for a while and kill it; return the last update that it told of."""
    heard, told = os.pipe()
    child = os.fork()
    if child == 0:
        live(path, start, told)
    os.close(told)
    with os.fdopen(heard) as lines:
        lines.readline()  # it has begun
        # At any moment of its life: nothing tells when that is.
        threading.Event().wait(chance.uniform(0.0, 0.4))
        os.kill(child, signal.SIGKILL)
        said = [line for line in lines.read().splitlines(keepends=True) if line.endswith("\n")]
    os.waitpid(child, 0)
    return max([start + 1, *(int(line) for line in said)])


def what_is_left(path: Path) -> dict[str, Any]:
    """What the record and the ring hold."""
    with Record.open(path) as record:
        # A sample that the child did not live to tell of is read again by the next one.
        samples = Counter((row.step, row.run) for row in record.select("stream.norm"))
        ring = read_ring(ring_path(path))
        return {
            "integrity": record.integrity,
            "samples": sorted({step for step, _ in samples}),
            "sizes": sorted(set(samples.values())),
            "losses": sorted(row.step for row in record.select("train.loss")),
            "firsts": [one.first for one in attempts_of(record)],
            "ring": ring.steps,
            "batches": ring.batches,
        }


def warm_up() -> None:
    """Import what a life needs, so that no life is spent on it."""
    model = tiny_gpt2()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    tokens = torch.zeros(2, LENGTH, dtype=torch.long)
    with leadline.watch(model, optimizer, None, quiet=True):
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()


def main(path: Path, kills: int, seed: int) -> None:
    """Live and die, and say what is left."""
    torch.set_num_threads(1)
    warm_up()
    chance = random.Random(seed)
    start = 0
    for _ in range(kills):
        last = die(path, start, chance)
        print(json.dumps({"start": start, "last": last, **what_is_left(path)}), flush=True)
        start = last


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
