"""Visit a model: measure it, run every check, measure its twin, and keep it all in one record."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from leadline.anatomy import Anatomy, Declaration, untouched
from leadline.anatomy.find.unproved import Unproved
from leadline.errors import (
    AnatomyError,
    InputError,
    LeadlineError,
    Progress,
    as_whole_number,
    check_progress,
    check_seed,
    shown,
)
from leadline.instruments.passes.arguments import modules_of, tokenizer_for
from leadline.instruments.passes.measurement import measure
from leadline.instruments.passes.probe_plan import plan
from leadline.instruments.visit.check import CHECKS, CouldNot, VisitCheck, VisitFact
from leadline.instruments.visit.partial import measure_unbalanced, read_unproved
from leadline.instruments.visit.patient import (
    FEWEST_TOKENS,
    MOST_EXAMPLES,
    Patient,
    VisitOptions,
    cut,
    takes_shorter_rows,
)
from leadline.instruments.visit.tokens.intention import dropouts
from leadline.instruments.visit.twin import NoTwin, build_twin, twin_from
from leadline.models.inputs import Inputs
from leadline.models.inputs.for_model import batch_for
from leadline.models.loading import LoadedModel
from leadline.models.streaming.pager import heard, pager_of
from leadline.reading.diagnosis.intended import parse_intended
from leadline.record import Reading, Record

__all__ = ["TWIN_PROBES", "VISIT_PROBES", "visit", "visit_cost"]

VISIT_PROBES = "stream,tokens,rank,update,gradient,influence,lanes,attention,extremes"
FORWARD_PROBES = "stream,tokens,rank,update,lanes,attention,extremes"
TWIN_PROBES = "stream,tokens,update,gradient,attention,extremes"
MEASURING_COST, TWIN_COST = 1.5, 0.5
"""What measuring costs in forward and backward passes: one for the probes and attention, and the
forward passes that prove the anatomy. The twin is drawn and measured on fewer tokens."""


TWIN_TOKENS = 128
"""Of many examples the twin gets so many that they have this many tokens: means over examples are
what is compared. Rows stay as long as they are, because attention depends on their length."""


def visit(
    model: nn.Module | LoadedModel,
    inputs: Any = None,
    *,
    anatomy: Anatomy | Declaration | None = None,
    twin: bool | Callable[[], nn.Module] = True,
    checks: Sequence[str] | None = None,
    families: bool = True,
    options: VisitOptions | None = None,
    train: int = 0,
    ablate: bool = False,
    seed: int = 0,
    name: str | None = None,
    source: str = "given",
    progress: Progress | None = None,
) -> Record:
    """Measure everything that rules ask for and return one record.

    `twin` may be False, or a function that builds the model with random weights where its class
    cannot be built from a configuration. `checks` are names; None means all. `families` says
    whether family files may tell the anatomy. `train` is the number of steps of a short training
    run on a copy, and `ablate` leaves every write out in turn: two answers that cost more than the
    rest of the visit. `options` stands for these two, and says what the model is meant to be.
    """
    started = time.perf_counter()
    seed = check_seed(seed)
    steps = check_steps(train)
    say = check_progress(progress)
    if options is not None and options.intended:
        parse_intended(options.intended)  # a phrase that is not understood is said before the work
    if isinstance(model, LoadedModel):
        name, source = name or model.name, model.source
    _, module = modules_of(model)
    batch = batch_for(module, inputs, seed, tokenizer=tokenizer_for(model, inputs))
    chosen = [one for key, one in CHECKS.items() if checks is None or key in checks]
    total = 3 + len(chosen)
    say("measuring", 0, total)
    with heard(module) as pager:
        if pager is not None:
            pager.tell("measuring", say)
        facts: dict[str, Any] = {"dropouts": dropouts(module)}
        could_not: dict[str, str] = {}
        rows_may_shrink = takes_shorter_rows(module, batch)
        record, anatomy_found, unproved = _measure(
            module,
            batch,
            anatomy,
            short=_shortened(batch, MOST_EXAMPLES, FEWEST_TOKENS) if rows_may_shrink else batch,
            families=families,
            seed=seed,
            name=name,
            source=source,
            facts=facts,
        )
        asked = options or VisitOptions(train=steps, ablate=ablate, seed=seed)
        patient = Patient(module, batch, anatomy_found, unproved, options=asked)
        patient.rows_may_shrink = rows_may_shrink
        facts["small_tokens"] = patient.small_tokens
        if patient.options.intended:
            facts["intended"] = patient.options.intended
        if isinstance(model, LoadedModel):
            patient.loaded_missing = model.missing
        facts["rows"] = {stack: list(paths) for stack, paths in patient.rows.items()}
        say("building a twin with random weights", 1, total)
        patient.twin = _twin(patient, twin, seed, facts, could_not)
        if patient.twin is not None:
            _measure_twin(record, patient, seed, facts)
        for at, one in enumerate(chosen):
            say(f"checking {one.name}", 2 + at, total)
            if pager is not None:
                pager.tell(f"checking {one.name}", say)
            _run(one, patient, record, facts, could_not)
        if record.provenance.get("anatomy"):  # else the refusal is why
            probes = FORWARD_PROBES if "no_gradients" in facts else VISIT_PROBES
            for quantity in plan(probes).quantities:
                if quantity.absent and quantity.name not in record.quantities:
                    could_not.setdefault(quantity.name, quantity.absent)
        facts["could_not"] = could_not
        facts["seconds"] = round(time.perf_counter() - started, 3)
        record.note("visit", facts)
        if pager is not None:
            record.note("streaming", pager.facts())
    say("done", total, total)
    return record


def visit_cost(*, twin: bool = True) -> float:
    """About how many forward and backward passes a visit takes; a backward pass is two forward."""
    forward_only = sum(one.pass_cost for _, one in CHECKS.items())
    return MEASURING_COST + (TWIN_COST if twin else 0) + forward_only / 3


def check_steps(train: object) -> int:
    """The number of steps of the short run, or refuse what is no whole number from 0 on."""
    steps = as_whole_number(train)
    if steps is None or steps < 0:
        raise InputError(
            f"train is {shown(train)}; give a whole number of steps, such as 50, or 0 for no run."
        )
    return steps


def _measure(
    module: nn.Module,
    batch: Inputs,
    anatomy: Anatomy | Declaration | None,
    *,
    short: Inputs,
    families: bool,
    seed: int,
    name: str | None,
    source: str,
    facts: dict[str, Any],
) -> tuple[Record, Anatomy | None, Unproved | None]:
    """The record of the passes; of a model that does not balance, what can be measured of it."""
    from leadline.instruments.passes.measurement import anatomy_of

    try:
        if anatomy is None:
            _check_declaration(module)
        found = anatomy_of(module, short, anatomy=anatomy, families=families, seed=seed)
        facts_of = {"anatomy": found, "seed": seed, "name": name, "source": source}
        try:
            record = measure(module, batch, probes=VISIT_PROBES, **facts_of)
        except InputError as error:
            # No gradient flows from the loss, as after a detach: the rest can be measured.
            facts["no_gradients"] = str(error)
            record = measure(module, batch, probes=FORWARD_PROBES, **facts_of)
    except AnatomyError as error:
        facts["refusal"] = str(error)
        record, unproved = _measure_refused(
            module, batch, seed=seed, name=name, source=source, facts=facts
        )
        return record, None, unproved
    return record, found, None


def _check_declaration(module: nn.Module) -> None:
    """Refuse a model whose own `anatomy()` fails, as one does whose blocks were changed since."""
    declare = getattr(module, "anatomy", None)
    if not callable(declare):
        return
    try:
        declare()
    except LeadlineError:
        raise
    except Exception as error:
        raise AnatomyError(
            f"{type(module).__name__}.anatomy() failed ({type(error).__name__}: {error}), so that its "
            "blocks were read from a pass."
        ) from error


def _shortened(batch: Inputs, examples: int, tokens: int) -> Inputs:
    """The first examples and tokens of long rows of ids; other inputs as they are."""
    ids = batch.main
    if ids.ndim != 2 or ids.is_floating_point() or ids.numel() < 2 * examples * tokens:
        return batch
    return cut(batch, examples, tokens)


def _measure_refused(
    module: nn.Module,
    batch: Inputs,
    *,
    seed: int,
    name: str | None,
    source: str,
    facts: dict[str, Any],
) -> tuple[Record, Unproved | None]:
    """What can be measured of a model whose anatomy was refused; an empty record where nothing can."""
    from leadline.instruments.passes.provenance import model_facts, versions

    try:
        unproved = read_unproved(module, batch, seed)
    except LeadlineError as error:
        facts["unmeasured"] = str(error)
        unproved = None
    if unproved is not None:
        try:
            record = measure_unbalanced(
                module, batch, unproved, probes=VISIT_PROBES, seed=seed, name=name, source=source
            )
        except LeadlineError as error:
            facts["unmeasured"] = str(error)
        else:
            return record, unproved
    record = Record()
    record.note("model", model_facts(module, name, source))
    record.note("input", batch.summary())
    record.note("versions", versions())
    return record, unproved


def _twin(
    patient: Patient,
    twin: bool | Callable[[], nn.Module],
    seed: int,
    facts: dict[str, Any],
    could_not: dict[str, str],
) -> nn.Module | None:
    if twin is False:
        why = "no twin was asked for"
    else:
        try:
            built = (
                build_twin(patient.model, seed + 1)
                if twin is True
                else twin_from(twin, patient.model)
            )
        except NoTwin as error:
            why = f"no twin: {error}"
        else:
            facts["twin"] = {"built": True}
            return built
    facts["twin"] = {"built": False, "why": why}
    could_not["twin"] = why
    could_not["twin or natural text"] = f"{why}, and the inputs are no natural text"
    return None


def _measure_twin(record: Record, patient: Patient, seed: int, facts: dict[str, Any]) -> None:
    """Add the numbers of the twin on the same inputs, under the statistic `twin_...`."""
    assert patient.twin is not None
    try:
        with torch.inference_mode(False):
            length = patient.batch.main.shape[-1]
            few = _shortened(patient.batch, max(1, TWIN_TOKENS // max(1, length)), length)
            with _frozen(patient.twin):
                twins = _twin_record(patient.twin, few, seed, patient.anatomy)
    except LeadlineError as error:
        facts["twin"] = {"built": True, "unmeasured": str(error)}
        return
    for quantity in twins.quantities.values():
        record.describe(quantity)
    wanted = {
        (reading.quantity, quantity.headline)
        for reading in twins.select()
        if (quantity := twins.quantities[reading.quantity])
    }
    record.append(
        Reading(
            reading.quantity,
            reading.site,
            "twin" if reading.statistic == "value" else f"twin_{reading.statistic}",
            reading.value,
        )
        for reading in twins.select()
        if (reading.quantity, reading.statistic) in wanted and reading.site.head is None
    )
    facts["twin_loss"] = (twins.provenance.get("loss") or {}).get("value")


@contextmanager
def _frozen(model: nn.Module) -> Iterator[None]:
    """Compute no gradients of parameters: no rule asks for those of a twin, only for its stream's."""
    flags = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    try:
        for parameter, _ in flags:
            parameter.requires_grad_(False)
        yield
    finally:
        for parameter, flag in flags:
            parameter.requires_grad_(flag)


