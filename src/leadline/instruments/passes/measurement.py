"""Measure a model: read its anatomy, then run one forward and one backward pass for all probes.

Reading the anatomy takes a few small forward passes and one on the real inputs. It is judged again
during the measuring pass; the record holds its balance and the number of passes of each kind. The
model is left as it was.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from os import PathLike
from typing import Any

import torch
from torch import nn

from leadline.anatomy import Anatomy, Declaration, untouched
from leadline.catalog import Choice
from leadline.errors import (
    ProbeError,
    Progress,
    check_path,
    check_progress,
    check_seed,
    check_text,
)
from leadline.errors.progress import Foreseeing
from leadline.instruments.passes.arguments import known_anatomy, modules_of, tokenizer_for
from leadline.instruments.passes.cost import foretell, refuse_too_large
from leadline.instruments.passes.coverage import with_linear
from leadline.instruments.passes.linear.linearising import Linearising
from leadline.instruments.passes.measuring import MeasureOptions, gradients_on, prove, run_passes
from leadline.instruments.passes.not_finite import (
    broken_tensor,
    not_finite_findings,
    refuse_broken,
    refuse_broken_inputs,
)
from leadline.instruments.passes.probe_plan import plan
from leadline.instruments.passes.processes.convoy import Convoy, convoy_for
from leadline.instruments.passes.processes.measuring import measure_together
from leadline.instruments.passes.processes.whole import refuse_alone
from leadline.instruments.passes.provenance import model_facts, versions
from leadline.instruments.passes.running import call, few_threads
from leadline.instruments.passes.sameness import (
    declared_digest,
    digest_of,
    function_facts,
    structure_of,
)
from leadline.models.inputs import Inputs
from leadline.models.inputs.for_model import batch_for
from leadline.models.loading import LoadedModel
from leadline.models.streaming.pager import heard
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
    anyway: bool = False,
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
    A measurement that needs more memory than is free is refused before it begins, with what would
    fit; with `anyway` it is tried.

    In a job of several processes a model that DDP wraps, that `fully_shard` or that
    `parallelize_module` has spread is measured by all of them: every process makes this call with
    its own part of the batch, and every process returns the record of the whole model on the whole
    batch. Processes with the same inputs count once. Process 0 writes the file. Where one of them
    raises, all do.
    """
    convoy = convoy_for(model.model if isinstance(model, LoadedModel) else model)
    with nullcontext() if convoy is None else convoy.call():
        return _measure(
            model,
            inputs,
            probes=probes,
            loss=loss,
            anatomy=anatomy,
            families=families,
            ablate=ablate,
            seed=seed,
            name=name,
            source=source,
            path=path,
            progress=progress,
            convoy=convoy,
            anyway=anyway,
        )


def _measure(
    model: nn.Module | LoadedModel,
    inputs: Any,
    *,
    probes: str | Sequence[str | Choice | Mapping[str, Any]] | None,
    loss: str | Callable[..., torch.Tensor],
    anatomy: Anatomy | Declaration | None,
    families: bool,
    ablate: str | None,
    seed: int,
    name: str | None,
    source: str,
    path: str | PathLike[str] | None,
    progress: Progress | None,
    convoy: Convoy | None,
    anyway: bool,
) -> Record:
    started = time.perf_counter()
    seed = check_seed(seed)
    probe_plan = plan(probes)
    if convoy is not None:
        refuse_alone(probe_plan, convoy)
    file = None if path is None or not (convoy is None or convoy.main) else check_path(path)
    if file is not None:
        refuse_foreign(file)
    say = check_progress(progress)
    for label, text in (("name", name), ("source", source)):
        if text is not None:
            check_text(text, label)
    if isinstance(model, LoadedModel):
        name, source = name or model.name, model.source
    wrapped, module = modules_of(model, spread=convoy is not None)
    batch = batch_for(module, inputs, seed, tokenizer=tokenizer_for(model, inputs))
    refuse_broken_inputs(batch)
    proved_before = known_anatomy(module, anatomy)
    options = MeasureOptions(probe_plan, loss, ablate, seed, say)
    if convoy is None and not anyway:
        refuse_too_large(
            LoadedModel(module, name or type(module).__name__, source),
            batch,
            probe_plan.choices,
            loss=loss,
            anatomy=proved_before,
            seed=seed,
        )
    if convoy is not None:
        return measure_together(
            options,
            wrapped,
            module,
            batch,
            convoy,
            declared=anatomy,
            proved_before=proved_before,
            families=families,
            names=(name, source),
            file=file,
        )
    with (
        gradients_on(),
        untouched(module),
        heard(module) as pager,
        nullcontext() if file is None else only_writer(file),
    ):
        request: dict[str, Any] = {}
        unfinished = None
        if file is not None and probe_plan.linear:
            request = _resume_facts(options, module, batch, families=families, anatomy=anatomy)
            unfinished = resume_record(file, request)
        elif file is not None:
            refuse_unfinished(file)
        options.say("reading the anatomy", 0, 3)
        if pager is not None and progress is not None:
            pager.tell("reading the anatomy", options.say)
        if isinstance(progress, Foreseeing) and unfinished is None:
            foretell(progress, module, batch, probe_plan.choices, loss, anatomy, families)
        proved_anatomy, anatomy_passes = proved_before, 0
        if proved_anatomy is None:
            proved_anatomy, anatomy_passes = prove(module, batch, anatomy, families, seed)
        linearising = Linearising(module, proved_anatomy, probe_plan, lambda: call(module, batch))
        if unfinished is None:
            if pager is not None and progress is not None:
                pager.tell("measuring", options.say)
            record = run_passes(
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


def _run_linear(
    growing: GrowingRecord, linearising: Linearising, options: MeasureOptions, batch: Inputs
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
    options: MeasureOptions,
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
    with gradients_on(), untouched(module):
        return prove(module, batch, anatomy, families, seed)[0]
