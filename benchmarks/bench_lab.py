"""What do the gauges cost a training run, how fast does it train, and do two processes help?

`gauges` is an update of the trainer with its share of the gauges (a fiftieth of a reading) against
the update alone. `tokens per second` is the same against a step of a training loop around Hugging Face's GPT-2 and a block by hand
(the contenders of bench_throughput.py). `a sweep of four cells` is the same sweep with two
workers of one thread each, against one worker of one thread and one worker of two, from the first
sign of a worker on: starting one takes seconds, whatever it trains.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

from _harness import Result, interleave, ratio
from bench_throughput import SIZES, Size, contenders
from leadline.lab.engines import News
from leadline.lab.grid import Sweep
from leadline.lab.sweep import sweep
from leadline.lab.tasks import Batch, Task
from leadline.lab.trainer import Trainer
from leadline.lab.training import Training
from leadline.parts import Transformer

UPDATES = 50
ROUNDS = 9


class _Fixed(Task):
    """The same ids at every step: the task of bench_throughput.py."""

    name = "fixed"

    def __init__(self, size: Size) -> None:
        self.vocabulary, self.length = size.vocabulary, size.context
        drawn = torch.Generator().manual_seed(0)
        ids = torch.randint(size.vocabulary, (size.batch, size.context), generator=drawn)
        targets = ids.roll(-1, 1)
        targets[:, -1] = -100
        self._batch = Batch(ids, targets)

    def train(self, step: int, examples: int, *, seed: int) -> Batch:
        return self._batch

    def validation(self, examples: int) -> Batch:
        return Batch(self._batch.ids[:examples], self._batch.targets[:examples])


def _trainer(size: Size) -> Trainer:
    model = Transformer(
        depth=size.depth,
        width=size.width,
        heads=size.heads,
        context=size.context,
        vocabulary=size.vocabulary,
        head="tied",
    )
    training = Training(
        task="identity",
        steps=10**9,
        batch=size.batch,
        rate=1e-4,
        validate=0,
        examples=size.batch,
        gauges=0,
    )
    return Trainer(model, _Fixed(size), training)


def _parts(trainer: Trainer) -> dict[str, Callable[[], object]]:
    """One update with its row, and one reading of the gauges."""
    trainer.model.train()
    trainer._tokens = 0

    def update() -> None:
        trainer._update()
        trainer._read_due(last=False)

    return {
        "update": update,
        "reading": lambda: trainer._gauges.read(run_name="", step=trainer.step, seed=0),
    }


SWEEPS = {
    "12 layers, width 64": {"depth": 12, "width": 64, "heads": 4, "batch": 16, "steps": 100},
    "a tower of 100 MLPs, width 32": {
        "depth": 100,
        "width": 32,
        "heads": 1,
        "attention": "none",
        "positions": "none",
        "mlp": "relu(hidden=32)",
        "batch": 8,
        "steps": 100,
    },
}
WAYS = {"two processes": (2, 1), "one process": (1, 1), "one process of two threads": (1, 2)}


def _seconds(fields: dict[str, Any], path: Path, workers: int, threads: int) -> float:
    """How long four cells take, from the first sign of a worker on."""
    began: list[float] = []

    def see(event: object) -> None:
        if isinstance(event, News) and event.beat is not None and not began:
            began.append(time.perf_counter())

    fixed = {k: v for k, v in fields.items() if k != "depth"} | {"task": "stdlib(length=64)"}
    what = Sweep.over({"depth": [fields["depth"]]}, seeds=4, fixed=fixed)
    sweep(what, path, workers=workers, threads=threads, progress=see).close()
    return time.perf_counter() - began[0]


def _sweeps() -> Iterable[Result]:
    for name, fields in SWEEPS.items():
        times: dict[str, list[float]] = {way: [] for way in WAYS}
        with tempfile.TemporaryDirectory() as folder:
            for number in range(3):
                for way, (workers, threads) in WAYS.items():
                    path = Path(folder) / f"{way} {number}.leadline"
                    times[way].append(_seconds(fields, path, workers, threads))
        for other, target in (("one process", 1.8), ("one process of two threads", 1.4)):
            yield ratio(
                times,
                other,
                "two processes",
                name=f"a sweep of four cells, {name}",
                target=target,
                at_least=True,
            )


def run() -> Iterable[Result]:
    """Ratios as the module's first lines say."""
    for size in (SIZES[0], SIZES[2]):
        field = _parts(_trainer(size))
        field |= {
            n: step for n, step in contenders(size).items() if n in ("hugging face", "by hand")
        }
        times = interleave(field, rounds=ROUNDS, warmup=2)
        pairs = list(zip(times["update"], times["reading"], strict=True))
        times["with gauges"] = [update + reading / UPDATES for update, reading in pairs]
        yield ratio(
            times,
            "with gauges",
            "update",
            name=f"gauges every {UPDATES} steps, {size}",
            target=1.03,
        )
        for name, target in (
            ("hugging face", size.over_hugging_face),
            ("by hand", size.over_hand),
        ):
            yield ratio(
                times,
                name,
                "with gauges",
                name=f"tokens per second of the trainer, {size}, against {name}",
                target=target,
                at_least=True,
            )
    yield from _sweeps()
