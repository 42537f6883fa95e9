"""A measurement by all processes of a job: each runs its part of the batch, the first joins them.

Where every process has all weights (DDP), passes run as in one process. FSDP2 gathers each block when
it runs and tensor parallelism exchanges parts of every product, so there all processes go through the
same passes, and every exchange is agreed on before it begins (`Convoy`).
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from leadline.anatomy import Anatomy, Declaration, refuse_imbalance, untouched
from leadline.instruments.passes.ablation import ablate as leave_out
from leadline.instruments.passes.coverage import coverage_of
from leadline.instruments.passes.measuring import (
    MeasureOptions,
    add_ablation,
    add_facts,
    gradients_on,
    prove,
    record_of,
)
from leadline.instruments.passes.output_head import head_of
from leadline.instruments.passes.processes.attention import join_attention
from leadline.instruments.passes.processes.convoy import Convoy
from leadline.instruments.passes.processes.fsdp import between_steps
from leadline.instruments.passes.processes.gradients import whole_norms
from leadline.instruments.passes.processes.part import PartCollector
from leadline.instruments.passes.processes.shares import BatchShares, SharedLoss, share_inputs
from leadline.instruments.passes.processes.whole import (
    handed_out,
    process_facts,
    prove_together,
    whole_balance,
    whole_readings,
)
from leadline.instruments.passes.provenance import model_facts
from leadline.instruments.passes.running import call, run
from leadline.instruments.passes.sameness import declared_digest, function_facts
from leadline.models.inputs import Inputs, choose_loss
from leadline.record import Record
from leadline.record.file.lock import only_writer
from leadline.record.file.unfinished import refuse_unfinished

__all__ = ["measure_together"]


def measure_together(
    options: MeasureOptions,
    wrapped: nn.Module,
    module: nn.Module,
    batch: Inputs,
    convoy: Convoy,
    *,
    declared: Anatomy | Declaration | None,
    proved_before: Anatomy | None,
    families: bool,
    names: tuple[str | None, str],
    file: Path | None,
) -> Record:
    """Measure with all other processes; every one returns the record of the whole."""
    started = time.perf_counter()
    shares = share_inputs(convoy, batch, _request(options, declared, families=families))
    batch = replace(batch, rows=shares.rows)
    with (
        gradients_on(),
        between_steps(module),
        untouched(module),
        nullcontext() if file is None else only_writer(file),
    ):
        if file is not None:
            refuse_unfinished(file)
        options.say("reading the anatomy", 0, 3)
        anatomy, passes = proved_before, 0
        if anatomy is None:
            proof = partial(prove, module, batch, declared, families, options.seed)
            anatomy, passes = prove_together(module, proof, convoy)
        record = _run_passes(options, wrapped, module, batch, anatomy, passes, convoy, shares)
        if record is not None:
            record.note("model", model_facts(wrapped, *names))
            record.note("seconds", round(time.perf_counter() - started, 3))
            if file is not None:
                record.save(file)
        record = handed_out(record, convoy)
    options.say("done", 3, 3)
    return record


def _request(
    options: MeasureOptions, declared: Anatomy | Declaration | None, *, families: bool
) -> dict[str, Any]:
    """What must be the same in all processes."""
    loss = options.loss
    return {
        "probes": [str(choice) for choice in options.plan.choices],
        "loss": loss if isinstance(loss, str) else function_facts(loss),
        "ablate": options.ablate,
        "seed": options.seed,
        "families": families,
        "anatomy": declared_digest(declared),
    }


def _run_passes(
    options: MeasureOptions,
    wrapped: nn.Module,
    module: nn.Module,
    batch: Inputs,
    anatomy: Anatomy,
    anatomy_passes: int,
    convoy: Convoy,
    shares: BatchShares,
) -> Record | None:
    """Run the part of this process; return the record of the whole in the first one."""
    frozen = sum(not parameter.requires_grad for parameter in module.parameters())
    group = getattr(wrapped, "process_group", None)
    with convoy.guarded():
        head, head_passes = head_of(module, batch, anatomy, options.loss, options.seed)
        loss, batch = choose_loss(module, batch, options.loss, seed=options.seed, head=head)
        shared = SharedLoss(loss, shares, convoy)
        options.say("forward and backward", 1, 3)
        outcome = run(
            module,
            anatomy,
            options.plan,
            batch,
            replace(loss, compute=shared.compute),
            collect=partial(PartCollector, gradient_factor=float(shared.copies)),
            norms_of=lambda owners: whole_norms(module, owners, convoy, group),
        )
        outcome.loss = shared.whole
        ablation = None
        if options.ablate is not None:

            def whole_loss() -> torch.Tensor:
                shared.compute(call(module, batch), batch)
                return torch.tensor(shared.whole)

            ablation = leave_out(
                module, anatomy, whole_loss, unit=options.ablate, progress=options.say
            )
    collector = outcome.collector
    assert isinstance(collector, PartCollector)
    outcome.balance = whole_balance(outcome.balance, convoy)
    refuse_imbalance(module, anatomy, outcome.balance)
    options.say("writing the record", 2, 3)
    join_attention(collector, shares, convoy)
    whole = whole_readings(collector, shares, convoy, options.plan)
    if whole is None:
        return None
    readings, unjoined = whole
    passes = {"forward": 1, "backward": int(options.plan.backward)}
    passes["anatomy_forward"] = anatomy_passes
    if head_passes:
        passes["head_forward"] = head_passes
    record = record_of(options.plan, collector.measured, readings)
    if ablation is not None:
        add_ablation(record, ablation, passes)
    coverage = coverage_of(module, batch, options.plan, outcome, anatomy, frozen=frozen)
    for what in unjoined:
        why = (
            "the numbers of parts of a batch have no common one; give every process the same inputs"
        )
        coverage["refused"] = [one for one in coverage["refused"] if one["what"] != what]
        coverage["refused"].append({"what": what, "why": why})
    add_facts(record, options, anatomy, outcome, loss, coverage, passes, shares.summary())
    record.note("processes", process_facts(convoy, shares))
    return record
