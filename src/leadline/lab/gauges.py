"""The gauges of a training run: a few probes on a few fixed examples, between two updates.

The anatomy is read once and judged again at every reading; a reading is one forward and one
backward pass in evaluation mode, and leaves the model as it was. With the layers it reads all that a
watch reads of them, by the same readers where those look at the update itself: how far it moves the
weights, and whether the optimizer's second moment is behind.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from leadline.anatomy import Anatomy, refuse_imbalance, untouched
from leadline.instruments.passes.probe_plan import plan
from leadline.instruments.passes.running import read, run
from leadline.lab.optimizer import FlatAdamW
from leadline.lab.tasks import Batch
from leadline.lab.watch.weights.optimizers import StepReading, readings_of
from leadline.lab.watch.weights.parameter_groups import ParameterGroups
from leadline.models.inputs import Inputs, Loss
from leadline.record import Quantity, Reading
from leadline.record.rows.site import RUN
from leadline.record.run.training import GAUGES, GRADIENT_RATIO, STREAM_GROWTH, TOKEN_COSINE
from leadline.record.run.watching import SURPRISE, WEIGHT_UPDATE

__all__ = ["EXAMPLES", "PROBES", "WATCHED", "Gauges"]

PROBES = ("stream", "tokens", "gradient")
WATCHED = ("update", "extremes")
"""What a watch reads of every layer beside these."""
EXAMPLES = 4
"""How many of the validation examples are looked at."""


class Gauges:
    """Reads the gauges of one model on one batch; `layers` keeps what every layer says."""

    def __init__(self, model: nn.Module, batch: Batch, *, layers: bool, seed: int) -> None:
        self.model = model
        self.layers = layers
        self.seed = seed
        self.plan = plan((*PROBES, *WATCHED) if layers else PROBES)
        self.batch = Inputs({"input_ids": batch.ids[:EXAMPLES]}, kind="task")
        targets = batch.targets[:EXAMPLES]
        self.loss = Loss("task", "the loss of the run", lambda out, _: task_loss(out, targets))
        self.anatomy: Anatomy | None = None
        self._step: StepReading | None = None

    @property
    def quantities(self) -> tuple[Quantity, ...]:
        """What the readings are of."""
        of_layers = (*self.plan.quantities, WEIGHT_UPDATE, SURPRISE)
        return (*GAUGES, *of_layers) if self.layers else GAUGES

    def begin_step(self, optimizer: FlatAdamW) -> None:
        """Look at weights, gradients and second moments ahead of a step that is to be read."""
        with torch.enable_grad(), untouched(self.model):
            anatomy = self._anatomy()
        self._step = StepReading(ParameterGroups(self.model, anatomy))
        self._step.begin(optimizer.by_parameter())

    def _end_step(self) -> list[Reading]:
        """What the step has done to every layer; nothing ahead of the first one."""
        if self._step is None:
            return []
        readings: list[Reading] = []
        for one in readings_of(self._step.end()):
            numbers = ((WEIGHT_UPDATE, one.update_ratio), (SURPRISE, one.surprise))
            readings += [
                Reading(quantity.name, one.site, "value", value)
                for quantity, value in numbers
                if value is not None
            ]
        self._step = None
        return readings

    def _anatomy(self) -> Anatomy:
        if self.anatomy is None:
            self.anatomy, _ = read(
                self.model, self.batch, declared=None, families=True, seed=self.seed
            )
        return self.anatomy

    def read(self, *, run_name: str, step: int, seed: int) -> list[Reading]:
        """Measure the model as it is now."""
        of_step = self._end_step()
        with torch.enable_grad(), untouched(self.model):
            anatomy = self._anatomy()
            outcome = run(self.model, anatomy, self.plan, self.batch, self.loss)
            refuse_imbalance(self.model, anatomy, outcome.balance)
            readings = outcome.collector.readings()
        numbers = gauges_of(readings)
        rows = [
            Reading(quantity.name, RUN, "value", numbers[quantity.name])
            for quantity in GAUGES
            if quantity.name in numbers
        ]
        rows += [*readings, *of_step] if self.layers else []
        return [replace(row, run=run_name, step=step, seed=seed) for row in rows]


def gauges_of(readings: Sequence[Reading]) -> Mapping[str, float]:
    """Return the few numbers that stand for a measurement, of its first stack."""
    stack = readings[0].site.stack

    def at(quantity: str, statistic: str) -> dict[int, float]:
        return {
            r.site.layer: r.value
            for r in readings
            if r.quantity == quantity
            and r.statistic == statistic
            and r.site.stack == stack
            and r.site.sublayer is None
            and r.site.lane is None
        }

    gauges: dict[str, float] = {}
    cosine = at("tokens.cosine", "mean")
    if cosine:
        gauges[TOKEN_COSINE.name] = cosine[max(cosine)]
    norm = at("stream.norm", "mean")
    if norm:
        gauges[STREAM_GROWTH.name] = _over(norm[max(norm)], norm[0])
    gradient = at("gradient.stream", "total")
    if 0 in gradient:
        gauges[GRADIENT_RATIO.name] = _over(gradient[0], gradient[max(gradient)])
    return gauges


def task_loss(output: object, targets: Tensor) -> Tensor:
    """Mean cross-entropy of the targets that count, from logits or an output that holds them."""
    logits = output if isinstance(output, Tensor) else output.logits  # type: ignore[attr-defined]
    return cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def _over(above: float, below: float) -> float:
    if below == 0.0:
        return math.nan if above == 0.0 else math.inf
    return above / below
