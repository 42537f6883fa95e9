"""The course of a watched run: one update after the other, as the hooks of the loop tell it.

Two hooks of the optimizer count updates. Only while a sampled update is made are there hooks on the
model: they read the loop's own forward and backward pass, and nothing is run twice but the first
proof of the anatomy. A step hook before the update reads gradients and the optimizer's state, the
one after it how far the weights have moved. Then the rows are written, the alarms are asked, and
the hooks are gone until the next sample. In between nothing is done but to keep each loss.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from leadline.anatomy import Anatomy, own_depth
from leadline.errors import TrainingStopped
from leadline.instruments.passes.probe_plan import Plan
from leadline.instruments.passes.probes.gradient import PARAMETERS
from leadline.lab.watch.bell import Bell
from leadline.lab.watch.delivery import Delivery
from leadline.lab.watch.fence import Fence, log
from leadline.lab.watch.layers import LayerReader
from leadline.lab.watch.losses.calls import BackwardCall, listen_to_losses
from leadline.lab.watch.losses.keeper import LossKeeper
from leadline.lab.watch.pace import Overhead, Pace
from leadline.lab.watch.processes.ranks import Ranks
from leadline.lab.watch.register import keep_with
from leadline.lab.watch.sampling.apart import set_apart
from leadline.lab.watch.updates.counting import UpdateCounter, is_skipped
from leadline.lab.watch.weights.reader import WeightReader
from leadline.record import Finding, Record
from leadline.record.run.watching import OF_THE_RUN, OF_THE_WEIGHTS

__all__ = ["WatchCourse"]

MOST_WAITING = 100
"""After so many backward passes without a step somebody should look whose step is counted."""
UNSCALED = (
    "In some updates backward is called on a loss that the loss scaler has scaled and on one that it "
    "has not, and both reach the same parameters. The scaler divides the gradients of both, so the "
    "second one hardly trains: train.loss holds it divided likewise. Scale both."
)
_NO_STEP = "is this the optimizer that the loop steps?"


class WatchCourse:
    """Follows one loop. `begin` sets the hooks, `close` takes off whatever is left of them."""

    def __init__(
        self,
        *,
        fence: Fence,
        plan: Plan,
        ranks: Ranks,
        layers: LayerReader,
        weights: WeightReader,
        losses: LossKeeper,
        bell: Bell,
        delivery: Delivery,
        every: int,
        start: int | None,
    ) -> None:
        self.every = every
        self.watch: Any = None
        """Who owns this: it lives as long as the optimizer's hooks do."""
        self._fence = fence
        self._plan = plan
        self._ranks = ranks
        self._layers = layers
        self._weights = weights
        self._losses = losses
        self._bell = bell
        self._delivery = delivery
        self._writer = delivery.writer
        self._start = start
        self._offset = start or 0
        self._updates = 0
        self._begun = self._armed = self._closed = self._skipped = False
        self._hurry = False
        """Whether the next update is sampled although it is not its turn."""
        self._elsewhere = self._most_elsewhere = 0
        """Steps of an optimizer that was not given, since the last update; the most before one."""
        self._stepping = False
        """Whether a hook of an optimizer is at work."""
        self._counter: UpdateCounter | None = None
        self._heard_by: tuple[Callable[..., Any], ...] = ()
        self._ends: list[Callable[[], object]] = []
        self._pace = Pace()

    # --- how it goes ---------------------------------------------------------------------------------

    @property
    def step(self) -> int:
        """How many updates the model has had."""
        return self._offset + self._updates

    @property
    def updates_made(self) -> int:
        """The same, with an update of which only the next pass says that it is over."""
        return self.step + int(self._counter is not None and self._counter.has_stepped)

    @property
    def active(self) -> bool:
        """Whether anything is being read."""
        return not (self._closed or self._fence.off)

    @property
    def path(self) -> Path | None:
        """The file of the record."""
        return None if self._writer is None else self._writer.path

    @property
    def place(self) -> Path | None:
        """The file of the record, wherever the loop has gone since."""
        return None if self._writer is None else self._writer.place

    @property
    def record(self) -> Record | None:
        """The record, in the process that writes it."""
        return None if self._writer is None else self._writer.record

    @property
    def warnings(self) -> list[Finding]:
        """What alarms have said so far."""
        return list(self._bell.warnings)

    @property
    def should_stop(self) -> bool:
        """Whether a serious warning was said; the same in all processes."""
        return self._delivery.should_stop

    @property
    def overhead(self) -> Overhead:
        """What watching has cost so far."""
        return self._pace.overhead()

    def name_loss(self, value: Any) -> None:
        """Take what the loop itself calls the loss of this update."""
        self._fence.lenient("Keeping the loss", self._losses.name)(value)

    def name_batch(self, ids: object) -> None:
        """Take the name of the batch of this update."""
        self._bell.batch = self._fence.lenient("Naming a batch", str)(ids) or ""

    # --- beginning and ending ------------------------------------------------------------------------

    def begin(self, optimizers: Sequence[torch.optim.Optimizer] | None) -> None:
        """Set the hooks that count updates and hear losses, and those of the first sample."""
        shield = self._fence.shield
        self._fence.on_fault = self._on_fault
        self._layers.on_anatomy = self._note_anatomy
        counter = self._counter = UpdateCounter(
            self._layers.module,
            optimizers,
            before=self._before_step,
            after=self._end_update,
            waiting=self._wait,
            missed=self._miss_step,
            elsewhere=self._step_elsewhere,
            fence=self._fence,
        )
        self._layers.on_forward = set_apart(self._go_on)
        self._losses.on_not_finite = self._say_not_finite
        self._losses.on_unscaled = lambda: self._fence.note(UNSCALED)
        hear, skip = shield(set_apart(self._hear_loss)), shield(set_apart(self._skip_update))
        fail = shield(lambda error: self._fence.fault(error, "Keeping the loss"))
        self._heard_by = (hear, skip, fail)
        listen = [_weakly(self, number) for number in range(3)]
        self._ends += [counter.end, listen_to_losses(listen[0], skip=listen[1], fail=listen[2])]
        counter.begin()
        if optimizers is None:  # else the hooks of its optimizers keep it alive
            self._ends.append(keep_with(self._layers.module, self))
        self._arm()

    def close(self, error: BaseException | None = None) -> None:
        """Take everything off the loop, write what is left, say what it cost."""
        shield = self._fence.shield  # hooks are taken off whatever went wrong
        if self._closed:
            self._take_off()
            return
        with suppress(TrainingStopped):  # it is over already
            shield(self._finish_update)()
        self._closed = True
        endings = (self._give_up, self._disarm, lambda: self._close_record(error))
        with ExitStack() as stack:  # all of them, also where the user interrupts one
            for end in (self._ranks.leave, *reversed(endings), self._take_off):
                stack.callback(shield(end))

    def _finish_update(self) -> None:
        if self._counter is not None and self.active:
            self._counter.finish()

    def _take_off(self) -> None:
        """Take off what counts and listens; not inside of a step, whose hooks torch walks through."""
        while self._ends and not self._stepping:
            self._fence.shield(self._ends.pop())()

    def _begin_run(self, optimizer: torch.optim.Optimizer) -> None:
        """Find out which update this is, and say where the run begins."""
        assert self._counter is not None
        self._begun = True
        made = self._counter.steps_made(optimizer)
        self._offset = made if self._start is None else self._start
        quantities = [*OF_THE_RUN, *OF_THE_WEIGHTS, PARAMETERS, *self._plan.quantities]
        self._delivery.begin(quantities, self._offset + 1)

    def _note_anatomy(self, anatomy: Anatomy) -> None:
        if self._writer is not None:
            self._writer.note("anatomy", anatomy.to_json())

    def _close_record(self, error: BaseException | None) -> None:
        if self._writer is not None and not self._begun and error is None and not self._fence.off:
            self._fence.note(
                f"No step of the optimizer was seen, so there is nothing to show: {_NO_STEP}",
                about=_NO_STEP,
            )
        if self._begun and self._elsewhere > self._most_elsewhere:
            self._say_who_steps()
        overhead = self._pace.overhead()
        self._delivery.end(error, begun=self._begun, steps=self.step, overhead=asdict(overhead))
        if self._writer is not None and self._begun and not self._fence.quiet:
            where = f" The record is {self._writer.path}." if self._writer.path else ""
            print(f"leadline.watch: {overhead}{where}", file=sys.stderr)

    # --- one update ------------------------------------------------------------------------------------

    def _hear_loss(self, call: BackwardCall) -> Callable[[], None] | None:
        if self._closed:
            self._take_off()
        if not self.active or own_depth() or self._counter is None:
            return None
        self._counter.go_on()
        self._fence.guard("Looking at the gradient", self._weights.before_backward)()
        done = self._fence.guard("Keeping the loss", self._losses.hear)(call)
        if done is None:
            return None
        if self._losses.unstepped == MOST_WAITING and not self._begun:
            self._fence.note(
                f"{MOST_WAITING} backward passes and no step of the optimizer was seen so far: "
                f"{_NO_STEP}",
                about=_NO_STEP,
            )

        def after() -> None:
            done()
            self._weights.after_backward()

        return self._fence.guard("Keeping the loss", set_apart(after))

    def _go_on(self) -> None:
        """A pass begins: the update before it is over, or the loop has thrown away what it began."""
        assert self._counter is not None
        self._counter.go_on()
        self._losses.follow()
        if self._fence.guard("Looking at gradients", self._losses.look)():
            self._begin_again()

    def _skip_update(self, scaler: int) -> None:
        """A scaler is updated: what it scaled and nobody stepped by is not an update."""
        if not self.active or own_depth() or self._counter is None:
            return
        self._counter.go_on()
        if self._losses.skip(scaler):
            self._begin_again()

    def _begin_again(self) -> None:
        """Leave out what was read of an update that a loss scaler has skipped."""
        self._skipped = False
        self._give_up()
        if self._armed or self._delivery.keeps_norms:
            self._weights.arm()

    def _wait(self) -> None:
        """Some optimizers have stepped: the next pass may belong to the next update already."""
        due = (self.step + 2) % self.every == 0  # this update is not counted yet
        if due and self.active:
            self._fence.guard("Setting hooks", self._layers.arm)()

    def _miss_step(self, optimizer: torch.optim.Optimizer) -> None:
        """A step has ended that could not be read ahead of its end: leave the sample out."""
        if not self._begun:
            self._fence.guard("Beginning the run", self._begin_run)(optimizer)
        self._skipped = True

    def _step_elsewhere(self) -> None:
        """An optimizer that is not watched has moved weights: its loss may be none of this loop's."""
        if not self.active:
            return
        self._losses.step_elsewhere()
        self._layers.step_elsewhere()
        self._elsewhere += 1
        if self._elsewhere == MOST_WAITING and self._begun:
            self._say_who_steps()

    def _say_who_steps(self) -> None:
        """The loop may have exchanged its optimizer: then nothing is counted any more."""
        self._fence.note(
            f"Update {self.step} was the last one of the optimizer that was given; since then an "
            "optimizer that the watch was not given moves the model. Of its updates nothing is "
            "read: give all optimizers in a list, or None for whichever steps the model.",
            about=_NO_STEP,
        )

    def _say_not_finite(self, step: int) -> None:
        """Say it once, and look at the layers in the next update."""
        if self._skipped:
            return
        if self._ranks.main and not self._fence.quiet:
            log.warning("leadline.watch: step %d: the loss is not finite", step)
        self._hurry = not self._ranks.several  # processes sample together

    def _before_step(self, optimizer: torch.optim.Optimizer) -> None:
        if not self._begun:
            self._fence.guard("Beginning the run", self._begin_run)(optimizer)
        if self._armed or self._delivery.keeps_norms:
            self._skipped = self._skipped or is_skipped(optimizer)
            self._fence.guard("Reading the optimizer", self._weights.before_step)(
                optimizer, self._layers.anatomy, sampled=self._armed
            )
        else:
            self._weights.stepped(optimizer)

    def _end_update(self) -> None:
        """An update is over. Whatever the user does in answer to it happens inside of a step."""
        if not self.active:
            if self._armed:
                self._fence.shield(self._disarm)()
            return
        self._stepping = True
        try:
            self._after_update()
        finally:
            self._stepping = False

    def _after_update(self) -> None:
        """End the sample of an update, and set hooks if the next one is due."""
        self._updates += 1
        self._most_elsewhere = max(self._most_elsewhere, self._elsewhere)
        self._elsewhere = 0
        sampled = self._armed
        calls = self._losses.end_update(self.step)
        self._bell.end_update(self.step)
        if self._skipped:
            sampled = False
            self._begin_again()
        elif sampled or self._delivery.keeps_norms:
            factor = self._fence.guard("Telling clipping", self._weights.clipping)(calls)
            if self._delivery.keeps_norms:
                keep = self._fence.lenient("Keeping the last updates", self._delivery.keep_norms)
                keep(self.step, factor)
            if sampled:
                self._end_sample(calls, factor)
            self._weights.give_up()
        self._pace.update(sampled=sampled)
        if self._losses.full:
            self._fence.guard("Writing losses", self._delivery.write_losses)(self.step)
        due, self._hurry = self._hurry or (self.step + 1) % self.every == 0, False
        if due and self.active:
            self._fence.guard("Setting hooks", self._arm)()
        elif self._delivery.keeps_norms:
            self._weights.arm()
        if sampled:
            self._delivery.stop_together(self.step)

    def _arm(self) -> None:
        self._armed = True
        self._layers.arm()
        self._weights.arm()

    def _disarm(self) -> None:
        self._armed = False
        try:
            self._layers.disarm()
        finally:
            self._weights.disarm()

    def _on_fault(self) -> None:
        """Leave the sample under way out, and let no other process wait for it."""
        self._layers.failed = True
        self._give_up()
        if not self._fence.off:
            self._ranks.decline("it failed before")
            return
        self._ranks.leave()
        if self._writer is not None and not self._closed:
            self._writer.write((), off=self._fence.why_off, notes=self._fence.notes)

    def _give_up(self) -> None:
        """Leave the sample under way out."""
        self._layers.give_up()
        self._weights.give_up()

    def _end_sample(self, calls: Sequence[BackwardCall], factor: float | None) -> None:
        """Take the hooks off, write the rows of the sample and ask the alarms."""
        self._fence.guard("Taking the hooks off", self._disarm)()
        useful, self.every = self._delivery.deliver(self.step, calls, factor, every=self.every)
        self._give_up()
        self._fence.sample_ended(useful=useful)


def _weakly(course: WatchCourse, number: int) -> Callable[[Any], Any]:
    """What torch's own functions call: they must not keep a model alive that nobody trains."""
    reference = weakref.ref(course)

    def call(heard: Any) -> Any:
        one = reference()
        return None if one is None else one._heard_by[number](heard)

    return call
