"""Leave every write out in turn and measure the loss again, where the visit was asked to.

One forward pass over the batch for each write; the numbers are those of `measure(ablate="sublayer")`.
"""

from __future__ import annotations

from collections.abc import Iterator

from leadline.instruments.passes.ablation import SUBLAYER, ablate
from leadline.instruments.passes.output_head import head_of
from leadline.instruments.passes.running import call
from leadline.instruments.visit.check import CouldNot, VisitEntry, check
from leadline.instruments.visit.patient import Patient
from leadline.models.inputs import choose_loss


@check("leaving-out", quantities=(SUBLAYER,), pass_cost=0.0)
def leaving_out(patient: Patient) -> Iterator[VisitEntry]:
    """Say how much worse the model predicts without each write."""
    if not patient.ablate:
        yield CouldNot(
            (SUBLAYER.name,), "writes were not left out in turn (ablate=True, or --ablate)"
        )
        return
    if patient.anatomy is None:
        yield CouldNot((SUBLAYER.name,), "the anatomy was refused, so no write can be left out")
        return
    head, _ = head_of(patient.model, patient.batch, patient.anatomy, "auto", 0)
    loss, batch = choose_loss(patient.model, patient.batch, "auto", head=head)
    if loss.kind not in ("next-token", "masked"):
        yield CouldNot((SUBLAYER.name,), f"the model predicts no tokens ({loss.reason})")
        return
    result = ablate(
        patient.model,
        patient.anatomy,
        lambda: loss.compute(call(patient.model, batch), batch),
        unit="sublayer",
    )
    yield from result.readings
