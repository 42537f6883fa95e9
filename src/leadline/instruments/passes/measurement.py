"""Measure a model: read its anatomy, then run one forward and one backward pass for all probes.

Reading the anatomy takes a few small forward passes and one on the real inputs. It is judged again
during the measuring pass; the record holds its balance and the number of passes of each kind. The
model is left as it was.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from os import PathLike
from typing import Any

import torch
from torch import nn

from leadline.anatomy import Anatomy, Declaration, refuse_imbalance, untouched
from leadline.catalog import Choice
from leadline.errors import (
    AnatomyError,
    ProbeError,
    Progress,
    check_path,
    check_progress,
    check_seed,
    check_text,
)
from leadline.instruments.passes.ablation import ablate as leave_out
from leadline.instruments.passes.arguments import known_anatomy, modules_of, tokenizer_for
from leadline.instruments.passes.coverage import coverage_of, with_linear
from leadline.instruments.passes.linearising import Linearising
from leadline.instruments.passes.not_finite import (
    balance_findings,
    broken_tensor,
    first_broken_output,
    not_finite_findings,
    refuse_broken,
    refuse_broken_inputs,
    refuse_broken_weights,
)
from leadline.instruments.passes.output_head import head_of
from leadline.instruments.passes.probe_plan import Plan, plan
from leadline.instruments.passes.provenance import loss_facts, model_facts, versions
from leadline.instruments.passes.running import PassOutcome, call, few_threads, read, run
from leadline.instruments.passes.sameness import (
    declared_digest,
    digest_of,
    function_facts,
    structure_of,
)
from leadline.instruments.passes.unseen import nothing_seen
from leadline.models.inputs import Inputs, choose_loss
from leadline.models.inputs.for_model import batch_for
from leadline.models.loading import LoadedModel
from leadline.models.streaming.pager import pager_of
from leadline.record import Record
from leadline.record.file.lock import only_writer
from leadline.record.file.unfinished import (
    GrowingRecord,
    refuse_foreign,
    refuse_unfinished,
    resume_record,
)

__all__ = [
    "anatomy_of",
    "broken_tensor",
    "known_anatomy",
    "measure",
    "model_facts",
    "modules_of",
    "refuse_broken",
    "refuse_broken_inputs",
    "tokenizer_for",
    "versions",
]


def measure(
    model: nn.Module | LoadedModel,
    inputs: Any = None,
    *,
    probes: str | Sequence[str | Choice | Mapping[str, Any]] | None = None,
    loss: str | Callable[..., torch.Tensor] = "auto",
    anatomy: Anatomy | Declaration | None = None,
    families: bool = True,
    ablate: str | None = None,
    seed: int = 0,
    name: str | None = None,
    source: str = "given",
    path: str | PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Record:
    """Measure how signal and gradient travel through a model.

    `model` is a module or what `load` returns. `inputs` is texts (with a loaded model),
    what `random_tokens` and similar functions return, a tensor, a mapping of tensors, or None
    for random ones. `probes` are names or choices such as `recall(ridge=0.01)`; None means all
    that share one forward and one backward pass, which follow the passes that read the anatomy.
    `loss` is "auto", "next-token", "masked",
    "random" (a seeded random cotangent) or a function of output and inputs. `anatomy` is a
    declaration, or an anatomy that `anatomy_of` proved before; `families=False` leaves all to
    discovery. `ablate` is "block" or "sublayer": each is left out in turn and the loss measured
    again. `path` is the record's file. Probes that go block by block (`jacobian`, `lyapunov`) write
    their rows to it after every block, and a measurement that was interrupted continues there when
    it is called again with the same arguments. A file that is no record is never overwritten.
    """
    started = time.perf_counter()
    seed = check_seed(seed)
    probe_plan = plan(probes)
    file = None if path is None else check_path(path)
    if file is not None:
        refuse_foreign(file)
    say = check_progress(progress)
    for label, text in (("name", name), ("source", source)):
        if text is not None:
            check_text(text, label)
    if isinstance(model, LoadedModel):
        name, source = name or model.name, model.source
    wrapped, module = modules_of(model)
    batch = batch_for(module, inputs, seed, tokenizer=tokenizer_for(model, inputs))
    refuse_broken_inputs(batch)
    proved_before = known_anatomy(module, anatomy)
    options = _MeasureOptions(probe_plan, loss, ablate, seed, say)
    with _gradients_on(), untouched(module), nullcontext() if file is None else only_writer(file):
        request: dict[str, Any] = {}
        unfinished = None
        if file is not None and probe_plan.linear:
            request = _resume_facts(options, module, batch, families=families, anatomy=anatomy)
            unfinished = resume_record(file, request)
        elif file is not None:
            refuse_unfinished(file)
        options.say("reading the anatomy", 0, 3)
        pager = pager_of(module)
        if pager is not None and progress is not None:
            pager.tell("reading the anatomy", options.say)
        proved_anatomy, anatomy_passes = proved_before, 0
        if proved_anatomy is None:
            proved_anatomy, anatomy_passes = _read_anatomy(module, batch, anatomy, families, seed)
        linearising = Linearising(module, proved_anatomy, probe_plan, lambda: call(module, batch))
        if unfinished is None:
            if pager is not None and progress is not None:
                pager.tell("measuring", options.say)
            record = _run_passes(
                options, module, batch, proved_anatomy, anatomy_passes, steps=linearising.steps
            )
            record.note("model", model_facts(wrapped, name, source))
            if pager is not None:
                record.note("streaming", pager.facts())
        else:
            record = unfinished
        if probe_plan.linear:
            growing = (
                GrowingRecord.begin(
                    record, file, request=request, parts=len(linearising.parts), started=started
                )
                if unfinished is None
                else GrowingRecord(record, file, started=started)
            )
            with few_threads(module, batch):
                record = _run_linear(growing, linearising, options, batch)
        else:
            record.note("seconds", round(time.perf_counter() - started, 3))
            if file is not None:
                record.save(file)
    options.say("done", 3 + linearising.steps, 3 + linearising.steps)
    return record


@dataclass(frozen=True)
class _MeasureOptions:
    """What is to be measured, apart from the model and its inputs."""

    plan: Plan
    loss: str | Callable[..., torch.Tensor]
    ablate: str | None
    seed: int
    say: Progress


def _run_passes(
    options: _MeasureOptions,
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
    record = _record(probe_plan, outcome)
    passes = {"forward": 1, "backward": int(probe_plan.backward), "anatomy_forward": anatomy_passes}
    if head_passes:
        passes["head_forward"] = head_passes
    if options.ablate is not None:
        ablation = leave_out(
            module,
            anatomy,
            lambda: loss.compute(call(module, batch), batch),
            unit=options.ablate,
            progress=options.say,
        )
        for quantity in ablation.quantities:
            record.describe(quantity)
        record.append(ablation.readings)
        passes["ablation_forward"] = ablation.passes
    record.note("anatomy", anatomy.proved(outcome.balance).to_json())
    record.note("input", batch.summary())
    record.note("loss", loss_facts(loss, outcome.loss))
    record.note("passes", passes)
    record.note("probes", [str(choice) for choice in probe_plan.choices])
    record.note("coverage", coverage_of(module, batch, probe_plan, outcome, anatomy, frozen=frozen))
    if outcome.collector.attentions:
        record.note("attention", outcome.collector.attentions)
    record.note("versions", versions())
    record.note("time", time.strftime("%Y-%m-%dT%H:%M:%S%z"))
    for finding in [
        *balance_findings(record, anatomy, outcome.balance),
        *outcome.collector.remarks,
    ]:
        record.add_finding(finding)
    return record


def _run_linear(
    growing: GrowingRecord, linearising: Linearising, options: _MeasureOptions, batch: Inputs
) -> Record:
    """Run the probes that see blocks as linear maps and return the finished record."""
    total = 3 + linearising.steps
    try:
        linearising.run(growing, lambda what, at: options.say(what, 2 + at, total))
        options.say("writing the record", total - 1, total)
        record = growing.record
        names = [quantity.name for probe in options.plan.linear for quantity in probe.quantities]
        measured = [name for name in names if name in record]
        if not measured and len(options.plan.linear) == len(options.plan.probes):
            raise ProbeError(f"No linear map could be measured: {growing.refused[0][2]}.")
        provenance = record.provenance
        padded = batch.mask is not None and not bool(batch.mask.bool().all())
        notes = {
            "coverage": with_linear(
                provenance["coverage"],
                options.plan,
                measured,
                refused=growing.refused,
                padded=padded,
            ),
            "linear_maps": linearising.facts,
            "seconds": round(growing.seconds, 3),
        }
        return growing.end(notes, not_finite_findings(record, measured))
    except BaseException:
        growing.close()
        raise


def _resume_facts(
    options: _MeasureOptions,
    module: nn.Module,
    batch: Inputs,
    *,
    families: bool,
    anatomy: Anatomy | Declaration | None,
) -> dict[str, Any]:
    """What a measurement must share with an interrupted one in order to continue it."""
    return {
        "probes": [str(choice) for choice in options.plan.choices],
        "seed": options.seed,
        "loss": options.loss if isinstance(options.loss, str) else function_facts(options.loss),
        "ablation": options.ablate,
        "anatomy": {"families": families, "declared": declared_digest(anatomy)},
        "input": batch.digest,
        "weights": digest_of(module),
        "structure": structure_of(module),
        "versions": versions(),
    }


def anatomy_of(
    model: nn.Module | LoadedModel,
    inputs: Any = None,
    *,
    anatomy: Anatomy | Declaration | None = None,
    families: bool = True,
    seed: int = 0,
) -> Anatomy:
    """The anatomy of a model, proved by its balance on the inputs."""
    seed = check_seed(seed)
    _, module = modules_of(model)
    known_anatomy(module, anatomy)
    batch = batch_for(module, inputs, seed, tokenizer=tokenizer_for(model, inputs))
    with _gradients_on(), untouched(module):
        return _read_anatomy(module, batch, anatomy, families, seed)[0]


@contextmanager
def _gradients_on() -> Iterator[None]:
    """Switch autograd on whatever mode the caller is in: roles and gradient norms need it."""
    with torch.inference_mode(False), torch.enable_grad():
        yield


def _read_anatomy(
    module: nn.Module,
    batch: Inputs,
    declared: Anatomy | Declaration | None,
    families: bool,
    seed: int,
) -> tuple[Anatomy, int]:
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


def _record(probe_plan: Plan, outcome: PassOutcome) -> Record:
    record = Record()
    readings = outcome.collector.readings()
    for quantity in probe_plan.quantities:
        if quantity.name in outcome.collector.measured:
            record.describe(quantity)
    record.append(readings)
    return record


def _only_attention(probe_plan: Plan) -> bool:
    return all("attention" in probe.sees for probe in probe_plan.probes)
