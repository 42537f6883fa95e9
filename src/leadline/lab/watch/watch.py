"""Watch somebody's training loop: one line, and gauges of every layer stand in a record.

    ll.watch(model, optimizer, "run.leadline", every=50)

Two hooks of the optimizer count updates. Only while a sampled update is made are there hooks on the
model: they read the loop's own forward and backward pass, and nothing is run twice but the first
proof of the anatomy. A step hook before the update reads gradients and the optimizer's state, the
one after it how far the weights have moved. Then the rows are written, the alarms are asked, and
the hooks are gone until the next sample. In between nothing is done but to keep each loss.

Whatever goes wrong in here becomes a note (`notes`) and a line in the log; the loop never sees it.
"""

from __future__ import annotations

import atexit
import math
import sys
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import nn

from leadline.anatomy import Anatomy, Declaration, unwrapped
from leadline.anatomy.find.measurable import check_module
from leadline.errors import LeadlineError, TrainingStopped, check_count, check_path
from leadline.instruments.passes.probes.gradient import PARAMETERS
from leadline.lab.watch.bell import Bell
from leadline.lab.watch.counting import UpdateCounter, is_skipped
from leadline.lab.watch.fence import Fence, log
from leadline.lab.watch.gauges import watch_plan
from leadline.lab.watch.layers import LayerReader
from leadline.lab.watch.loss_keeper import LossKeeper
from leadline.lab.watch.losses import BackwardCall, listen_to_losses
from leadline.lab.watch.optimizers import torch_optimizers
from leadline.lab.watch.pace import Overhead, Pace
from leadline.lab.watch.processes.parts import RankPart
from leadline.lab.watch.processes.ranks import Ranks
from leadline.lab.watch.weights import WeightReader
from leadline.lab.watch.writer import RunWriter
from leadline.reading.watch.history import History
from leadline.record import Finding, Record
from leadline.record.run.watching import OF_THE_RUN, OF_THE_WEIGHTS

__all__ = ["Watch", "watch"]

MOST_WAITING = 100
"""After so many backward passes without a step somebody should look whose step is counted."""
_NO_STEP = "is this the optimizer that the loop steps?"

_WATCHES: weakref.WeakValueDictionary[Path, Watch] = weakref.WeakValueDictionary()
"""The watches of this process by their files."""


def watch(
    model: nn.Module,
    optimizer: Any = None,
    path: str | PathLike[str] | None = None,
    *,
    every: int = 50,
    probes: str | Sequence[Any] | None = None,
    attention: bool = False,
    anatomy: Anatomy | Declaration | None = None,
    probe: Any = None,
    sinks: Iterable[Any] = (),
    on_warning: Callable[[Finding], object] | None = None,
    stop: bool = False,
    snapshot: bool = False,
    start: int | None = None,
    name: str | None = None,
    quiet: bool = False,
    strict: bool = False,
) -> Watch:
    """Watch the training of a model from now on; put this line before the loop.

    `optimizer` is the one that steps the model, several in a list, or None for whichever does.
    `path` is the record's file; a run that was cut off goes on in it. The first update and every
    `every`-th are sampled. `attention` reads the logits of attention too, `probes` names further
    probes of `leadline measure`. `probe` is a fixed batch that is measured after each sampled
    update in place of the loop's own batch, so that steps are comparable. `anatomy` is one that
    `leadline.anatomy_of` proved, for models that are sharded afterwards.

    `sinks` names where else the numbers go, such as "tensorboard(folder=runs/a)". A warning is
    logged, kept in the record and handed to `on_warning`; with `stop` a serious one ends the
    training by raising TrainingStopped. `snapshot` keeps losses and gradient norms of the last
    updates at full rate in a file that outlives the process, at the cost of reading all gradients
    at every update. `start` is the number of updates made before, where the optimizer does not know
    it.

    In a run of several processes put the same line into each, behind DDP or `fully_shard`: the first
    one writes what all of them read. `should_stop` and `stop` are the same in all of them.

    Nothing that goes wrong in here stops the training: what cannot be watched is said once, in the
    log and in `notes`. With `strict` wrong arguments raise an error instead.
    """
    return Watch(
        model,
        optimizer,
        path,
        every=every,
        probes=probes,
        attention=attention,
        anatomy=anatomy,
        probe=probe,
        sinks=sinks,
        on_warning=on_warning,
        stop=stop,
        snapshot=snapshot,
        start=start,
        name=name,
        quiet=quiet,
        strict=strict,
    )


