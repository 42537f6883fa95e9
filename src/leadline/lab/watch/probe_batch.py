"""A fixed batch that is measured after each sampled update, so that steps are comparable.

It is measured as `leadline measure` measures: one forward and one backward pass in evaluation mode,
with everything put back afterwards. The loop's own passes are not touched.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from leadline.anatomy import Anatomy, Declaration, refuse_imbalance, untouched
from leadline.instruments.passes.output_head import head_of
from leadline.instruments.passes.probe_plan import Plan
from leadline.instruments.passes.running import read, run
from leadline.models.inputs import choose_loss
from leadline.models.inputs.for_model import batch_for
from leadline.record import Reading

__all__ = ["ProbeBatch"]


class ProbeBatch:
    """Measures one batch whenever it is asked."""

    def __init__(self, module: nn.Module, inputs: Any, plan: Plan) -> None:
        self.module = module
        self.plan = plan
        self.batch = batch_for(module, inputs, 0)

    def prove(self, declared: Anatomy | Declaration | None) -> Anatomy:
        """The anatomy, proved on this batch."""
        if isinstance(declared, Anatomy):
            return declared
        with torch.enable_grad(), untouched(self.module, hooks=True):
            return read(self.module, self.batch, declared=declared, families=True, seed=0)[0]

    def readings(self, anatomy: Anatomy | None) -> list[Reading]:
        """What the layers say about the batch as the model is now; headline statistics alone."""
        if anatomy is None:
            return []
        with torch.enable_grad(), untouched(self.module, hooks=True):
            head, _ = head_of(self.module, self.batch, anatomy, "auto", 0)
            loss, batch = choose_loss(self.module, self.batch, "auto", seed=0, head=head)
            outcome = run(self.module, anatomy, self.plan, batch, loss)
            refuse_imbalance(self.module, anatomy, outcome.balance)
            readings = outcome.collector.readings()
        headline = {quantity.name: quantity.headline for quantity in self.plan.quantities}
        streams = {q.name for q in self.plan.quantities if q.lives_on == "stream"}
        return [
            one
            for one in readings
            if one.statistic == headline[one.quantity]
            and one.site.head is None
            and not (one.quantity in streams and one.site.sublayer is not None)
        ]
