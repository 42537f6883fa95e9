"""What do the gauges cost a training run, how fast does it train, and do two processes help?

`gauges` is fifty updates and one reading of the gauges against fifty updates alone, inside the
trainer. `tokens per second` is an update of the trainer, with its share of the gauges (one
reading in fifty updates), against a training loop around Hugging Face's GPT-2 and a block by hand
(the contenders of bench_throughput.py). `processes` trains four equal cells of a sweep with two
workers of one thread each, against one worker of one thread and one worker of two; starting the
workers is part of the time.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import torch

from _harness import Result, interleave, ratio
from bench_throughput import SIZES, Size, contenders
from leadline.lab.grid import Axis, Grid, Sweep
from leadline.lab.sweep import sweep
from leadline.lab.tasks import Batch, Task
from leadline.lab.trainer import Trainer
from leadline.lab.training import Training
from leadline.parts import Transformer

UPDATES = 50
ROUNDS = 7


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


def _trainer(size: Size, *, gauges: bool) -> Trainer:
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
        gauges=UPDATES if gauges else 0,
    )
    return Trainer(model, _Fixed(size), training)


def _updates(trainer: Trainer, count: int) -> Callable[[], object]:
    """So many updates with all that the trainer reads on the way."""

    def work() -> None:
        trainer.model.train()
        trainer._tokens = 0
        for _ in range(count):
            trainer._update()
            trainer._look()

    return work


def _cells(folder: Path, size: Size) -> dict[str, Callable[[], object]]:
    made = 0
    what = Sweep(
        name="speed",
        grids=(Grid((Axis.of("depth", size.depth),)),),
        seeds=(0, 1, 2, 3),
        fixed={
            "width": size.width,
            "heads": size.heads,
            "task": f"stdlib(length={size.context})",
            "batch": size.batch,
            "steps": 100,
        },
    )

    def work(workers: int, threads: int) -> Callable[[], object]:
        def run() -> None:
            nonlocal made
            made += 1
            sweep(what, folder / f"{made}.leadline", workers=workers, threads=threads).close()

        return run

    return {
        "two processes": work(2, 1),
        "one process": work(1, 1),
        "one process of two threads": work(1, 2),
    }


def run() -> Iterable[Result]:
    """Ratios as the module's first lines say."""
    for size in (SIZES[0], SIZES[2]):
        with_gauges, without = _trainer(size, gauges=True), _trainer(size, gauges=False)
        pair = {
            "with gauges": _updates(with_gauges, UPDATES),
            "without": _updates(without, UPDATES),
        }
        times = interleave(pair, rounds=ROUNDS, warmup=1)
        yield ratio(
            times,
            "with gauges",
            "without",
            name=f"gauges every {UPDATES} steps, {size}",
            target=1.03,
        )
        others = {
            name: step
            for name, step in contenders(size).items()
            if name in ("hugging face", "by hand")
        }

        def several(step: Callable[[], object]) -> Callable[[], object]:
            return lambda: [step() for _ in range(UPDATES)]

        field = {"trainer": _updates(_trainer(size, gauges=True), UPDATES)}
        field |= {name: several(step) for name, step in others.items()}
        times = interleave(field, rounds=3, warmup=1)
        for name, target in (
            ("hugging face", size.over_hugging_face),
            ("by hand", size.over_hand),
        ):
            yield ratio(
                times,
                name,
                "trainer",
                name=f"tokens per second of the trainer, {size}, against {name}",
                target=target,
                at_least=True,
            )
    with tempfile.TemporaryDirectory() as folder:
        times = interleave(
            _cells(Path(folder), Size(12, 64, 256, context=64, batch=16)), rounds=3, warmup=0
        )
    for other, target in (("one process", 1.8), ("one process of two threads", 1.4)):
        yield ratio(
            times,
            other,
            "two processes",
            name="a sweep of four cells",
            target=target,
            at_least=True,
        )
