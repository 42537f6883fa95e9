"""A short training run on a copy: does the loss fall at all, and which parameters move?

AdamW on the small inputs of the visit, again and again, in evaluation mode, with a rate that rises over
the first steps and gradients cut at norm 1: whoever can learn anything learns these few tokens. The
twin with random weights runs the same way, so that there is something to compare with. Everything is
computed from the weights and the inputs: two runs give the same numbers. The model itself is not
touched.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from leadline.instruments.passes.output_head import head_of
from leadline.instruments.passes.running import call
from leadline.instruments.visit.check import CouldNot, VisitEntry, VisitFact, check
from leadline.instruments.visit.patient import Patient
from leadline.models.inputs import choose_loss
from leadline.models.inputs.logits import HeadFacts
from leadline.models.streaming.decision import copy_refusal

RATE = 1e-3
WARM_UP = 5
"""Steps over which the rate rises: without them deep post-norm models jump before they learn."""
CLIP = 1.0
COPIES = 5
"""The weights, where they started, their gradients, and two moments of the optimizer."""


@check("short-run", facts=("short_run",), pass_cost=0.0)
def short_run(patient: Patient) -> Iterator[VisitEntry]:
    """Train a copy for some steps where the visit was asked to; the loss must be a prediction."""
    if not patient.train:
        why = "no short run was asked for (train=50, or --train 50 on the command line)"
        yield CouldNot(("short_run",), why)
        return
    if (reason := copy_refusal(patient.model, times=COPIES)) is not None:
        yield CouldNot(("short_run",), f"the model is streamed, and {reason}")
        return
    run = _run(patient, copy.deepcopy(patient.model))
    if isinstance(run, str):
        yield CouldNot(("short_run",), run)
        return
    if patient.twin is not None:
        twin = _run(patient, copy.deepcopy(patient.twin))
        run["twin_losses"] = twin["losses"] if isinstance(twin, dict) else None
    yield VisitFact("short_run", run)


def _run(patient: Patient, model: nn.Module) -> dict[str, Any] | str:
    """The losses of the run and how far each parameter moved; or why there can be none."""
    batch = patient.small
    if patient.anatomy is None:
        tokens = batch.main.shape[1] if batch.main.ndim > 1 else 0
        head = HeadFacts((*batch.main.shape[:2], 0), tokens, causal=True)
    else:
        head, _ = head_of(model, batch, patient.anatomy, "auto", 0)
    loss, batch = choose_loss(model, batch, "auto", head=head)
    if loss.kind not in ("next-token", "masked"):
        return f"the model predicts no tokens ({loss.reason}), so there is nothing to learn here"
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    if not parameters:
        return "no parameter requires a gradient"
    start = {name: p.detach().clone() for name, p in parameters.items()}
    optimizer = torch.optim.AdamW(parameters.values(), lr=RATE, weight_decay=0.0)
    losses: list[float] = []
    with torch.enable_grad():
        for step in range(patient.train):
            for group in optimizer.param_groups:
                group["lr"] = RATE * min(1.0, (step + 1) / WARM_UP)
            optimizer.zero_grad(set_to_none=True)
            value = loss.compute(call(model, batch), batch)
            losses.append(float(value.detach()))
            if not math.isfinite(losses[-1]) or not value.requires_grad:
                break
            value.backward()
            torch.nn.utils.clip_grad_norm_(parameters.values(), CLIP)
            optimizer.step()
    with torch.no_grad():
        losses.append(float(loss.compute(call(model, batch), batch)))
    unmoved = [name for name, p in parameters.items() if torch.equal(p.detach(), start[name])]
    return {
        "steps": patient.train,
        "rate": RATE,
        "losses": losses,
        "parameters": len(parameters),
        "unmoved": unmoved,
    }
