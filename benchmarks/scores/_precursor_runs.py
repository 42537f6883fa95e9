"""One small training run under `ll.watch`, and the update at which it fails, by its losses alone.

The runs of the benchmark of precursors stand in `_precursor_sets.py`. What a run does follows from its
fields and its seed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["EVERY", "LASTING", "MARGIN", "Run", "failure", "failure_beside", "rate_at", "train"]

MARGIN = 0.5
"""Nats by which the loss has to stand above the lowest it has had (or above its twin's)."""
LASTING = 15
"""So many updates in a row, or until the loss is not finite."""
SMOOTH = 5
"""The loss is the median of so many updates."""
EVERY = 5
"""A sample is taken every so many updates."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One training run. `kind` is the way in which it fails, empty where it is healthy.

    The rate is `rate * min(1, s / warmup)`; from `climb[0]` on it rises exponentially to `climb[2]`
    at `climb[1]`; with `cosine` it falls to a tenth. `before` updates are made unwatched, with AdamW
    at `before_rate` and beta2 0.95. `noise` is the share of the targets that are any symbol. From
    `shift` on a share `shifted` of the targets is the next symbol and the rate is `late_rate`; both
    rise to that within `shift_within` updates. `qk` multiplies the rate of the projections to
    queries, keys and values.
    """

    name: str
    kind: str = ""
    seed: int = 0
    task: str = "sorting"
    recipe: dict[str, Any] = field(default_factory=dict[str, Any])
    steps: int = 300
    batch: int = 16
    optimizer: str = "adamw"
    rate: float = 2e-3
    warmup: int = 20
    climb: tuple[int, int, float] | None = None
    cosine: bool = False
    beta2: float = 0.95
    decay: float = 0.0
    clip: float | None = None
    qk: float = 1.0
    before: int = 0
    before_rate: float = 2e-3
    noise: float = 0.0
    shift: int | None = None
    shifted: float = 0.03
    shift_within: int = 1
    late_rate: float = 0.0
    twin: bool = False
    """Whether it never learns, and a run with warm-up says when it should have."""

    @property
    def healthy_twin(self) -> Run:
        """The same run with warm-up."""
        return replace(
            self, name=f"{self.name}, with warm-up", kind="", twin=False, warmup=self.steps // 2
        )

    @property
    def label(self) -> str:
        """Name and seed."""
        return f"{self.name}/{self.seed}"


def rate_at(run: Run, step: int) -> float:
    """The learning rate of an update, counted from 1."""
    rate = run.rate * (min(1.0, step / run.warmup) if run.warmup else 1.0)
    if run.climb is not None and step > run.climb[0]:
        first, last, peak = run.climb
        rate *= (peak / run.rate) ** min(1.0, (step - first) / (last - first))
    if run.cosine:
        rate *= 0.1 + 0.9 * (1.0 + math.cos(math.pi * step / run.steps)) / 2.0
    if run.shift is not None and run.late_rate and step >= run.shift:
        share = min(1.0, (step - run.shift + 1) / run.shift_within)
        rate += share * (run.late_rate - rate)
    return rate


def failure(losses: Sequence[float]) -> int | None:
    """Return the update at which a run fails, None where it does not.

    It is the first whose loss is not finite, or the first whose loss stands `MARGIN` above the lowest
    so far where the median of five then stays there for `LASTING` updates or until it is not finite.
    """
    values = np.asarray(losses, dtype=float)
    broken = np.flatnonzero(~np.isfinite(values))
    end = int(broken[0]) if len(broken) else len(values)
    smooth = np.array([np.median(values[max(0, i - SMOOTH + 1) : i + 1]) for i in range(end)])
    lowest = np.minimum.accumulate(smooth)
    above = smooth > lowest + MARGIN
    for at in np.flatnonzero(above):
        stretch = above[at : at + LASTING]
        if stretch.all() and (len(stretch) == LASTING or len(broken)):
            level = lowest[at] + MARGIN
            window = range(max(0, at - SMOOTH + 1), at + 1)
            return next(i for i in window if values[i] > level) + 1
    return end + 1 if len(broken) else None


def failure_beside(losses: Sequence[float], twin: Sequence[float]) -> int | None:
    """Return the update from which on a run stays `MARGIN` above its twin, None where it does not."""
    ours, theirs = np.asarray(losses, dtype=float), np.asarray(twin, dtype=float)
    smooth = [
        np.array([np.median(one[max(0, i - SMOOTH + 1) : i + 1]) for i in range(len(one))])
        for one in (ours, theirs)
    ]
    behind = smooth[0] > smooth[1] + MARGIN
    if not behind[-1]:
        return None
    return int(len(behind) - np.argmin(behind[::-1])) + 1 if not behind.all() else 1


def train(run: Run, path: Path | None, *, every: int = EVERY) -> dict[str, Any]:
    """Train one model, watched where a path is given; return losses and warnings."""
    import torch

    import leadline as ll
    from leadline.lab.tasks import build_task

    torch.set_num_threads(1)
    task = build_task(run.task)
    model = ll.Transformer(
        seed=run.seed, vocabulary=task.vocabulary, context=task.length, **run.recipe
    )
    model.train()
    draws = torch.Generator().manual_seed(run.seed)
    if run.before:
        early = torch.optim.AdamW(
            model.parameters(), lr=run.before_rate, betas=(0.9, 0.95), weight_decay=0.0
        )
        for step in range(run.before):
            batch = task.train(10_000 + step, run.batch, seed=run.seed)
            _update(model, early, _noisy(batch, run.noise, draws, task.vocabulary), None)
    optimizer = _optimizer(model, run)
    watch = None
    if path is not None:
        watch = ll.watch(model, optimizer, path, every=every, attention=True, quiet=True)
    losses: list[float] = []
    for step in range(1, run.steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = group["factor"] * rate_at(run, step)
        batch = task.train(step, run.batch, seed=run.seed)
        batch = _noisy(batch, run.noise, draws, task.vocabulary)
        if run.shift is not None and step >= run.shift:
            share = run.shifted * min(1.0, (step - run.shift + 1) / run.shift_within)
            batch = _shifted(batch, share, draws, task.vocabulary)
        losses.append(_update(model, optimizer, batch, run.clip))
        if not math.isfinite(losses[-1]):
            break
    warnings: list[dict[str, Any]] = []
    notes: list[str] = []
    if watch is not None:
        watch.close()
        warnings = [
            {"code": one.code, "name": one.name, "severity": one.severity, "verdict": one.verdict}
            | {key: one.details.get(key) for key in ("step", "since", "layers")}
            for one in watch.warnings
        ]
        notes = watch.notes
    return {"losses": losses, "warnings": warnings, "notes": notes}


def _optimizer(model: Any, run: Run) -> Any:
    import torch

    projections = {id(p) for name, p in model.named_parameters() if ".qkv." in name}
    groups = [
        {"params": [p for p in model.parameters() if id(p) not in projections], "factor": 1.0},
        {"params": [p for p in model.parameters() if id(p) in projections], "factor": run.qk},
    ]
    if run.optimizer == "sgd":
        return torch.optim.SGD(groups, lr=run.rate, momentum=0.9)
    return torch.optim.AdamW(groups, lr=run.rate, betas=(0.9, run.beta2), weight_decay=run.decay)


def _update(model: Any, optimizer: Any, batch: Any, clip: float | None) -> float:
    import torch
    from torch.nn.functional import cross_entropy

    logits = model(batch.ids)
    loss = cross_entropy(logits.flatten(0, 1), batch.targets.flatten())
    optimizer.zero_grad()
    loss.backward()
    if clip is not None:
        torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()
    return float(loss.detach())


def _noisy(batch: Any, share: float, draws: Any, vocabulary: int) -> Any:
    """Give a share of the targets any symbol."""
    import torch

    if not share:
        return batch
    targets = batch.targets.clone()
    hit = (torch.rand(targets.shape, generator=draws) < share) & (targets >= 0)
    drawn = torch.randint(vocabulary - 1, targets.shape, generator=draws)
    return replace(batch, targets=torch.where(hit, drawn, targets))


def _shifted(batch: Any, share: float, draws: Any, vocabulary: int) -> Any:
    """Give a share of the targets the next symbol."""
    import torch

    targets = batch.targets.clone()
    hit = (torch.rand(targets.shape, generator=draws) < share) & (targets >= 0)
    targets[hit] = (targets[hit] + 1) % (vocabulary - 1)
    return replace(batch, targets=targets)
