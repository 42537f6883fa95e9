"""What does watching a training loop cost?

A GPT-2-like model of transformers (12 layers, width 256, 4 heads, vocabulary 2,048, dropout 0.1),
AdamW, batches of 8 x 128 tokens, gradients clipped. Copies of one model take the same step in turn:

    plain       the loop alone
    idle        watched, in an update that is not sampled
    sampled     watched, in a sampled update: stream, tokens, updates, gradients, optimizer, the rows
                written to a file, the alarms asked
    attention   the same with the logits of attention
    ring        watched with `snapshot=True`, in an update that is not sampled

What a run pays with every=50 and every=10 follows from idle and sampled:
1 + ((every - 1) (idle - 1) + (sampled - 1)) / every.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from _harness import Result, interleave, median_with_interval, ratio

ROUNDS = 21
NEVER = 10**9


def contender(folder: Path, name: str, **options: Any) -> Callable[[], None]:
    """One loop with a model of its own, watched if it has options; a call makes one update."""
    from transformers import GPT2Config, GPT2LMHeadModel

    import leadline

    torch.manual_seed(0)
    config = GPT2Config(
        n_layer=12, n_embd=256, n_head=4, vocab_size=2048, n_positions=128, use_cache=False
    )
    model = GPT2LMHeadModel(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    ids = torch.randint(0, 2048, (8, 128), generator=torch.Generator().manual_seed(1))
    if options:
        leadline.watch(model, optimizer, folder / f"{name}.leadline", quiet=True, **options)

    def update() -> None:
        model(input_ids=ids, labels=ids).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return update


def run() -> Iterable[Result]:
    """Compare the loops."""
    logging.getLogger("leadline.watch").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        times = interleave(
            {
                "plain": contender(folder, "plain"),
                "idle": contender(folder, "idle", every=NEVER),
                "sampled": contender(folder, "sampled", every=1),
                "attention": contender(folder, "attention", every=1, attention=True),
                "ring": contender(folder, "ring", every=NEVER, snapshot=True),
            },
            rounds=ROUNDS,
            warmup=3,
        )
    what = "watch, 12 x 256, 8 x 128 tokens"
    yield ratio(times, "idle", "plain", name=f"{what}: idle update", target=1.005)
    yield ratio(times, "sampled", "plain", name=f"{what}: sampled update", target=1.15)
    yield ratio(times, "attention", "plain", name=f"{what}: sampled update with attention")
    yield ratio(times, "ring", "plain", name=f"{what}: idle update with snapshot")
    plain = np.asarray(times["plain"])
    for every, target in ((50, 1.005), (10, 1.02)):
        extra = (every - 1) * (np.asarray(times["idle"]) / plain - 1)
        extra = extra + np.asarray(times["sampled"]) / plain - 1
        middle, low, high = median_with_interval(1 + extra / every)
        yield Result(
            f"{what}: every={every}",
            "watched run / plain run",
            middle,
            target,
            len(plain),
            (low, high),
        )
