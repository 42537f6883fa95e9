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
from leadline.lab.watch.ranks import Ranks
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
        self._tracer = Tracer(module, several=ranks.several)
        self._groups: ParameterGroups | None = None
        self._reading: StepReading | None = None
        self._primary: torch.optim.Optimizer | None = None
        self._rate = math.nan

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
        if self._groups is None or self._groups.anatomy is not anatomy:
            self._groups = ParameterGroups(self._module, anatomy)
        if self._reading is None:
            self._reading = StepReading(self._groups)
        self._reading.begin(optimizer, weights=sampled)
        self._tracer.take()
        if self._primary is None:
            self._primary = optimizer
        if optimizer is self._primary:
            self._rate = float(optimizer.param_groups[0]["lr"])

    def clipping(self, calls: Sequence[BackwardCall]) -> float | None:
        """What clipping left of the gradient of this update; None where it cannot be told."""
        return self._tracer.factor(calls)

    def norms(self, factor: float | None) -> tuple[float, float, dict[Site, float]]:
        """Learning rate, norm of the gradient, and that of every group, before clipping."""
        norms = {} if self._reading is None else self._reading.gradient_norms()
        norms = {site: norm / (factor or 1.0) for site, norm in norms.items()}
        return self._rate, math.sqrt(sum(norm * norm for norm in norms.values())), norms

    def sums(self) -> dict[Site, GroupSums] | None:
        """The sums over all processes; every process takes part, whatever went wrong in it."""
        own = None
        if self._reading is not None:
            own = self._fence.guard("Comparing the weights", self._reading.end)()
        return None if self._groups is None else self._ranks.add_up(own, self.sites)

    def readings(self, sums: dict[Site, GroupSums] | None, factor: float | None) -> list[Reading]:
        """Gradients before clipping, where the factor is known, surprise and update ratio."""
        if sums is None:
            return []
        readings: list[Reading] = []
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
        run_numbers = ((LEARNING_RATE, self._rate), (GRADIENT_NORM, math.sqrt(total)))
        readings += [Reading(quantity.name, RUN, "value", value) for quantity, value in run_numbers]
        if factor is not None:
            readings.append(Reading(CLIPPING.name, RUN, "value", factor))
        return readings
