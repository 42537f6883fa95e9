"""The same designs after a short training: what becomes of gradient and tokens.

A sweep of the lab: without warm-up, at one learning rate, on the bytes of Python's own library, with
the settings of the depth-limits preset. It is resumable and uses all cores. The gauges are read
before the first update and after the last: |dL/dx_0| / |dL/dx_L|, the mean cosine of two tokens at
the last site, and |dL/dx_l| at every site. They are read in float32, on four validation examples.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leadline.errors import Progress
from leadline.experiments.gradient_flow.starts import DESIGNS
from leadline.lab.engines import News
from leadline.lab.grid import Axis, Grid, Setting, Sweep
from leadline.lab.presets.depth_limits import FIXED
from leadline.lab.sweep import Begun, Ended, sweep
from leadline.lab.sweep_record import ended_cells
from leadline.record import Record
from leadline.record.run.training import GRADIENT_RATIO, TOKEN_COSINE

__all__ = ["TRAINED", "TrainedDesigns", "flow_sweep", "read_trained", "train_all"]

TRAINED = ("pre", "post", "no skip", "gpt2-scaled", "deepnorm")
"""The designs that are trained. Without norms the stream overflows before anything is learned."""


@dataclass(frozen=True)
class TrainedDesigns:
    """One training: the first and the last reading of the gauges."""

    design: str
    depth: int
    seed: int
    status: str
    reason: str
    steps: int
    loss: float
    ratio: tuple[float, float]
    """|dL/dx_0| / |dL/dx_L| before the first update and after the last; NaN where not read."""
    cosine: tuple[float, float]
    profile: tuple[float, ...]
    """|dL/dx_l| at the sites 0 ... L after the last update; empty where not read."""


def flow_sweep(
    depths: Mapping[int, int], *, seeds: Sequence[int], width: int, heads: int, length: int
) -> Sweep:
    """The trained designs at every depth, with the steps that the depth gets."""
    designs = Axis("design", tuple(Setting(name, DESIGNS[name]) for name in TRAINED))
    layers = Axis(
        "depth",
        tuple(
            Setting(depth, {"depth": depth, "steps": steps, "gauges": steps})
            for depth, steps in depths.items()
        ),
    )
    fixed: dict[str, Any] = {
        **{name: value for name, value in FIXED.items() if name != "gauges"},
        "width": width,
        "heads": heads,
        "task": f"stdlib(length={length})",
        "warmup": 0,
        "layers": True,
    }
    return Sweep(
        name="gradient-flow", grids=(Grid((designs, layers)),), seeds=tuple(seeds), fixed=fixed
    )


def train_all(what: Sweep, path: Path, *, workers: int | None, progress: Progress) -> Record:
    """Run the sweep, or go on with it; the record, for reading."""
    ended: set[str] = set()
    total = len(what.cells())

    def tell(event: Begun | News | Ended) -> None:
        if isinstance(event, Begun):
            ended.update(event.ended)
        elif isinstance(event, Ended):
            ended.add(event.run)
        where = event.run if isinstance(event, Ended) else "the designs"
        progress(f"training {where}", len(ended), total)

    return sweep(what, path, workers=workers, progress=tell)


def read_trained(record: Record) -> list[TrainedDesigns]:
    """Every cell that has ended, in the order of the record."""
    found: list[TrainedDesigns] = []
    for run, facts in ended_cells(record).items():
        labels = facts["labels"]
        ratio, cosine = (
            _ends(record, run, quantity.name) for quantity in (GRADIENT_RATIO, TOKEN_COSINE)
        )
        loss = facts["loss"]
        found.append(
            TrainedDesigns(
                design=str(labels["design"]),
                depth=int(labels["depth"]),
                seed=int(facts["seed"]),
                status=str(facts["status"]),
                reason=str(facts["reason"]),
                steps=int(facts["steps"]),
                loss=math.nan if loss is None else float(loss),
                ratio=ratio,
                cosine=cosine,
                profile=_profile(record, run, int(facts["steps"])),
            )
        )
    return found


def _ends(record: Record, run: str, quantity: str) -> tuple[float, float]:
    """The first and the last value of a gauge; the last is NaN where it was read once."""
    rows = record.select(quantity, run=run) if quantity in record else []
    rows = sorted(rows, key=lambda row: row.step)
    if not rows:
        return math.nan, math.nan
    return rows[0].value, rows[-1].value if rows[-1].step > rows[0].step else math.nan


def _profile(record: Record, run: str, step: int) -> tuple[float, ...]:
    if "gradient.stream" not in record:
        return ()
    rows = record.select("gradient.stream", run=run, step=step, statistic="total", sublayer=None)
    return tuple(row.value for row in sorted(rows, key=lambda row: row.site.layer))
