"""Set up what a watch was asked for: check it, open the record, and set the first hooks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from torch import nn

from leadline.anatomy import Anatomy, Declaration, unwrapped
from leadline.anatomy.find.measurable import check_module
from leadline.errors import InputError, LeadlineError, RecordError, check_count, check_path, shown
from leadline.instruments.passes.probe_plan import Plan
from leadline.lab.watch.bell import Bell
from leadline.lab.watch.course import WatchCourse
from leadline.lab.watch.delivery import Delivery
from leadline.lab.watch.fence import Fence
from leadline.lab.watch.gauges import watch_plan
from leadline.lab.watch.layers import LayerReader
from leadline.lab.watch.losses.keeper import LossKeeper
from leadline.lab.watch.probe_batch import ProbeBatch
from leadline.lab.watch.processes.ranks import Ranks
from leadline.lab.watch.register import REGISTER
from leadline.lab.watch.weights.optimizers import torch_optimizers
from leadline.lab.watch.weights.reader import WeightReader
from leadline.lab.watch.writer import RunWriter, identity_of

__all__ = ["Options", "begin_course"]


@dataclass(frozen=True)
class Options:
    """What `leadline.watch` was asked for; its help says what each of them means."""

    every: int = 50
    probes: str | Sequence[Any] | None = None
    attention: bool = False
    anatomy: Anatomy | Declaration | None = None
    probe: Any = None
    sinks: Iterable[Any] = ()
    on_warning: Callable[[Any], object] | None = None
    stop: bool = False
    snapshot: bool = False
    start: int | None = None
    name: str | None = None
    quiet: bool = False
    strict: bool = False


def begin_course(
    model: nn.Module,
    optimizer: Any,
    path: str | PathLike[str] | None,
    options: Options,
    fence: Fence,
) -> WatchCourse:
    """Begin to follow a loop; raises an error where that cannot be done."""
    check_module(model)
    every = check_count(options.every, "every", least=1)
    start = None if options.start is None else check_count(options.start, "start", least=0)
    plan = _plan(options, fence)
    if options.on_warning is not None and not callable(options.on_warning):
        raise InputError(
            f"on_warning is called with every warning, and got {shown(options.on_warning)}; give a function."
        )
    if not isinstance(options.anatomy, Anatomy | Declaration | None):
        raise InputError(
            f"anatomy is {shown(options.anatomy)}; give what leadline.anatomy_of or leadline.declare "
            "returned."
        )
    optimizers = None if optimizer is None else torch_optimizers(optimizer)
    place = None if path is None else check_path(path)
    ranks = Ranks(unwrapped(model), fence, path=place)
    fence.quiet = options.quiet or not ranks.main  # its notes reach the first process
    ranks.open(every=every, stop=options.stop)
    probe = _fixed_batch(unwrapped(model), plan, options, fence, ranks)
    layers = LayerReader(
        model, plan, declared=options.anatomy, probe=probe, fence=fence, ranks=ranks
    )
    weights = WeightReader(layers.module, ranks, fence, optimizers)
    # FSDP2 keeps gradients elsewhere until it adds them up, so that none of them tells.
    losses = LossKeeper(None if ranks.sharding == "fsdp" else layers.module)
    bell = Bell(fence, on_warning=options.on_warning, stop=options.stop)
    keeps = options.snapshot and place is not None
    writer = None
    if ranks.main:
        if place is not None:
            _take_over(place, model, fence)
        writer = RunWriter(place, model, every=every, name=options.name, fence=fence)
    delivery = Delivery(
        fence=fence,
        ranks=ranks,
        layers=layers,
        weights=weights,
        losses=losses,
        bell=bell,
        writer=writer,
        stop=options.stop,
        sends_norms=keeps and ranks.sharded and not ranks.main,
    )
    course = WatchCourse(
        fence=fence,
        plan=plan,
        ranks=ranks,
        layers=layers,
        weights=weights,
        losses=losses,
        bell=bell,
        delivery=delivery,
        every=every,
        start=start,
    )
    try:
        if writer is not None:
            writer.take_over_ring()
            bell.open(writer, sinks=options.sinks, snapshot=keeps)
        course.begin(optimizers)
    except Exception as error:
        course.close(error)
        raise
    return course


def _plan(options: Options, fence: Fence) -> Plan:
    """The gauges; without further probes where those that were asked for do not exist."""
    try:
        return watch_plan(options.probes, attention=options.attention)
    except LeadlineError as error:
        if options.strict:
            raise
        fence.note(f"{error} The run is watched without further probes.")
        return watch_plan(None, attention=options.attention)


def _fixed_batch(
    module: nn.Module, plan: Plan, options: Options, fence: Fence, ranks: Ranks
) -> ProbeBatch | None:
    """The batch that is measured in place of the loop's own; none where it cannot be."""
    if options.probe is None:
        return None
    if ranks.sharded:
        fence.note(
            "A fixed batch is not measured while the parameters are spread over processes, "
            "because its passes would need all of them; the loop's own batches are read."
        )
        return None
    try:
        return ProbeBatch(module, options.probe, plan)
    except LeadlineError as error:
        if options.strict:
            raise
        fence.note(
            f"The fixed batch (probe=...) does not fit the model: {error} The loop's own batches "
            "are read in its place."
        )
        return None


def _take_over(place: Path, model: nn.Module, fence: Fence) -> None:
    """End an older watch of the same file: a notebook runs a loop again after an error."""
    older: Any = REGISTER.of_file(place)
    if older is None:
        return
    record = older.record
    noted = {} if record is None else record.provenance.get("watch", {})
    if noted.get("identity") != identity_of(model):
        raise RecordError(
            f"{place} is being written by the watch of another model in this process; give each "
            "model a file of its own."
        )
    older.close()
    fence.note(
        f"A watch that this process began before wrote to {place}; it has ended, and this one goes "
        "on in the same file. To watch two models at once, give each a file of its own."
    )