def _twin_record(twin: nn.Module, batch: Inputs, seed: int, anatomy: Anatomy | None) -> Record:
    """The record of a twin; what is wrong with the code is wrong with the twin too.

    The anatomy of the model holds for it too, unless the weights of the model hide something; the
    balance of the measuring pass says whether it does.
    """
    if anatomy is not None:
        try:
            return measure(twin, batch, probes=TWIN_PROBES, anatomy=anatomy, seed=seed)
        except AnatomyError:
            pass  # the twin is read by itself
    try:
        return measure(twin, batch, probes=TWIN_PROBES, seed=seed)
    except AnatomyError:
        unproved = read_unproved(twin, batch, seed)
        return measure_unbalanced(
            twin, batch, unproved, probes=TWIN_PROBES, seed=seed, name=None, source="twin"
        )


def _run(
    one: VisitCheck,
    patient: Patient,
    record: Record,
    facts: dict[str, Any],
    could_not: dict[str, str],
) -> None:
    """Run one check; a check that fails is told in the coverage and stops nothing."""
    gives = (*one.facts, *(quantity.name for quantity in one.quantities))
    readings: list[Reading] = []
    try:
        with untouched(patient.model), torch.inference_mode(False):
            for found in one.look(patient):
                if isinstance(found, VisitFact):
                    facts[found.name] = found.value
                elif isinstance(found, CouldNot):
                    could_not |= dict.fromkeys(found.names, found.why)
                else:
                    readings.append(found)
    except (
        Exception
    ) as error:  # whatever a foreign model raises where it is asked something unusual
        why = f"the check {one.name} failed on this model ({type(error).__name__}: {error})"
        could_not |= dict.fromkeys(gives, why)
        return
    _keep(record, one, readings)
    if (pager := pager_of(patient.model)) is not None:
        pager.give_back()


def _keep(record: Record, one: VisitCheck, readings: Iterable[Reading]) -> None:
    rows = list(readings)
    names = {row.quantity for row in rows}
    for quantity in one.quantities:
        if quantity.name in names:
            record.describe(quantity)
    record.append(rows)
