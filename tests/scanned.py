"""Checkpoints on disk for scans: a training run of a tiny Transformer, cheap to make and to measure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

import leadline as ll
from leadline.lab.engines import Engine, News
from leadline.models.inputs.choice import InputChoice
from leadline.record import Record

__all__ = ["HereEngine", "expected_rows", "rows_of", "train_run"]

RECIPE = ll.Recipe(depth=2, width=16, heads=2, vocabulary=32, context=16)


def train_run(folder: Path, steps: Sequence[int], *, tokenizer: str | None = None) -> Path:
    """Train a model of two layers and save it at these steps, as the Trainer of Hugging Face does."""
    recipe = RECIPE.but(vocabulary=256) if tokenizer == "bytes" else RECIPE
    model = ll.Transformer(recipe, seed=0)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    draw = torch.Generator().manual_seed(0)
    for step in range(1, max(steps) + 1):
        ids = torch.randint(0, recipe.vocabulary, (4, 12), generator=draw)
        logits = model(ids)
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step in steps:
            place = folder / f"checkpoint-{step}"
            model.save(place, tokenizer=tokenizer)
            (place / "trainer_state.json").write_text(json.dumps({"global_step": step}))
            (place / "optimizer.pt").write_bytes(b"not for us")
    return folder


def rows_of(record: Record, run: str | None = None) -> Counter[str]:
    """The rows of a record, as texts: NaN equals NaN; without the name and the step of a run."""
    return Counter(repr(replace(row, run="", step=0)) for row in record.select(run=run))


def expected_rows(place: Path, *, name: str = "", step: int = 0) -> Counter[str]:
    """The rows of a checkpoint that is loaded and diagnosed alone, in this process."""
    loaded = ll.load(place)
    assert not isinstance(loaded, Record)
    record = ll.diagnose(loaded, InputChoice().read(loaded)).record
    return Counter(repr(replace(row, run=name, step=step)) for row in record.select())


class HereEngine(Engine):
    """Checkpoints in this process, one after the other; `stop` interrupts after so many."""

    ran: list[str] = []  # noqa: RUF012
    stop: int | None = None

    def run(self, jobs, orders):
        for job in jobs:
            if self.stop is not None and len(self.ran) >= self.stop:
                raise KeyboardInterrupt
            yield News(job.cell.run)
            type(self).ran.append(job.cell.run)
            yield job.cell.perform(None, orders, lambda _: None)
