"""The passes of a measurement in one process, and the record that is made of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from leadline.anatomy import Anatomy, Declaration, refuse_imbalance
from leadline.errors import AnatomyError, ProbeError, Progress
from leadline.instruments.passes.ablation import Ablation
from leadline.instruments.passes.ablation import ablate as leave_out
from leadline.instruments.passes.coverage import coverage_of
from leadline.instruments.passes.not_finite import (
    balance_findings,
    broken_tensor,
    first_broken_output,
    refuse_broken_weights,
)
from leadline.instruments.passes.output_head import head_of
from leadline.instruments.passes.probe_plan import Plan
from leadline.instruments.passes.provenance import loss_facts, versions
from leadline.instruments.passes.running import PassOutcome, call, read, run
from leadline.instruments.passes.unseen import nothing_seen
from leadline.models.inputs import Inputs, Loss, choose_loss
from leadline.record import Reading, Record

__all__ = [
    "MeasureOptions",
    "add_ablation",
    "add_facts",
    "gradients_on",
    "prove",
    "record_of",
    "run_passes",
]


@dataclass(frozen=True)
class MeasureOptions:
    """What is to be measured, apart from the model and its inputs."""

    plan: Plan
    loss: str | Callable[..., torch.Tensor]
    ablate: str | None
    seed: int
    say: Progress


@contextmanager
def gradients_on() -> Iterator[None]:
    """Switch autograd on whatever mode the caller is in: roles and gradient norms need it."""
    with torch.inference_mode(False), torch.enable_grad():
        yield


def run_passes(
    options: MeasureOptions,
    module: nn.Module,
    batch: Inputs,
    anatomy: Anatomy,
    anatomy_passes: int,
    *,
    steps: int,
) -> Record:
    """Run the forward and the backward pass, and the ablations; `steps` more come later."""
    probe_plan, total = options.plan, 3 + steps
    # Before the pass, which switches off the gradients that nobody reads.
    frozen = sum(not parameter.requires_grad for parameter in module.parameters())
    head, head_passes = head_of(module, batch, anatomy, options.loss, options.seed)
    loss, batch = choose_loss(module, batch, options.loss, seed=options.seed, head=head)
    options.say("forward and backward", 1, total)
    outcome = run(module, anatomy, probe_plan, batch, loss)
    if _only_attention(probe_plan) and not outcome.collector.attentions:
        raise ProbeError(nothing_seen(module, anatomy, outcome))
    refuse_imbalance(module, anatomy, outcome.balance, lambda: call(module, batch))
    if outcome.balance.unjudged:
        refuse_broken_weights(module, anatomy, outcome.balance)
    options.say("writing the record", 2, total)
    passes = {"forward": 1, "backward": int(probe_plan.backward), "anatomy_forward": anatomy_passes}
    if head_passes:
        passes["head_forward"] = head_passes
    record = record_of(probe_plan, outcome.collector.measured, outcome.collector.readings())
    if options.ablate is not None:
        ablation = leave_out(
            module,
            anatomy,
            lambda: loss.compute(call(module, batch), batch),
            unit=options.ablate,
            progress=options.say,
        )
        add_ablation(record, ablation, passes)
    coverage = coverage_of(module, batch, probe_plan, outcome, anatomy, frozen=frozen)
    add_facts(record, options, anatomy, outcome, loss, coverage, passes, batch.summary())
    return record


def add_ablation(record: Record, ablation: Ablation, passes: dict[str, int]) -> None:
    """Add what is lost without each block or write, and count its passes."""
    for quantity in ablation.quantities:
        record.describe(quantity)
    record.append(ablation.readings)
    passes["ablation_forward"] = ablation.passes


def add_facts(
    record: Record,
    options: MeasureOptions,
    anatomy: Anatomy,
    outcome: PassOutcome,
    loss: Loss,
    coverage: dict[str, Any],
    passes: dict[str, int],
    batch_facts: dict[str, Any],
) -> None:
    """Add the provenance of the passes and what they found."""
    record.note("anatomy", anatomy.proved(outcome.balance).to_json())
    record.note("input", batch_facts)
    record.note("loss", loss_facts(loss, outcome.loss))
    record.note("passes", passes)
    record.note("probes", [str(choice) for choice in options.plan.choices])
    record.note("coverage", coverage)
    if outcome.collector.attentions:
        record.note("attention", outcome.collector.attentions)
    record.note("versions", versions())
    record.note("time", time.strftime("%Y-%m-%dT%H:%M:%S%z"))
    for finding in [
        *balance_findings(record, anatomy, outcome.balance),
        *outcome.collector.remarks,
    ]:
        record.add_finding(finding)


def record_of(plan: Plan, measured: Collection[str], readings: Iterable[Reading]) -> Record:
    """A record of readings; the quantities that have any are described."""
    record = Record()
    described = [quantity for quantity in plan.quantities if quantity.name in measured]
    for quantity in described:
        record.describe(quantity)
    record.append(readings)
    return record


def _only_attention(probe_plan: Plan) -> bool:
    return all("attention" in probe.sees for probe in probe_plan.probes)


def prove(
    module: nn.Module,
    batch: Inputs,
    declared: Anatomy | Declaration | None,
    families: bool,
    seed: int,
) -> tuple[Anatomy, int]:
    """Read the anatomy, and count the passes; what is not finite is named where it begins."""
    try:
        return read(module, batch, declared=declared, families=families, seed=seed)
    except AnatomyError as error:
        first_path = first_broken_output(module, batch)
        if first_path is None:  # every output is finite, so something else went wrong
            raise
        raise AnatomyError(
            f"{broken} They first appear in what '{first_path}' returns."
            if (broken := broken_tensor(module)) is not None
            else f"What '{first_path}' returns is not finite, although the parameters of "
            f"{type(module).__name__} are; look for an overflow or a division by zero there."
        ) from error
