"""What `measure` costs: the passes that it makes, the tap, and what every probe declares.

    anatomy     small forward passes on which it is fitted, and one on the inputs to judge it
    passes      forward, and backward where a probe wants gradients; every write is balanced again
    probes      each declares its own work by `cost(size)`, for one stack
    maps        probes of linear maps add passes that go block by block

A pass is counted on the model itself (`cost.counting`). The numbers of passes are those that the
record will hold under `passes`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

import torch
from torch import nn

from leadline.anatomy import Anatomy, Declaration, untouched
from leadline.anatomy.families.family import FAMILIES, model_type
from leadline.catalog import Choice
from leadline.errors import LeadlineError
from leadline.errors.progress import Foreseeing
from leadline.instruments.cost.rates import NO_TIME, Rates, rates_here
from leadline.instruments.cost.result import CostEstimate, CostPart
from leadline.instruments.cost.room import check_room, free_on, size_of, surely_fits
from leadline.instruments.cost.sizes import CountedModel, rows_of
from leadline.instruments.cost.work import NO_WORK, Size, Workload, calling, moving
from leadline.instruments.passes.arguments import known_anatomy, modules_of, tokenizer_for
from leadline.instruments.passes.probe import LINEAR
from leadline.instruments.passes.probe_plan import Plan, plan
from leadline.instruments.passes.running import FIT_LENGTH
from leadline.models.inputs import Inputs, choose_loss, context_limit, random_inputs
from leadline.models.inputs.for_model import batch_for
from leadline.models.inputs.losses import head_is_unknown
from leadline.models.loading import LoadedModel
from leadline.models.streaming.cost import LOGITS, held_while_streaming
from leadline.models.streaming.pager import pager_of

__all__ = [
    "Costed",
    "anatomy_part",
    "counted",
    "estimate_measure",
    "estimate_of",
    "foretell",
    "part_of",
    "refuse_too_large",
]

READ_ANEW = 1
"""Small passes by which discovery, or a declaration, reads a model: the tree of its calls. Where model
or family say where the writes are, there is none."""
BEGUN, HOOKED, READ, GRADED = 1400, 6, 11, 17
"""Python around the measuring pass, in small operations (`Rates.call`): once, where arguments are
checked and a record is made; for each module, whose hooks and flags are set and put back; for each
quantity at each place, whose readings are collected, checked and written (two of them in the mean of
the default probes); and for each weight whose gradient is measured. Least squares on 18 measurements,
in process time less what is counted: GPT-2 and Llama 32 wide, of 2, 4 and 9 layers on 2 x 16 tokens,
under three choices of probes, anatomy known."""
FOUND, TRACED = 1150, 19
"""The same of reading an anatomy: once, and for each module; least squares on those six models."""
BALANCED = 8
"""Numbers read and written for each number of a write while its balance is judged: the stream is
kept, added to what was returned, subtracted, and both are reduced to norms."""


REPLAYED = 6
"""Forward passes of one block on the small batch, or as much, by which its equation is fitted and
proved: 6.0 by the flops that `anatomy_of` did on GPT-2 of 3 layers 96 wide, counted by a dispatch mode."""


@runtime_checkable
class Costed(Protocol):
    """A probe that says what it costs."""

    def cost(self, size: Size) -> Workload:
        """The work for one stack, beside the passes."""
        ...


@runtime_checkable
class Holding(Protocol):
    """A probe that says what it holds."""

    def memory(self, size: Size) -> float:
        """Bytes at the highest, beside weights and passes."""
        ...


def estimate_measure(
    model: nn.Module | LoadedModel,
    inputs: Any = None,
    *,
    probes: str | Sequence[str | Choice | Mapping[str, Any]] | None = None,
    loss: str | Callable[..., torch.Tensor] = "auto",
    anatomy: Anatomy | Declaration | None = None,
    families: bool = True,
    ablate: str | None = None,
    seed: int = 0,
    rates: Rates | None = None,
) -> CostEstimate:
    """The cost of `measure` with the same arguments; the model is not run."""
    probe_plan = plan(probes)
    model_counted, name = counted(model, inputs, loss=loss, anatomy=anatomy, seed=seed)
    rates = rates_here() if rates is None else rates
    parts = [
        *anatomy_part(model_counted, rates, anatomy=anatomy, families=families, seed=seed),
        *_passes(model_counted, probe_plan, rates, loss),
        *_probes(model_counted, probe_plan, rates),
    ]
    if ablate is not None:
        parts.append(_ablation(model_counted, ablate, rates))
    undeclared = tuple(
        choice.name
        for choice, probe in zip(probe_plan.choices, probe_plan.probes, strict=True)
        if not isinstance(probe, Costed)
    )
    streamed = _streamed(model_counted, probe_plan)
    return replace(
        estimate_of("measure", name, model_counted, parts, rates, undeclared), streamed=streamed
    )


def _streamed(model: CountedModel, probe_plan: Plan) -> float:
    """Bytes at the highest where weights are read block by block: the blocks are run again one by one
    for the backward pass, so the graph of one of them stands at a time."""
    module, sizes = model.module, model.sizes()
    paths = [path for shape in model.forward.stacks for path in shape.paths]
    blocks = [list(module.get_submodule(path).parameters()) for path in paths]
    inside = {id(parameter) for block in blocks for parameter in block}
    outside = [[one] for one in module.parameters() if id(one) not in inside]
    units = blocks + outside
    output = 4 * model.forward.output
    graph = 0.0
    if probe_plan.backward:
        graph = max(model.measuring.held - LOGITS * output, 0) / max(len(paths), 1)
    held = held_while_streaming(
        block=max((sum(one.nbytes for one in unit) for unit in units), default=0),
        matrix=max((one.nbytes for block in blocks for one in block), default=0),
        streams=sum(size.stream * size.sites for size in sizes),
        logits=output,
    )
    probes = (probe.memory(size) for probe in probe_plan.probes if isinstance(probe, Holding)
              for size in sizes)  # fmt: skip
    return held + graph + max(probes, default=0.0)


def refuse_too_large(
    model: LoadedModel,
    batch: Inputs,
    choices: Sequence[Choice],
    *,
    loss: str | Callable[..., torch.Tensor],
    anatomy: Anatomy | None,
    seed: int,
) -> None:
    """MemoryLack where the passes need more memory than is free; a warning where they may.

    Where the memory that is free or the passes cannot be told, nothing is refused.
    """
    if pager_of(model.model) is not None:
        return  # a streamed model is judged by what its blocks need, when it is loaded
    try:
        free = free_on(batch.main.device)
    except (OSError, KeyError, RuntimeError):
        return
    if surely_fits(model.model, size_of(batch), free, directions=bool(plan(choices).linear)):
        return

    def predict(inputs: Inputs) -> CostEstimate:
        with untouched(model.model):
            return estimate_measure(
                model, inputs, probes=choices, loss=loss, anatomy=anatomy, seed=seed, rates=NO_TIME
            )

    def of_size(examples: int, tokens: int) -> CostEstimate:
        return predict(random_inputs(model.model, examples=examples, length=tokens, seed=seed))

    try:
        estimate = predict(batch)
    except LeadlineError:
        return
    drawn = "tokens" in batch.kind
    remark = check_room(estimate, free=free, weights="loaded", predict=of_size if drawn else None)
    if remark is not None:
        warnings.warn(remark, stacklevel=4)


LONG = 4e11
"""Flops from which on a prediction, some tenths of a second, is worth its time: about 4 s of passes."""


def foretell(
    progress: Foreseeing,
    module: nn.Module,
    batch: Inputs,
    choices: Sequence[Choice],
    loss: str | Callable[..., torch.Tensor],
    anatomy: Anatomy | Declaration | None,
    families: bool,
) -> None:
    """Tell a progress how long the steps of `measure` may take, where they may take long.

    The steps are those that `measure` tells: the anatomy, the passes, one for each layer of a chain
    and each block of linear maps, and the record.
    """
    numbers = sum(parameter.numel() for parameter in module.parameters())
    linear = bool(plan(choices).linear)
    if linear or 8.0 * numbers * batch.main.numel() < LONG:
        return  # linear maps tell many even steps, whose pace says more
    try:
        estimate = estimate_measure(
            module, batch, probes=choices, loss=loss, anatomy=anatomy, families=families
        )
    except LeadlineError:
        return
    reading = sum(part.seconds for part in estimate.parts if part.name == "anatomy")
    progress.foresee((reading, estimate.seconds - reading, 0.0))


def estimate_of(
    instrument: str,
    name: str,
    model: CountedModel,
    parts: Sequence[CostPart],
    rates: Rates,
    undeclared: tuple[str, ...] = (),
) -> CostEstimate:
    """The estimate of these parts."""
    shape = next(iter(model.forward.stacks), None)
    main = model.batch.main
    return CostEstimate(
        instrument=instrument,
        model=name,
        examples=main.shape[0] if main.ndim else 1,
        tokens=main.shape[1] if main.ndim > 1 else (shape.tokens if shape else 1),
        parts=tuple(parts),
        weights=model.weights,
        rates=rates.to_json(),
        undeclared=undeclared,
    )


def counted(
    model: nn.Module | LoadedModel,
    inputs: Any,
    *,
    loss: str | Callable[..., torch.Tensor] = "auto",
    anatomy: Anatomy | Declaration | None = None,
    seed: int = 0,
) -> tuple[CountedModel, str]:
    """The model with its inputs and its loss, ready to be counted, and its name."""
    wrapped, module = modules_of(model)
    batch = batch_for(module, inputs, seed, tokenizer=tokenizer_for(model, inputs))
    known = known_anatomy(module, anatomy)
    compute = None
    try:
        chosen, batch = choose_loss(module, batch, loss, seed=seed)
        compute = chosen.compute
    except LeadlineError:
        pass  # what is wrong with the loss is said when the model is measured
    name = model.name if isinstance(model, LoadedModel) else type(wrapped).__name__
    return CountedModel(module, batch, compute, rows_of(known)), name


def part_of(
    name: str,
    doing: str,
    work: Workload,
    rates: Rates,
    *,
    memory: float = 0.0,
    passes: Mapping[str, int] | None = None,
) -> CostPart:
    """A part, with its work in the seconds of a machine."""
    return CostPart(
        name=name,
        doing=doing,
        flops=work.flops,
        bytes=work.bytes,
        calls=work.calls,
        seconds=rates.seconds(work),
        memory=memory,
        passes=passes or {},
    )


def anatomy_part(
    model: CountedModel,
    rates: Rates,
    *,
    anatomy: Anatomy | Declaration | None,
    families: bool,
    seed: int,
) -> Iterator[CostPart]:
    """Reading the anatomy, where it is not known."""
    module = model.module
    if known_anatomy(module, anatomy) is not None:
        return
    own = callable(getattr(module, "anatomy", None))
    family = families and model_type(module) in FAMILIES
    small = 0 if anatomy is None and (own or family) else READ_ANEW
    work = model.forward.forward + _tap(model, FOUND, TRACED)
    if small:
        try:
            length = min(FIT_LENGTH, context_limit(module) or FIT_LENGTH)
            batch = random_inputs(module, examples=2, length=length, seed=seed + 1)
            one = CountedModel(module, batch, rows=model.rows).forward
        except LeadlineError:
            one = model.forward
        blocks = sum((shape.work * (1 / len(shape.paths)) for shape in one.stacks), NO_WORK)
        work = work + small * one.forward + REPLAYED * blocks
    yield part_of(
        "anatomy",
        "reading the anatomy: a forward pass on the inputs"
        + (", and a small one" if small else ""),
        work,
        rates,
        memory=model.forward.memory,
        passes={"anatomy_forward": small + 1},
    )


def _tap(model: CountedModel, once: int, each: int) -> Workload:
    """Hooks on every module, and the balance of every write."""
    total = calling(once + each * sum(1 for _ in model.module.modules()))
    for size in model.sizes():
        total = total + moving(size.numbers, times=BALANCED * size.depth * size.writes)
    return total


def _passes(
    model: CountedModel, probe_plan: Plan, rates: Rates, loss: str | Callable[..., torch.Tensor]
) -> Iterator[CostPart]:
    """The measuring pass with its tap, one part forward and one backward."""
    unknown = loss in ("auto", "next-token") and head_is_unknown(model.module)
    if not probe_plan.backward:
        work = model.forward.forward + _tap(model, BEGUN, HOOKED)
        memory, passes = model.forward.memory, {"forward": 1, "backward": 0, "anatomy_forward": 0}
        yield part_of("forward", "the measuring pass", work, rates, memory=memory, passes=passes)
    else:
        both = model.measuring
        work = both.forward + _tap(model, BEGUN, HOOKED)
        doing = "the measuring pass"
        yield part_of(
            "forward",
            doing,
            work,
            rates,
            memory=both.held,
            passes={"forward": 1, "anatomy_forward": 0},
        )
        doing = "the gradients of the stream and of the weights of blocks"
        passes = {"backward": 1}
        work = both.backward + calling(GRADED * _measured_weights(model))
        yield part_of("backward", doing, work, rates, memory=both.memory, passes=passes)
    if unknown:
        yield part_of(
            "head", "small passes that show what the head returns", NO_WORK, rates,
            passes={"head_forward": 1},
        )  # fmt: skip


def _measured_weights(model: CountedModel) -> int:
    """Parameters of blocks, tensor by tensor."""
    paths = {path for shape in model.forward.stacks for path in shape.paths}
    return sum(1 for path in paths for _ in model.module.get_submodule(path).parameters())


def _probes(model: CountedModel, probe_plan: Plan, rates: Rates) -> Iterator[CostPart]:
    """What each probe declares. Those of linear maps run after the passes."""
    linear = bool(probe_plan.linear)
    sizes = model.sizes(linear=linear)
    during = model.measuring.held if probe_plan.backward else model.forward.memory
    for choice, probe in zip(probe_plan.choices, probe_plan.probes, strict=True):
        quantities, sees = probe.quantities, probe.sees
        if not isinstance(probe, Costed):
            continue
        places = sum(size.all_sites for size in sizes)
        work = sum((probe.cost(size) for size in sizes), NO_WORK)
        work = work + calling(READ * len(quantities) * places)
        held = 0.0
        if isinstance(probe, Holding):
            held = max((probe.memory(size) for size in sizes), default=0.0)
        of_maps = bool(set(LINEAR) & set(sees))
        memory = held if of_maps else during + held
        yield part_of(choice.name, f"the probe {choice.name}", work, rates, memory=memory)


def _ablation(model: CountedModel, unit: str, rates: Rates) -> CostPart:
    """One forward pass for each block or write that is left out, and one without any change."""
    sizes = model.sizes()
    count = 1 + sum(size.depth * (1 if unit == "block" else size.writes) for size in sizes)
    work = count * model.forward.forward
    return part_of(
        "ablation",
        f"{count} forward passes that leave out one {unit} each",
        work,
        rates,
        memory=model.forward.memory,
        passes={"ablation_forward": count},
    )