class Watch:
    """A run that is being watched. As a context manager it ends with its block, else with the process.

    `notes` are sentences about what could not be watched, `warnings` what alarms said so far.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Any,
        path: str | PathLike[str] | None,
        *,
        every: int,
        probes: str | Sequence[Any] | None,
        attention: bool,
        anatomy: Anatomy | Declaration | None,
        probe: Any,
        sinks: Iterable[Any],
        on_warning: Callable[[Finding], object] | None,
        stop: bool,
        snapshot: bool,
        start: int | None,
        name: str | None,
        quiet: bool,
        strict: bool,
    ) -> None:
        self._fence = Fence(quiet=quiet)
        self._fence.on_fault = self._on_fault
        self._quiet = quiet
        self._updates = 0
        self._offset = 0
        self._begun = self._armed = self._closed = self._skipped = False
        self._hurry = False
        """Whether the next update is sampled although it is not its turn."""
        self._counter: UpdateCounter | None = None
        self._ranks: Ranks | None = None
        self._sends_norms = False
        """Whether the first process keeps gradient norms at full rate, and needs those from here."""
        self._last_sample = 0
        self._stop = stop
        self._ends: list[Callable[[], object]] = []
        self._pace = Pace()
        self._history = History()
        self._losses = LossKeeper()
        self._layers: LayerReader | None = None
        self._weights: WeightReader | None = None
        self._writer: RunWriter | None = None
        self._bell = Bell(self._fence, on_warning=on_warning, stop=stop)
        try:
            check_module(model)
            self.every = check_count(every, "every", least=1)
            self._start = None if start is None else check_count(start, "start", least=0)
            self._offset = self._start or 0
            try:
                self._plan = watch_plan(probes, attention=attention)
            except LeadlineError as error:
                if strict:
                    raise
                self._fence.note(f"{error} The run is watched without further probes.")
                self._plan = watch_plan(None, attention=attention)
            optimizers = None if optimizer is None else torch_optimizers(optimizer)
            place = None if path is None else check_path(path)
            ranks = self._ranks = Ranks(unwrapped(model), self._fence, path=place)
            self._fence.quiet = quiet or not ranks.main  # its notes reach the first process
            ranks.open(every=self.every)
            self._layers = LayerReader(
                model, self._plan, declared=anatomy, probe=probe, fence=self._fence, ranks=ranks
            )
            self._weights = WeightReader(self._layers.module, ranks, self._fence)
            # FSDP2 keeps gradients elsewhere until it adds them up, so that none of them tells.
            self._losses = LossKeeper(None if ranks.sharding == "fsdp" else self._layers.module)
            self._losses.on_not_finite = self._say_not_finite
            self._take_over(place)
            if ranks.main:
                self._writer = RunWriter(place, model, every=every, name=name, fence=self._fence)
                self._writer.take_over_ring()
                self._bell.open(self._writer, sinks=sinks, snapshot=snapshot and place is not None)
                self._layers.on_anatomy = self._note_anatomy
            elif ranks.sharded and snapshot and place is not None:
                self._sends_norms = True
            counter = self._counter = UpdateCounter(
                self._layers.module,
                optimizers,
                before=self._before_step,
                after=self._after_update,
                waiting=self._wait,
                missed=self._miss_step,
                fence=self._fence,
            )
            self._layers.on_forward = self._go_on
            hear = self._fence.shield(self._hear_loss)
            skip = self._fence.shield(self._skip_update)
            fail = self._fence.shield(lambda error: self._fence.fault(error, "Keeping the loss"))
            self._ends += [counter.end, listen_to_losses(hear, skip=skip, fail=fail)]
            counter.begin()
            closer = _closer(weakref.ref(self))
            self._ends.append(lambda: atexit.unregister(closer))
            atexit.register(closer)
            self._arm()
        except Exception as error:
            self._switch_off(error)
            if strict:
                raise

    def _take_over(self, place: Path | None) -> None:
        """End an older watch of the same file: a notebook runs a loop again after an error."""
        if place is None:
            return
        older = _WATCHES.get(place.resolve())
        if older is not None:
            older.close()
        _WATCHES[place.resolve()] = self

    def _switch_off(self, error: Exception) -> None:
        self._fence.note(f"{error} The training is not watched and goes on.")
        self.close()
        self._fence.off = True

    # --- what users ask ----------------------------------------------------------------------------

    @property
    def step(self) -> int:
        """How many updates the model has had."""
        return self._offset + self._updates

    @property
    def active(self) -> bool:
        """Whether anything is being watched."""
        return not (self._closed or self._fence.off)

    @property
    def path(self) -> Path | None:
        """The file of the record."""
        return None if self._writer is None else self._writer.path

    @property
    def record(self) -> Record | None:
        """The record that is being written; None in processes that write none."""
        return None if self._writer is None else self._writer.record

    @property
    def notes(self) -> list[str]:
        """What could not be watched, and why."""
        return list(self._fence.notes)

    @property
    def warnings(self) -> list[Finding]:
        """What alarms have said so far."""
        return list(self._bell.warnings)

    @property
    def should_stop(self) -> bool:
        """Whether a serious warning was said: for loops that look before they go on."""
        if self._ranks is None or not self._ranks.several:
            return self._bell.serious
        return bool(self._fence.shield(self._ranks.verdict)(self._last_sample))

    @property
    def overhead(self) -> Overhead:
        """What watching has cost so far."""
        return self._pace.overhead()

    def loss(self, value: Any) -> None:
        """Name the loss of the update under way, where backward is called on something else."""
        self._fence.guard("Keeping the loss", self._losses.name)(value)

    def batch(self, ids: object) -> None:
        """Name the batch of the update under way: snapshots keep which batches were the last."""
        self._bell.batch = self._fence.guard("Naming a batch", str)(ids) or ""

    def close(self) -> None:
        """End the watch: take everything off the loop, write what is left, say what it cost."""
        if self._closed:
            return
        shield = self._fence.shield  # hooks are taken off whatever went wrong
        if self._counter is not None and self.active:
            with suppress(TrainingStopped):  # it is over already
                shield(self._counter.finish)()
        self._closed = True
        for end in (*reversed(self._ends), self._disarm, self._give_up, self._close_record):
            shield(end)()
        if self._ranks is not None:
            shield(self._ranks.leave)()

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # --- beginning and ending ------------------------------------------------------------------------

    def _begin_run(self, optimizer: torch.optim.Optimizer) -> None:
        """Find out which update this is, and say where the run begins."""
        assert self._counter is not None
        self._begun = True
        made = self._counter.steps_made(optimizer)
        self._offset = made if self._start is None else self._start
        if self._writer is None:
            return
        quantities = [*OF_THE_RUN, *OF_THE_WEIGHTS, PARAMETERS, *self._plan.quantities]
        self._writer.describe(quantities)
        if self._writer.resumed:
            self._history = History.of(self._writer.record)
            self._history.go_back_to(self._offset + 1)
        self._writer.begin(self._offset + 1)
        self._history.describe(quantities)

    def _note_anatomy(self, anatomy: Anatomy) -> None:
        if self._writer is not None:
            self._writer.note("anatomy", anatomy.to_json())

    def _close_record(self) -> None:
        if self._writer is None:
            if self._ranks is not None and self._weights is not None:
                self._ranks.send_losses(self._losses.readings(), self._weights.sites)
            return
        if not self._begun:
            self._fence.note(
                f"No step of the optimizer was seen, so there is nothing to show: {_NO_STEP}",
                about=_NO_STEP,
            )
        shield, overhead = self._fence.shield, self._pace.overhead()
        if self._begun:
            losses = self._losses.readings()
            if self._ranks is not None:
                losses = shield(self._ranks.join_losses)(losses) or losses
            shield(self._writer.write)(losses)
            shield(self._bell.send)(losses)
        shield(self._bell.close)()
        shield(self._writer.close)(
            steps=self.step, closed=True, notes=self._fence.notes, overhead=asdict(overhead)
        )
        if self._begun and not self._quiet:
            where = f" The record is {self._writer.path}." if self._writer.path else ""
            print(f"leadline.watch: {overhead}{where}", file=sys.stderr)

    # --- one update ------------------------------------------------------------------------------------

    def _hear_loss(self, call: BackwardCall) -> Callable[[], None] | None:
        if not self.active or self._layers is None or self._layers.busy or self._counter is None:
            return None
        self._counter.go_on()
        done = self._fence.guard("Keeping the loss", self._losses.hear)(call)
        if done is None:
            return None
        if self._losses.unstepped == MOST_WAITING and not self._begun:
            self._fence.note(
                f"{MOST_WAITING} backward passes and no step of the optimizer was seen: {_NO_STEP}",
                about=_NO_STEP,
            )

        def after() -> None:
            done()
            if self._weights is not None:
                self._weights.after_backward()

        return self._fence.guard("Keeping the loss", after)

    def _go_on(self) -> None:
        """A pass begins: the update before it is over, or the loop has thrown away what it began."""
        assert self._counter is not None
        self._counter.go_on()
        self._losses.follow()
        if self._fence.guard("Looking at gradients", self._losses.look)():
            self._begin_again()

    def _skip_update(self, scaler: int) -> None:
        """A scaler is updated: what it scaled and nobody stepped by is not an update."""
        if not self.active or self._counter is None:
            return
        self._counter.go_on()
        if self._losses.skip(scaler):
            self._begin_again()

    def _begin_again(self) -> None:
        """Leave out what was read of an update that a loss scaler has skipped."""
        self._skipped = False
        self._give_up()
        if self._weights is not None and (self._armed or self._keeps_norms):
            self._weights.arm()

    def _wait(self) -> None:
        """Some optimizers have stepped: the next pass may belong to the next update already."""
        due = (self.step + 2) % self.every == 0  # this update is not counted yet
        if due and self.active and self._layers is not None:
            self._fence.guard("Setting hooks", self._layers.arm)()

    def _miss_step(self, optimizer: torch.optim.Optimizer) -> None:
        """A step has ended that could not be read ahead of its end: leave the sample out."""
        if not self._begun:
            self._fence.guard("Beginning the run", self._begin_run)(optimizer)
        self._skipped = True

    def _say_not_finite(self, step: int) -> None:
        """Say it once, and look at the layers in the next update."""
        if self._skipped:
            return
        assert self._ranks is not None
        if self._ranks.main:
            log.warning("step %d: the loss is not finite", step)
        self._hurry = not self._ranks.several  # processes sample together

    def _before_step(self, optimizer: torch.optim.Optimizer) -> None:
        if not self._begun:
            self._fence.guard("Beginning the run", self._begin_run)(optimizer)
        if self._armed or self._keeps_norms:
            assert self._layers is not None and self._weights is not None
            self._skipped = self._skipped or is_skipped(optimizer)
            self._fence.guard("Reading the optimizer", self._weights.before_step)(
                optimizer, self._layers.anatomy, sampled=self._armed
            )

    def _after_update(self) -> None:
        """An update is over: end its sample, and set hooks if the next one is due."""
        assert self._weights is not None
        self._updates += 1
        sampled = self._armed
        calls = self._losses.end_update(self.step)
        if self._skipped:
            sampled = False
            self._begin_again()
        elif sampled or self._keeps_norms:
            factor = self._fence.guard("Telling clipping", self._weights.clipping)(calls)
            if self._keeps_norms:
                self._fence.guard("Keeping the last updates", self._keep_in_ring)(factor)
            if sampled:
                self._end_sample(calls, factor)
            self._weights.give_up()
        self._pace.update(sampled=sampled)
        if self._losses.full:
            self._fence.guard("Writing losses", self._write_losses)()
        due, self._hurry = self._hurry or (self.step + 1) % self.every == 0, False
        if due and not self._fence.off:
            self._fence.guard("Setting hooks", self._arm)()
        elif self._keeps_norms:
            self._weights.arm()
        if sampled:
            self._stop_together()

    def _arm(self) -> None:
        assert self._layers is not None and self._weights is not None
        self._armed = True
        self._layers.arm()
        self._weights.arm()

    def _disarm(self) -> None:
        self._armed = False
        if self._layers is not None:
            self._layers.disarm()
        if self._weights is not None:
            self._weights.disarm()

    def _on_fault(self) -> None:
        """Leave the sample under way out, and let no other process wait for it."""
        self._give_up()
        if self._ranks is not None and self._fence.off:
            self._ranks.leave()
        elif self._ranks is not None:
            self._ranks.decline("it failed before")

    def _give_up(self) -> None:
        """Leave the sample under way out."""
        if self._layers is not None:
            self._layers.give_up()
        if self._weights is not None:
            self._weights.give_up()

    def _end_sample(self, calls: Sequence[BackwardCall], factor: float | None) -> None:
        """Take the hooks off, write the rows of the sample and ask the alarms."""
        assert self._weights is not None
        self._fence.guard("Taking the hooks off", self._disarm)()
        part = self._read_part(calls)
        if self._writer is None:
            self._fence.guard("Sending a sample", self._send_sample)(part)
        else:
            self._fence.guard("Writing a sample", self._write_sample)(part, factor)
        self._give_up()

    def _read_part(self, calls: Sequence[BackwardCall]) -> RankPart:
        """What this process read of the update."""
        assert self._layers is not None and self._weights is not None
        guard, sums = self._fence.guard, self._weights.sums()
        layers = guard("Reading the layers", self._layers.readings)(calls) or []
        losses = guard("Reading the losses", self._losses.readings)() or []
        return RankPart(sums, layers, self._layers.counts, losses)

    def _send_sample(self, part: RankPart) -> None:
        """Hand what was read to the first process, and sample from now on when it does."""
        assert self._ranks is not None and self._weights is not None
        self._ranks.send(self.step, part, self._weights.sites)
        self.every = self._ranks.every_of_first(self.every)
        self._fence.sample_ended()

    def _write_sample(self, part: RankPart, factor: float | None) -> None:
        assert self._layers is not None and self._weights is not None
        assert self._ranks is not None and self._writer is not None
        guard, ranks = self._fence.guard, self._ranks
        join = guard("Joining what the processes read", ranks.join)
        layers = not self._layers.has_fixed_batch
        whole = join(self.step, part, self._weights.sites, layers=layers)
        if whole is None:  # what this process read of its part of the weights says nothing alone
            whole = replace(part, sums=None) if ranks.sharded else part
        readings = whole.layers
        readings += guard("Reading the weights", self._weights.readings)(whole.sums, factor) or []
        readings = [replace(reading, step=self.step) for reading in readings]
        readings += whole.losses
        if ranks.several:
            self._writer.facts["processes"] = ranks.facts
        self._history.add(sorted(readings, key=lambda reading: reading.step))
        warnings = guard("Asking the alarms", self._bell.ask)(self._history) or []
        self._writer.write(readings, warnings, steps=self.step, notes=self._fence.notes)
        self._bell.tell(warnings, self.step, readings)
        self._fence.sample_ended()

    def _write_losses(self) -> None:
        """Write the losses of the updates since the last sample."""
        readings = self._losses.readings()
        if self._writer is not None:
            self._history.add(readings)
            self._writer.write(readings, steps=self.step)
            self._bell.send(readings)

    @property
    def _keeps_norms(self) -> bool:
        return self._bell.keeps_ring or self._sends_norms

    def _stop_together(self) -> None:
        """End the training where the user wants that of a serious warning: in all processes."""
        ranks = self._ranks
        self._last_sample = self.step
        if ranks is None or not ranks.several:
            self._bell.stop_if_asked()
        elif not ranks.main:
            if self._stop and self.should_stop:
                raise TrainingStopped("A serious warning of the first process ends the training.")
        else:
            self._fence.shield(ranks.tell)(self.step, stop=self._bell.serious)
            if self.should_stop:
                self._bell.stop_if_asked()
            elif self._stop and self._bell.serious:
                self._fence.note(
                    "A serious warning would end the training, but not every process watches, and "
                    "one that stops alone would leave the others waiting: the training goes on."
                )

    def _keep_in_ring(self, factor: float | None) -> None:
        assert self._weights is not None and self._ranks is not None
        if not self._weights.sites:
            return
        rate, squares = self._weights.squares()
        squares = self._ranks.join_squares(self.step, squares, self._weights.sites)
        if self._sends_norms:
            return
        norms = {site: value**0.5 / (factor or 1.0) for site, value in squares.items()}
        norm = math.sqrt(sum(value * value for value in norms.values())) if norms else math.nan
        values = (self._losses.last(self.step), rate, norm)
        self._bell.keep(self.step, values, norms, sites=self._weights.sites)


def _closer(reference: weakref.ref[Watch]) -> Callable[[], None]:
    """Close the watch at the end of the process, without keeping it alive until then."""

    def close() -> None:
        one = reference()
        if one is not None:
            one.close()

    return close
