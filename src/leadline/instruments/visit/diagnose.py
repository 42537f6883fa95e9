"""`ll.diagnose`: visit a model, or take a record, and ask every rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from leadline.errors import InputError
from leadline.reading.diagnosis.diagnosis import Diagnosis, choose_rules, diagnose_record
from leadline.record import Record

if TYPE_CHECKING:
    from torch import nn

    from leadline.anatomy import Anatomy, Declaration
    from leadline.errors import Progress
    from leadline.models.loading import LoadedModel

__all__ = ["diagnose"]


def diagnose(
    model: nn.Module | LoadedModel | Record,
    inputs: Any = None,
    *,
    reference: nn.Module | LoadedModel | Record | None = None,
    intended: str = "",
    train: int = 0,
    ablate: bool = False,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    anatomy: Anatomy | Declaration | None = None,
    families: bool = True,
    twin: bool | Callable[[], nn.Module] = True,
    seed: int = 0,
    progress: Progress | None = None,
) -> Diagnosis:
    """Say what is wrong with a model, where, why and what to do; or that nothing is unusual.

    `model` is a module, what `load` returns, or a record: then only what it holds is looked at.
    `inputs` are those of `measure`. `reference` is a model or record that is known to be right,
    `intended` what the model is meant to be, such as "pre-norm, causal, gpt2". `train` is a number
    of steps that a copy is trained, `ablate` leaves out one write after the other. `select` and
    `ignore` are codes or names of rules, or the beginning of codes. `twin` may be False, or a
    function that builds the model with random weights. The model stays as it is.
    """
    choose_rules(select, ignore)  # an unknown code is said before the work
    if isinstance(model, Record):
        if asked := [n for n, v in (("train", train), ("ablate", ablate)) if v]:
            raise InputError(
                f"{' and '.join(asked)} needs the model, and a record was given: diagnose the "
                "model instead."
            )
        record = model
    else:
        from leadline.instruments.visit.patient import VisitOptions
        from leadline.instruments.visit.visit import check_steps, visit

        record = visit(
            model,
            inputs,
            anatomy=anatomy,
            families=families,
            twin=twin,
            options=VisitOptions(intended, check_steps(train), ablate, seed),
            seed=seed,
            progress=progress,
        )
    other: Record | None = None
    if isinstance(reference, Record) or reference is None:
        other = reference
    else:
        from leadline.instruments.visit.visit import visit

        other = visit(reference, inputs, twin=False, seed=seed, progress=progress)
    diagnosis = diagnose_record(record, reference=other, select=select, ignore=ignore)
    if record is not model:  # the record of this visit is ours to write to
        for finding in diagnosis.findings:
            record.add_finding(finding)
    return diagnosis
