"""Read gradients, optimizer state and weights around the step of a sampled update."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import nn

from leadline.anatomy import Anatomy
from leadline.instruments.passes.probes.gradient import PARAMETERS
from leadline.lab.watch.fence import Fence
from leadline.lab.watch.losses.calls import BackwardCall
from leadline.lab.watch.processes.ranks import FOREIGN, Ranks
from leadline.lab.watch.weights.optimizers import (
    GroupSums,
    StepReading,
    Unread,
    rate_of,
    readings_of,
)
from leadline.lab.watch.weights.parameter_groups import ParameterGroups
from leadline.lab.watch.weights.tracer import UNCLIPPED, Tracer, Why
from leadline.lab.watch.weights.unheld import Unheld
from leadline.lab.watch.wording import said_of
from leadline.record import Reading, Site
from leadline.record.rows.site import RUN
from leadline.record.run.training import GRADIENT_NORM, LEARNING_RATE
from leadline.record.run.watching import CLIPPING, SURPRISE, WEIGHT_UPDATE

__all__ = ["WeightReader"]

AS_TAKEN = "there gradients are read as the optimizer takes them, and train.clipping is left out."
WHY_AS_TAKEN: dict[Why, str] = {
    "several": "In some updates gradients are changed between backward and the step by more than "
    "one factor, as by clipping by value or by groups, noise, or averaging over processes by hand: "
    + AS_TAKEN,
    "between": "In some updates gradients are changed between two backward passes, as by clipping "
    "every micro-batch: " + AS_TAKEN,
    "inside": "The optimizer steps inside of backward, where every gradient is gone before backward "
    f"is over: {AS_TAKEN}",
    "unheard": "In some updates no call of backward() on a loss left the gradients that the "
    f"optimizer takes: {AS_TAKEN}",
    "few": "In some updates too few of the parameters that tell clipping had a gradient: "
    + AS_TAKEN,
}
UNREAD = {
    "gradient": "The gradient",
    "surprise": "The second moment of the gradient",
    "weight": "The change",
}


class WeightReader:
    """Reads what the optimizers take and do; `sites` are the groups of parameters."""

    def __init__(
        self,
        module: nn.Module,
        ranks: Ranks,
        fence: Fence,
        optimizers: Sequence[torch.optim.Optimizer] | None = None,
    ) -> None:
        self._module = module
        self._ranks = ranks
        self._fence = fence
        self._tracer = Tracer(module)
        self._first = ranks.main or not ranks.sharded
        self._unheld = Unheld(module, optimizers, fence, first=self._first)
        self._groups: ParameterGroups | None = None
        self._reading: StepReading | None = None
        self._primary: torch.optim.Optimizer | None = None
        self._rate = math.nan
        # Of a sharded model the whole parameters may stand in their place later on.
        self._parameters = dict(module.named_parameters()) if ranks.sharded else None
        self.facts = {"before clipping": 0, "as the optimizer takes them": 0}
        """In how many samples gradients were read in which way."""

    @property
    def sites(self) -> list[Site]:
        """The groups of parameters, once they are known."""
        return [] if self._groups is None else list(self._groups)

    def arm(self) -> None:
        """Listen to the gradients of the next update."""
        self._tracer.arm()
        if self._ranks.sharding != "foreign":
            self._unheld.arm()

    def disarm(self) -> None:
        """Listen no more."""
        self._tracer.disarm()

    def give_up(self) -> None:
        """Forget the update under way."""
        self._reading = None

    def before_backward(self) -> None:
        """Look at what has become of the gradient since the last backward pass."""
        self._tracer.before_backward()

    def after_backward(self) -> None:
        """Look at the gradient that backward left behind."""
        self._tracer.after_backward()

    def stepped(self, optimizer: torch.optim.Optimizer) -> None:
        """Take note of an optimizer that steps in an update of which nothing is read."""
        self._unheld.stepped(optimizer)

    def before_step(
        self, optimizer: torch.optim.Optimizer, anatomy: Anatomy | None, *, sampled: bool
    ) -> None:
        """Read gradients and, of a sampled update, second moments and some of the weights."""
        if self._primary is None:
            self._primary = optimizer
        if optimizer is self._primary:
            self._rate = rate_of(optimizer)
            if math.isnan(self._rate):
                self._fence.note(
                    "The optimizer names no learning rate in its groups, as Adafactor does that "
                    "sets its own, so train.rate is not read."
                )
        if self._ranks.sharding == "foreign":
            self._fence.note(FOREIGN)
            return
        self._unheld.stepped(optimizer)
        if self._reading is None:
            self._reading = StepReading(self._groups_now(anatomy, sampled), first=self._first)
        self._reading.begin(optimizer, weights=sampled)
        if self._reading.left_out:
            self._fence.note(
                f"The gradient of {len(self._reading.left_out)} parameters, such as "
                f"'{min(self._reading.left_out)}', is not added up over the processes before the "
                "step (a partial DTensor), so it is not read."
            )
        self._tracer.take(optimizer)

    def _groups_now(self, anatomy: Anatomy | None, sampled: bool) -> ParameterGroups:
        groups = self._groups
        now = dict(self._module.named_parameters()) if sampled else {}
        if groups is not None and sampled and self._parameters is None:
            exchanged = groups.exchanged(now)
            if exchanged:
                self._fence.note(
                    said_of(
                        exchanged,
                        "The parameter '{name}' of the model was exchanged for another",
                        "{count} parameters of the model, such as '{name}', were exchanged for others",
                    )
                    + " during the run: from then on what stands in its place now is read.",
                    about="exchanged parameters",
                )
                self._tracer.choose()
                groups = None
        self._say_hooks(now)
        if groups is None or groups.anatomy is not anatomy:
            groups = ParameterGroups(self._module, anatomy, self._parameters)
        self._groups = groups
        return groups

    def _say_hooks(self, parameters: Mapping[str, nn.Parameter]) -> None:
        """Say that hooks of parameters change gradients before backward is over, if they do."""
        hooked = [
            name
            for name, one in parameters.items()
            if getattr(one, "_backward_hooks", None)
            or getattr(one, "_post_accumulate_grad_hooks", None)
        ]
        if hooked:
            self._fence.note(
                said_of(
                    hooked,
                    "The parameter '{name}' has hooks that may change its gradient",
                    "{count} parameters, such as '{name}', have hooks that may change their gradient",
                )
                + " inside of backward: gradients are read behind these hooks.",
                about="hooks of parameters",
            )

    def clipping(self, calls: Sequence[BackwardCall]) -> float | None:
        """What is left of the gradient of this update; None where no one factor tells."""
        trace = self._tracer.trace(calls)
        if trace.why in WHY_AS_TAKEN and self._reading is not None and self._reading.has_begun:
            self._fence.note(WHY_AS_TAKEN[trace.why])
        factor, count = trace.factor, len(calls)
        if factor is not None and count > 1 and abs(factor * count - 1.0) < UNCLIPPED:
            self._fence.note(
                f"The loop multiplies gradients by 1/{count}, over as many micro-batches, before "
                "the step: they are read before that, as sums, and train.clipping has the factor.",
                about="division by micro-batches",
            )
        elif factor is not None and factor > 1.0:
            self._fence.note(
                f"The loop multiplies gradients by {factor:.3g} before the step: they are read "
                "before that, and train.clipping has the factor.",
                about="longer gradients",
            )
        return factor

    def squares(self) -> tuple[float, dict[Site, float]]:
        """Learning rate, and the squared norm of the gradient of every group, of this process."""
        return self._rate, {} if self._reading is None else self._reading.gradient_squares()

    def sums(self) -> dict[Site, GroupSums] | None:
        """What this process read of its part of the weights; None where nothing was read."""
        if self._reading is None:
            return None
        sums = self._fence.guard("Comparing the weights", self._reading.end)()
        if self._reading is None or sums is None:  # a fault gives the sample up
            return None
        self._say_unread(self._reading.unread)
        still = self._fence.guard("Looking for weights in no optimizer", self._unheld.squares)()
        for name, square in (still or {}).items():
            site = self._groups.sites.get(name) if self._groups is not None else None
            if site is not None and self._reading.compares(site):
                sums.setdefault(site, GroupSums()).weight += square
        return sums

    def _say_unread(self, unread: Sequence[Unread]) -> None:
        for kind, why in dict.fromkeys((one.kind, one.why) for one in unread):
            names = sorted(one.name for one in unread if (one.kind, one.why) == (kind, why))
            of = said_of(names, "'{name}'", "{count} parameters, such as '{name}',")
            self._fence.note(
                f"{UNREAD[kind]} of {of} cannot be read ({why}): what groups say of it is left out "
                "there, and everything else is read.",
                about=f"{kind} {why}",
            )

    def readings(self, sums: dict[Site, GroupSums] | None, factor: float | None) -> list[Reading]:
        """Gradients before clipping, where the factor is known, surprise and update ratio."""
        rate = Reading(LEARNING_RATE.name, RUN, "value", self._rate)
        readings: list[Reading] = [] if math.isnan(self._rate) else [rate]
        if sums is None:
            return readings
        norms: list[float] = []
        for one in readings_of(sums):
            gradient = None if one.gradient is None else one.gradient / (factor or 1.0)
            if gradient is not None:
                norms.append(gradient)
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
        if not norms:
            return readings
        self.facts["as the optimizer takes them" if factor is None else "before clipping"] += 1
        norm = math.sqrt(sum(value * value for value in norms))
        readings.append(Reading(GRADIENT_NORM.name, RUN, "value", norm))
        if factor is not None:
            readings.append(Reading(CLIPPING.name, RUN, "value", factor))
        return readings
