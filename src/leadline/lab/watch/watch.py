"""Watch somebody's training loop: one line, and gauges of every layer stand in a record.

    ll.watch(model, optimizer, "run.leadline", every=50)

Two hooks of the optimizer count updates. Only while a sampled update is made are there hooks on the
model: they read the loop's own forward and backward pass, and nothing is run twice but the first
proof of the anatomy. A step hook before the update reads gradients and the optimizer's state, the
one after it how far the weights have moved. Then the rows are written, the alarms are asked, and
the hooks are gone until the next sample. In between nothing is done but to keep each loss.

A compiled model ignores hooks: where the compiled module itself is watched, the sampled batch goes
through the uncompiled one a second time, so that the numbers of the training stay the same.

Whatever goes wrong in here becomes a note (`notes`) and a line in the log; the loop never sees it.
"""

from __future__ import annotations

import atexit
import math
import sys
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from leadline.anatomy import Anatomy, Declaration, is_compiled, untouched, unwrapped
from leadline.anatomy.find.measurable import check_module
from leadline.errors import InputError, LeadlineError, check_count, check_path
from leadline.instruments.passes.probes.gradient import PARAMETERS, STREAM
from leadline.lab.watch.bell import Bell
from leadline.lab.watch.fence import Fence
from leadline.lab.watch.gauges import watch_plan
from leadline.lab.watch.losses import BackwardCall, listen_to_losses
from leadline.lab.watch.optimizers import (
    ParameterGroups,
    StepReading,
    readings_of,
    torch_optimizers,
)
from leadline.lab.watch.pace import Overhead, Pace
from leadline.lab.watch.probe_batch import ProbeBatch
from leadline.lab.watch.ranks import Ranks
from leadline.lab.watch.sample import Call, Sample, prove_anatomy
from leadline.lab.watch.tracer import Tracer
from leadline.lab.watch.writer import RunWriter
from leadline.reading.watch.history import History
from leadline.record import Finding, Reading, Record
from leadline.record.rows.site import RUN
from leadline.record.run.training import GRADIENT_NORM, LEARNING_RATE
from leadline.record.run.watching import (
    CLIPPING,
    LOG_Z,
    LOSS,
    OF_THE_RUN,
    OF_THE_WEIGHTS,
    SURPRISE,
    WEIGHT_UPDATE,
)

__all__ = ["Watch", "watch"]

