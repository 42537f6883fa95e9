"""Read gradients, optimizer state and weights around the step of a sampled update."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import nn

from leadline.anatomy import Anatomy
from leadline.instruments.passes.probes.gradient import PARAMETERS
from leadline.lab.watch.fence import Fence
from leadline.lab.watch.losses import BackwardCall
from leadline.lab.watch.optimizers import GroupSums, ParameterGroups, StepReading, readings_of
from leadline.lab.watch.processes.ranks import FOREIGN, Ranks
from leadline.lab.watch.tracer import Tracer
from leadline.record import Reading, Site
from leadline.record.rows.site import RUN
from leadline.record.run.training import GRADIENT_NORM, LEARNING_RATE
from leadline.record.run.watching import CLIPPING, SURPRISE, WEIGHT_UPDATE

__all__ = ["WeightReader"]


class WeightReader:
    """Reads what the optimizers take and do; `sites` are the groups of parameters."""

    def __init__(self, module: nn.Module, ranks: Ranks, fence: Fence) -> None:
        self._module = module
        self._ranks = ranks
        self._fence = fence
        self._tracer = Tracer(module)
        self._groups: ParameterGroups | None = None
        self._reading: StepReading | None = None
        self._primary: torch.optim.Optimizer | None = None
        self._rate = math.nan
        # Of a sharded model the whole parameters may stand in their place later on.
        self._parameters = dict(module.named_parameters()) if ranks.sharded else None

    @property
    def sites(self) -> list[Site]:
        """The groups of parameters, once they are known."""
        return [] if self._groups is None else list(self._groups)

    def arm(self) -> None:
        """Listen to the gradients of the next update."""
        self._tracer.arm()

    def disarm(self) -> None:
        """Listen no more."""
        self._tracer.disarm()

    def give_up(self) -> None:
        """Forget the update under way."""
        self._reading = None

    def before_step(
        self, optimizer: torch.optim.Optimizer, anatomy: Anatomy | None, *, sampled: bool
    ) -> None:
        """Read gradients and, of a sampled update, second moments and some of the weights."""
        if self._primary is None:
            self._primary = optimizer
        if optimizer is self._primary:
            self._rate = float(optimizer.param_groups[0]["lr"])
        if self._ranks.sharding == "foreign":
            self._fence.note(FOREIGN)
            return
        if self._groups is None or self._groups.anatomy is not anatomy:
            self._groups = ParameterGroups(self._module, anatomy, self._parameters)
        if self._reading is None:
            first = self._ranks.main or not self._ranks.sharded
            self._reading = StepReading(self._groups, first=first)
        self._reading.begin(optimizer, weights=sampled)
        if self._reading.left_out:
            self._fence.note(
                f"The gradient of {len(self._reading.left_out)} parameters, such as "
                f"'{min(self._reading.left_out)}', is not added up over the processes before the "
                "step (a partial DTensor), so it is not read."
            )
        self._tracer.take(optimizer)

    def clipping(self, calls: Sequence[BackwardCall]) -> float | None:
        """What clipping left of the gradient of this update; None where it cannot be told."""
        factor = self._tracer.factor(calls)
        if self._tracer.uneven:
            self._fence.note(
                "Something changes the gradients between backward and the step by more than one "
                "factor, such as clipping by value or by groups: gradients are read as the "
                "optimizer takes them."
            )
        return factor

    def squares(self) -> tuple[float, dict[Site, float]]:
        """Learning rate, and the squared norm of the gradient of every group, of this process."""
        return self._rate, {} if self._reading is None else self._reading.gradient_squares()

    def sums(self) -> dict[Site, GroupSums] | None:
        """What this process read of its part of the weights; None where nothing was read."""
        if self._reading is None:
            return None
        return self._fence.guard("Comparing the weights", self._reading.end)()

    def after_backward(self) -> None:
        """Look at the gradient that backward left behind."""
        self._tracer.after_backward()

    def readings(self, sums: dict[Site, GroupSums] | None, factor: float | None) -> list[Reading]:
        """Gradients before clipping, where the factor is known, surprise and update ratio."""
        rate = Reading(LEARNING_RATE.name, RUN, "value", self._rate)
        readings: list[Reading] = [] if math.isnan(self._rate) else [rate]
        if sums is None:
            return readings
        total = 0.0
        for one in readings_of(sums):
            gradient = one.gradient / (factor or 1.0)
            total += gradient * gradient
            numbers = (
                (PARAMETERS, gradient),
                (SURPRISE, one.surprise),
                (WEIGHT_UPDATE, one.update_ratio),
            )
            readings += [
                Reading(quantity.name, one.site, "value", value)
                for quantity, value in numbers
                if value is not None
            ]
        readings.append(Reading(GRADIENT_NORM.name, RUN, "value", math.sqrt(total)))
        if factor is not None:
            readings.append(Reading(CLIPPING.name, RUN, "value", factor))
        return readings
