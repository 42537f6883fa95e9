"""`leadline.cost`: what any instrument will take, before it is run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from leadline.anatomy import Anatomy, Declaration
from leadline.catalog import Choice
from leadline.errors import InputError, LeadlineError
from leadline.instruments.collapse.cost import collapse_of
from leadline.instruments.cost.rates import NO_TIME, Rates, rates_here
from leadline.instruments.cost.result import CostEstimate, CostPart
from leadline.instruments.cost.room import check_room
from leadline.instruments.cost.sizes import CountedModel
from leadline.instruments.jacobian.cost import jacobian_of, lyapunov_of
from leadline.instruments.passes.cost import (
    anatomy_part,
    counted,
    estimate_measure,
    estimate_of,
    part_of,
)
from leadline.instruments.paths.cost import paths_of
from leadline.models.inputs import Inputs, random_inputs
from leadline.models.loading import LoadedModel

__all__ = ["Instrument", "Question", "cost", "refuse_before_loading"]

Instrument = Literal["measure", "jacobian", "lyapunov", "paths", "collapse", "diagnose"]


def cost(
    model: nn.Module | LoadedModel,
    inputs: Any = None,
    *,
    instrument: Instrument = "measure",
    probes: str | Sequence[str | Choice | Mapping[str, Any]] | None = None,
    loss: str | Callable[..., torch.Tensor] = "auto",
    anatomy: Anatomy | Declaration | None = None,
    families: bool = True,
    ablate: str | None = None,
    layer: int | tuple[int, int] | None = None,
    k: int | None = None,
    smallest: int = 0,
    seed: int = 0,
) -> CostEstimate:
    """Predict what an instrument will take: passes, flops, bytes, memory and seconds, part by part.

    The model is not run: its passes are counted on tensors without numbers, and multiplied by rates
    of this machine that are measured in a fraction of a second. The arguments are those of the
    instrument. `print(cost(model))` is the answer in a sentence; `parts` is the table.
    """
    question = Question(
        instrument, probes, loss, anatomy, families, ablate, layer, k, smallest, seed
    )
    return _estimate(model, inputs, question, rates_here())


def refuse_before_loading(
    model: LoadedModel,
    inputs: Inputs,
    question: Question,
    *,
    free: int,
    weights: Literal["whole", "streamed"],
    streamable: bool,
) -> str | None:
    """MemoryLack where a model without weights, once loaded and measured, would not fit.

    A remark where it may not. What cannot be counted is no reason to refuse.
    """

    def predict(batch: Inputs) -> CostEstimate:
        return _estimate(model, batch, question, NO_TIME)

    def of_size(examples: int, tokens: int) -> CostEstimate:
        return predict(
            random_inputs(model.model, examples=examples, length=tokens, seed=question.seed)
        )

    try:
        estimate = predict(inputs)
    except LeadlineError:
        return None  # what is wrong is said where the model is measured
    if weights == "whole" and streamable and estimate.weights > free:
        weights = "streamed"  # as the loader will decide
    drawn = "tokens" in inputs.kind
    return check_room(
        estimate,
        free=free,
        weights=weights,
        predict=of_size if drawn else None,
        streamable=streamable,
    )


@dataclass(frozen=True)
class Question:
    """An instrument and its arguments, as `cost` takes them."""

    instrument: Instrument = "measure"
    probes: str | Sequence[str | Choice | Mapping[str, Any]] | None = None
    loss: str | Callable[..., torch.Tensor] = "auto"
    anatomy: Anatomy | Declaration | None = None
    families: bool = True
    ablate: str | None = None
    layer: int | tuple[int, int] | None = None
    k: int | None = None
    smallest: int = 0
    seed: int = 0


def _estimate(
    model: nn.Module | LoadedModel, inputs: Any, question: Question, rates: Rates
) -> CostEstimate:
    instrument, loss, anatomy = question.instrument, question.loss, question.anatomy
    families, seed, k = question.families, question.seed, question.k
    if instrument == "measure":
        return estimate_measure(
            model,
            inputs,
            probes=question.probes,
            loss=loss,
            anatomy=anatomy,
            families=families,
            ablate=question.ablate,
            seed=seed,
            rates=rates,
        )
    counted_model, name = counted(model, inputs, loss=loss, anatomy=anatomy, seed=seed)
    parts = list(anatomy_part(counted_model, rates, anatomy=anatomy, families=families, seed=seed))
    if instrument == "jacobian":
        parts += jacobian_of(
            counted_model, rates, layer=question.layer, k=k or 4, smallest=question.smallest
        )
    elif instrument == "lyapunov":
        parts += lyapunov_of(counted_model, rates, k=k or 8)
    elif instrument == "paths":
        parts += paths_of(counted_model, rates)
    elif instrument == "diagnose":
        parts = _visit(counted_model, rates)
    elif instrument == "collapse":
        parts = collapse_of(counted_model, rates)
    else:
        raise InputError(
            f"No instrument is called {instrument!r}. Known: measure, jacobian, lyapunov, paths, "
            "collapse, diagnose."
        )
    return estimate_of(instrument, name, counted_model, parts, rates)


def _visit(model: CountedModel, rates: Rates) -> list[CostPart]:
    """The passes of a visit, with a twin, as `diagnose` counts them before it begins."""
    from leadline.instruments.visit.visit import visit_cost

    count = visit_cost()
    both = model.measuring
    work = count * (both.forward + both.backward)
    doing = f"about {count:.0f} forward and backward passes, of the model and its twin"
    memory = both.memory + model.weights
    return [part_of("visit", doing, work, rates, memory=memory, passes={"visit": round(count)})]