LOGIT_TOKENS = 64
"""log Z is the mean over so many evenly spaced tokens."""


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
        self._fence.on_fault = self._give_up
        self._quiet = quiet
        self._updates = 0
        self._offset = 0
        self._begun = self._armed = self._closed = False
        self._handles: list[Any] = []
        self._root_handles: list[Any] = []
        self._ends: list[Callable[[], None]] = []
        self._pace = Pace()
        self._history = History()
        self._writer: RunWriter | None = None
        self._bell = Bell(self._fence, on_warning=on_warning, stop=stop)
        try:
            check_module(model)
            self.every = check_count(every, "every", least=1)
            self._start = None if start is None else check_count(start, "start", least=0)
            self._plan = watch_plan(probes, attention=attention)
            if self._plan.linear:
                raise InputError(
                    f"The probe {self._plan.linear[0].quantities[0].name.split('.')[0]!r} runs "
                    "passes of its own, which a watch does not; use leadline.measure for it."
                )
            self._model, self._module = model, unwrapped(model)
            self._compiled = is_compiled(model)
            self._optimizers = None if optimizer is None else torch_optimizers(optimizer)
            self._ranks = Ranks(self._module)
            self._declared = anatomy
            self._probe = None if probe is None else ProbeBatch(self._module, probe, self._plan)
            place = None if path is None else check_path(path)
            self._begin_watching(place, name=name, sinks=sinks, snapshot=snapshot)
        except LeadlineError as error:
            if strict:
                self.close()
                raise
            self._switch_off(error)
        except Exception as error:
            if strict:
                raise
            self._switch_off(error)

    def _switch_off(self, error: Exception) -> None:
        self._fence.off = True
        self._fence.note(f"{error} The training is not watched and goes on.")
        self.close()

    # --- what users ask ------------------------------------------------------------------------

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
        return self._bell.serious

    @property
    def overhead(self) -> Overhead:
        """What watching has cost so far."""
        return self._pace.overhead()

    def loss(self, value: Any) -> None:
        """Name the loss of the update under way, where backward is called on something else."""
        self._fence.guard("Keeping the loss", self._name_loss)(value)

    def batch(self, ids: object) -> None:
        """Name the batch of the update under way: snapshots keep which batches were the last."""
        self._bell.batch = str(ids)

    def close(self) -> None:
        """End the watch: take everything off the loop, write what is left, say what it cost."""
        if self._closed:
            return
        self._closed = True
        self._fence.guard("Reading the last sample", self._give_up)()
        for end in reversed(self._ends):
            self._fence.guard("Ending the watch", end)()
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        atexit.unregister(self._at_exit)
        if self._writer is not None:
            self._close_record()

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # --- beginning and ending --------------------------------------------------------------------

    def _begin_watching(
        self, path: Path | None, *, name: str | None, sinks: Iterable[Any], snapshot: bool
    ) -> None:
        self._losses: list[tuple[int, list[BackwardCall | Tensor]]] = []
        self._calls: list[BackwardCall] = []
        self._named_loss: Tensor | None = None
        self._anatomy: Anatomy | None = None
        self._anatomy_read = False
        self._groups: ParameterGroups | None = None
        self._sample: Sample | None = None
        self._reading: StepReading | None = None
        self._run_values: dict[str, float] = {}
        self._call_module: nn.Module | None = None
        self._in_evaluation = self._trains_in_evaluation = self._seen_compiling = False
        self._stepped: set[int] = set()
        self._known_optimizers: dict[int, bool] = {}
        self._primary: torch.optim.Optimizer | None = None
        self._at_exit = _closer(weakref.ref(self))
        if not self._ranks.takes_part:
            self._fence.off = True  # the first process reads what is the same in all of them
            return
        if self._ranks.main:
            self._writer = RunWriter(
                path, self._model, every=self.every, name=name, fence=self._fence
            )
            self._writer.take_over_ring()
            self._bell.open(self._writer, sinks=sinks, snapshot=snapshot and path is not None)
        self._tracer = Tracer(self._module, several=self._ranks.several)
        before, after = self._before_step, self._after_step
        if self._optimizers is None:
            self._handles += [
                register_optimizer_step_pre_hook(before),
                register_optimizer_step_post_hook(after),
            ]
        else:
            for one in self._optimizers:
                self._handles += [
                    one.register_step_pre_hook(before),
                    one.register_step_post_hook(after),
                ]
        self._ends.append(listen_to_losses(self._hear_loss))
        atexit.register(self._at_exit)
        self._arm()

    def _close_record(self) -> None:
        assert self._writer is not None
        if not self._begun:
            self._fence.note(
                "No step of the optimizer was seen, so there is nothing to show: is this the "
                "optimizer that the loop steps?"
            )
        overhead = self._pace.overhead()

        def write() -> None:
            assert self._writer is not None
            rows = self._loss_readings()
            if rows:
                self._writer.write(rows)
            self._bell.close()
            self._writer.close(
                steps=self.step, closed=True, notes=self._fence.notes, overhead=asdict(overhead)
            )

        off, self._fence.off = self._fence.off, False
        self._fence.guard("Closing the record", write)()
        self._fence.off = off
        if self._begun and not self._quiet:
            where = f" The record is {self._writer.path}." if self._writer.path else ""
            print(f"leadline.watch: {overhead}{where}", file=sys.stderr)

    # --- counting updates --------------------------------------------------------------------------

    def _is_ours(self, optimizer: torch.optim.Optimizer) -> bool:
        """Whether an optimizer steps this model, where none was named."""
        if self._optimizers is not None:
            return True
        known = self._known_optimizers.get(id(optimizer))
        if known is None:
            # Asked at its first step: sharding replaces parameters after the watch has begun.
            parameters = {id(parameter) for parameter in self._module.parameters()}
            known = any(
                id(parameter) in parameters
                for group in optimizer.param_groups
                for parameter in group["params"]
            )
            self._known_optimizers[id(optimizer)] = known
        return known

    def _before_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if self._closed or not self._is_ours(optimizer):
            return
        if id(optimizer) in self._stepped:  # the others did not step this time
            self._complete()
        if not self._begun:
            self._fence.guard("Beginning the run", self._begin_run)(optimizer)
        if self._armed or self._bell.keeps_ring:
            self._fence.guard("Reading the optimizer", self._read_before_step)(optimizer)

    def _after_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if self._closed or not self._is_ours(optimizer):
            return
        self._stepped.add(id(optimizer))
        count = sum(self._known_optimizers.values()) if self._optimizers is None else None
        if len(self._stepped) >= (count or len(self._optimizers or ()) or 1):
            self._complete()

    def _begin_run(self, optimizer: torch.optim.Optimizer) -> None:
        """Find out which update this is, and say where the run begins."""
        self._begun = True
        self._primary = optimizer
        self._offset = _steps_made(optimizer) if self._start is None else self._start
        if self._writer is not None:
            quantities = [*OF_THE_RUN, *OF_THE_WEIGHTS, PARAMETERS, *self._plan.quantities]
            self._writer.describe(quantities)
            self._writer.begin(self._offset + 1)
            if self._writer.resumed:
                self._history = History.of(self._writer.record)
                self._history.go_back_to(self._offset + 1)
            self._history.describe(quantities)

    def _complete(self) -> None:
        """An update is over: end its sample, and set hooks if the next one is due."""
        self._stepped.clear()
        self._updates += 1
        sampled = self._armed
        losses: list[Any] = [self._named_loss] if self._named_loss is not None else [*self._calls]
        if losses:
            self._losses.append((self.step, losses))
        calls, self._calls, self._named_loss = self._calls, [], None
        looked = sampled or self._bell.keeps_ring
        factor = self._tracer.factor(calls) if looked else None
        if self._bell.keeps_ring:
            self._fence.guard("Keeping the last updates", self._keep_in_ring)(factor)
        if sampled:
            self._end_sample(calls, factor)
        self._pace.update(sampled=sampled)
        self._reading = None
        if (self.step + 1) % self.every == 0 and not self._fence.off:
            self._arm()
        elif self._bell.keeps_ring:
            self._tracer.arm()
        if sampled:
            self._bell.stop_if_asked()

    # --- a sampled update ----------------------------------------------------------------------------

    def _arm(self) -> None:
        """Set the hooks on the model for the next update."""
        self._armed = True
        self._in_evaluation = self._seen_compiling = False
        if self._probe is not None:
            return
        # Some wrappers call the forward of what they hold and pass by its hooks.
        roots = [self._model] if self._compiled else [self._model, self._module]
        for root in {id(one): one for one in roots}.values():
            self._root_handles += [
                root.register_forward_pre_hook(self._before_forward, with_kwargs=True),
                root.register_forward_hook(self._after_forward, always_call=True),
            ]
        self._tracer.arm()

    def _disarm(self) -> None:
        self._armed = False
        for handle in self._root_handles:
            handle.remove()
        self._root_handles.clear()
        self._tracer.disarm()
        self._call_module = None

    def _give_up(self) -> None:
        """Leave the sample under way out."""
        if self._sample_or_none is not None:
            self._sample_or_none.give_up()
        self._sample = None
        self._reading = None

    @property
    def _sample_or_none(self) -> Sample | None:
        return getattr(self, "_sample", None)

    def _before_forward(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        if torch.compiler.is_compiling():  # inside of a graph no hook is of any use
            self._seen_compiling = True
            return
        if self._call_module is not None or not torch.is_grad_enabled() or self._fence.off:
            return
        if not self._module.training and not self._trains_in_evaluation:
            self._in_evaluation = True
            return
        self._call_module = module
        self._fence.guard("Beginning a sample", self._begin_sample)(Call(module, args, kwargs))

    def _after_forward(self, module: nn.Module, args: Any, output: Any) -> None:
        if torch.compiler.is_compiling() or module is not self._call_module:
            return
        if self._sample is not None:
            self._fence.guard("Ending a forward pass", self._sample.end)()
        if output is None:  # the model raised an error: the loop may catch it and try again
            self._give_up()
            self._call_module = None
            return
        self._fence.guard("Reading the logits", self._read_logits)(output)

    def _begin_sample(self, call: Call) -> None:
        if not self._anatomy_read:
            self._read_anatomy(call)
        if self._anatomy is None or self._sample is not None:
            return
        self._sample = Sample(self._module, self._anatomy, self._plan, fence=self._fence)
        if self._compiled:
            self._read_uncompiled(self._sample, call)
        else:
            self._sample.begin(call)

    def _read_anatomy(self, call: Call) -> None:
        """Prove the anatomy on the loop's own batch; without one, read what needs none."""
        self._anatomy_read = True
        inner = Call(self._module, call.args, call.kwargs) if self._compiled else call
        try:
            if isinstance(self._declared, Anatomy):
                self._anatomy = self._declared
            else:
                self._anatomy = prove_anatomy(self._module, inner, declared=self._declared)
        except Exception as error:
            self._fence.note(
                f"The anatomy of {type(self._module).__name__} could not be proved "
                f"({type(error).__name__}: {error}), so stream and updates are not read; losses, "
                "gradients and weights are, by the model's own blocks."
            )
            return
        if self._writer is not None:
            self._writer.record.note("anatomy", self._anatomy.to_json())

    def _read_uncompiled(self, sample: Sample, call: Call) -> None:
        """Send the batch through the uncompiled module; the loop's own pass stays what it is."""
        with untouched(self._module, evaluate=False), torch.enable_grad():
            sample.begin(call)
            try:
                output = self._module(*call.args, **call.kwargs)
            finally:
                sample.end()
            loss = _loss_in(output)
            if loss is not None and loss.requires_grad:
                loss.backward()
                self._calls.pop()  # it is not the loop's
            else:
                self._fence.note(
                    "The model is compiled and returns no loss, so the gradient at the stream is "
                    "not read; give a fixed batch (probe=...) to have it."
                )
        self._read_logits(output)
        sample.over = True

    def _read_before_step(self, optimizer: torch.optim.Optimizer) -> None:
        if self._groups is None:
            self._groups = ParameterGroups(self._module, self._anatomy)
        if self._reading is None:
            self._reading = StepReading(self._groups)
        self._reading.begin(optimizer, weights=self._armed)
        self._tracer.take()
        if optimizer is self._primary:
            self._run_values[LEARNING_RATE.name] = float(optimizer.param_groups[0]["lr"])

    def _end_sample(self, calls: Sequence[BackwardCall], factor: float | None) -> None:
        """Write the rows of the sample, ask the alarms, and take the hooks off."""
        self._fence.guard("Taking the hooks off", self._disarm)()
        sums = None
        if self._reading is not None:
            sums = self._fence.guard("Comparing the weights", self._reading.end)()
        if self._groups is not None:  # every process takes part, whatever went wrong in it
            sums = self._ranks.add_up(sums, list(self._groups))
        self._fence.guard("Writing a sample", self._write_sample)(calls, sums, factor)
        self._give_up()
        self._run_values.clear()

    def _write_sample(self, calls: Sequence[BackwardCall], sums: Any, factor: float | None) -> None:
        self._say_what_is_missing()
        readings = self._layer_readings(calls)
        if sums is not None:
            readings += self._weight_readings(sums, factor)
        readings += [Reading(name, RUN, "value", value) for name, value in self._run_values.items()]
        readings = [replace(reading, step=self.step) for reading in readings]
        readings += self._loss_readings()
        if self._writer is None:
            return
        self._history.add(sorted(readings, key=lambda reading: reading.step))
        warnings = self._bell.ask(self._history)
        self._writer.write(readings, warnings, steps=self.step, notes=self._fence.notes)
        self._bell.tell(warnings, self.step, readings)
        self._fence.sample_ended()

    def _layer_readings(self, calls: Sequence[BackwardCall]) -> list[Reading]:
        if self._probe is not None:
            if not self._anatomy_read:
                self._anatomy_read = True
                self._anatomy = self._probe.prove(self._declared)
                self._groups = None  # by writes from now on
            return self._probe.readings(self._anatomy)
        if self._sample is None:
            return []
        readings = self._sample.readings()
        scale = next((call.scale for call in calls if call.scale is not None), None)
        if scale is None or self._compiled:
            return readings
        loss_scale = float(scale)
        return [
            replace(one, value=one.value / loss_scale) if one.quantity == STREAM.name else one
            for one in readings
        ]

    def _weight_readings(self, sums: Any, factor: float | None) -> list[Reading]:
        """Gradients before clipping, where the factor is known, surprise and update ratio."""
        readings: list[Reading] = []
        total = 0.0
        for one in readings_of(sums):
            gradient = one.gradient / factor if factor else one.gradient
            total += gradient * gradient
            readings.append(Reading(PARAMETERS.name, one.site, "value", gradient))
            if one.surprise is not None:
                readings.append(Reading(SURPRISE.name, one.site, "value", one.surprise))
            if one.update_ratio is not None:
                readings.append(Reading(WEIGHT_UPDATE.name, one.site, "value", one.update_ratio))
        self._run_values[GRADIENT_NORM.name] = math.sqrt(total)
        if factor is not None:
            self._run_values[CLIPPING.name] = factor
        return readings

    def _say_what_is_missing(self) -> None:
        if self._probe is not None or self._call_module is not None or self._sample is not None:
            return
        if self._seen_compiling:
            self._fence.note(
                "The model runs inside of torch.compile, where hooks are ignored, so layers are "
                "not read: watch the compiled module itself, or give a fixed batch (probe=...)."
            )
        elif self._in_evaluation:
            self._trains_in_evaluation = True
        else:
            self._fence.note(
                "No forward pass of the model was seen in a sampled update, so its layers are not "
                "read: is this the module that the loop calls?"
            )

    # --- losses and logits -----------------------------------------------------------------------------

    def _hear_loss(self, call: BackwardCall) -> None:
        if self._closed or self._fence.off:
            return
        # A scaler that skips a step changes its scale: what was scaled before belongs to no update.
        if call.scale is not None:
            self._calls = [one for one in self._calls if _same_scale(one, call)]
        self._calls.append(call)

    def _name_loss(self, value: Any) -> None:
        tensor = value.detach() if isinstance(value, Tensor) else torch.tensor(float(value))
        known = self._named_loss
        self._named_loss = tensor.double() if known is None else known + tensor.double()

    def _loss_readings(self) -> list[Reading]:
        """The losses of all updates since the last sample, with one transfer from the device."""
        losses, self._losses = self._losses, []
        if not losses:
            return []
        sums = [torch.stack([_loss_of(one) for one in calls]).sum() for _, calls in losses]
        values = torch.stack([one.to(sums[0].device) for one in sums]).tolist()
        return [
            Reading(LOSS.name, RUN, "value", value, step=step)
            for (step, _), value in zip(losses, values, strict=True)
        ]

    def _read_logits(self, output: Any) -> None:
        logits = getattr(output, "logits", output)
        if not isinstance(logits, Tensor) or logits.ndim != 3 or not logits.is_floating_point():
            return
        with torch.no_grad():
            rows = logits.detach().flatten(0, 1)
            rows = rows[:: max(1, rows.shape[0] // LOGIT_TOKENS)].float()
            self._run_values[LOG_Z.name] = float(torch.logsumexp(rows, -1).mean())

    def _keep_in_ring(self, factor: float | None) -> None:
        if self._groups is None or self._reading is None:
            return
        losses = self._losses[-1:]
        value = math.nan
        if losses and losses[0][0] == self.step:
            value = float(sum(float(_loss_of(one)) for one in losses[0][1]))
        norms = {
            site: norm / (factor or 1.0) for site, norm in self._reading.gradient_norms().items()
        }
        rate = self._run_values.get(LEARNING_RATE.name, math.nan)
        total = math.sqrt(sum(norm * norm for norm in norms.values()))
        self._bell.keep(self.step, (value, rate, total), norms, sites=list(self._groups))


def _loss_of(one: BackwardCall | Tensor) -> Tensor:
    loss = one.loss if isinstance(one, BackwardCall) else one
    return loss.reshape(())


def _same_scale(one: BackwardCall, other: BackwardCall) -> bool:
    return one.scale is not None and other.scale is not None and bool(one.scale == other.scale)


def _steps_made(optimizer: torch.optim.Optimizer) -> int:
    """The updates that an optimizer has made, as its own state counts them."""
    counts = [state["step"] for state in optimizer.state.values() if "step" in state]
    return max((int(count) for count in counts), default=0)


def _loss_in(output: Any) -> Tensor | None:
    """The loss among what a model returns."""
    loss = getattr(output, "loss", None)
    if loss is None and isinstance(output, Tensor) and output.numel() == 1:
        loss = output
    return loss if isinstance(loss, Tensor) and loss.numel() == 1 else None


def _closer(reference: weakref.ref[Watch]) -> Callable[[], None]:
    """Close the watch at the end of the process, without keeping it alive until then."""

    def close() -> None:
        one = reference()
        if one is not None:
            one.close()

    return close
