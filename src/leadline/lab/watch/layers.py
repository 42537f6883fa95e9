"""Read the layers of a model in a sampled update, from the loop's own passes.

Hooks stand on the model from `arm` to `disarm`, which is one update. The first forward pass that
trains is read. Evaluation passes in between have no gradient, or are in evaluation mode: such a one
is read until a pass in training mode comes, because some loops train in evaluation mode.

Hooks inside of what is compiled would be ignored or compiled with it. So where a model or a part of
it is compiled, the batch goes through the uncompiled modules a second time, with the same random
numbers, and the loop's own pass stays what it is; what the loop makes of the loss is told by the
gradient at it. Where a model is compiled out of sight, its hooks
run while it is being traced: there they do nothing but notice it, and random tokens are measured
in place of the loop's batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from leadline.anatomy import Anatomy, Declaration, is_compiled, own_depth, untouched, unwrapped
from leadline.anatomy.spread import is_spread
from leadline.errors import InputError, LeadlineError
from leadline.instruments.passes.probe_plan import Plan
from leadline.instruments.passes.probes.gradient import STREAM
from leadline.lab.watch.fence import Fence, let_signals_pass
from leadline.lab.watch.hooks import has_compiled_parts
from leadline.lab.watch.losses.calls import BackwardCall
from leadline.lab.watch.probe_batch import ProbeBatch
from leadline.lab.watch.processes.ranks import Ranks
from leadline.lab.watch.sampling.apart import apart, is_recomputed, is_transformed, set_apart
from leadline.lab.watch.sampling.call import Call, prove_anatomy
from leadline.lab.watch.sampling.known_heads import KnownHeads
from leadline.lab.watch.sampling.outputs import log_z, logits_in, loss_in, vocabulary_sizes
from leadline.lab.watch.sampling.pass_hooks import PassHooks, is_compiled_in_place
from leadline.lab.watch.sampling.returned_loss import ReturnedLoss
from leadline.lab.watch.sampling.sample import Sample
from leadline.record import Reading, Site
from leadline.record.rows.site import RUN
from leadline.record.run.watching import LOG_Z

__all__ = ["LayerReader"]

MOST_PROOFS = 3
"""So many passes are tried: the first one may run out of memory and the next one not."""


class LayerReader:
    """Reads stream, updates and gradients of the update for which it is armed."""

    def __init__(
        self,
        model: nn.Module,
        plan: Plan,
        *,
        declared: Anatomy | Declaration | None,
        probe: ProbeBatch | None,
        fence: Fence,
        ranks: Ranks,
    ) -> None:
        self.model = model
        self.module = unwrapped(model)
        self.plan = plan
        self.anatomy: Anatomy | None = None
        self.on_anatomy: Callable[[Anatomy], None] = lambda _: None
        """Called once, when the anatomy is proved."""
        self.on_forward: Callable[[], None] = lambda: None
        """Called when a pass with gradients begins: the update before it may be over only now."""
        self.failed = False
        """Whether a sample of this update has failed: no other one is begun, to fail again."""
        self._declared = declared
        self._fence = fence
        self._ranks = ranks
        self._probe = probe
        self._compiled = False
        self._proofs = 0
        self._sample: Sample | None = None
        self._called: nn.Module | None = None
        """The module whose call is sampled."""
        self._inside: list[nn.Module] = []
        """The calls under way, that one among them, the outermost first."""
        self._resting = 0
        """How many calls are under way where the model has called itself; 0 where it has not."""
        self._running = self._in_evaluation = self._of_another = False
        """Whether that call is still under way; whether it is in evaluation mode; whether an
        optimizer that is not watched has stepped since."""
        self._returned: ReturnedLoss | None = None
        """The loss that the loop's own pass has returned, where ours stands in its place."""
        self._heads = KnownHeads()
        self._log_z: Tensor | None = None
        self._logits_read = 0
        self._traced = self._passed = False
        """Whether the model was seen being traced; whether it was seen at all, in this update."""
        self._left: list[Sample] = []
        """Samples that were given up inside of a pass, whose hooks are still there."""
        self._standing = PassHooks(
            fence.shield(self._before_forward),
            fence.shield(self._after_forward),
            traced=self._notice_tracing,
        )

    # --- one sampled update ----------------------------------------------------------------------

    @property
    def armed(self) -> bool:
        """Whether hooks stand on the model."""
        return bool(self._standing)

    def arm(self) -> None:
        """Set the hooks for the next update."""
        if self._probe is not None or self._standing:
            return
        self._passed = self.failed = False
        # Some wrappers call the forward of what they hold and pass by its hooks.
        self._standing.begin([self.model] if is_compiled(self.model) else [self.model, self.module])

    def disarm(self) -> None:
        """Take the hooks off; what was read is still there, unless its pass never ended."""
        try:
            self._standing.end()
        finally:
            if self._running:  # whatever ended the pass, such as a keyboard interrupt
                self.give_up()
            self._take_off()

    def give_up(self) -> None:
        """Forget the sample under way."""
        if self._sample is not None:
            self._sample.give_up()
            if self._sample.passing:
                self._left.append(self._sample)
        self._sample = self._called = self._log_z = self._returned = None
        self._inside, self._resting = [], 0
        self._running = self._of_another = False

    def step_elsewhere(self) -> None:
        """An optimizer that is not watched has moved weights of the model."""
        self._of_another = self._called is not None

    def _take_off(self) -> None:
        """Take off what samples that were given up have left on the model: no pass is under way."""
        while self._left:
            self._left.pop().close()

    def readings(self, calls: Sequence[BackwardCall]) -> list[Reading]:
        """What the layers showed in this update, or what they say about the fixed batch now."""
        if self._probe is None:
            self._say_what_is_missing()
        if self._probe is not None and not self._ranks.main:
            return []
        if self._probe is not None:
            measure = self._fence.guard("Measuring the fixed batch", self._probe_readings)
            return measure(self._probe) or []
        readings: list[Reading] = []
        if self._sample is not None:
            readings = self._sample.readings()
            if self._compiled:
                readings = self._as_the_loop_trains(readings)
            scale = next((call.scale for call in calls if call.scale is not None), None)
            if scale is not None:
                readings = _multiplied(readings, 1.0 / float(scale))
        if self._log_z is not None:
            readings.append(Reading(LOG_Z.name, RUN, "value", float(self._log_z)))
        return readings

    def _as_the_loop_trains(self, readings: Sequence[Reading]) -> list[Reading]:
        """The gradient of the returned loss, times what the loop makes of that."""
        factor = None if self._returned is None else self._returned.factor
        if factor is not None:
            return _multiplied(readings, factor)
        if self._returned is not None:
            self._fence.note(
                "The model is compiled and the loop trains by something else than the loss that it "
                "returns, so the gradient at the stream is not read; give a fixed batch (probe=...) "
                "to have it."
            )
        return [one for one in readings if one.quantity != STREAM.name]

    @property
    def has_fixed_batch(self) -> bool:
        """Whether a fixed batch is measured in place of the loop's own."""
        return self._probe is not None

    @property
    def counts(self) -> dict[tuple[str, Site], float]:
        """How many numbers each mean of the sample is the mean of."""
        counts = {} if self._sample is None else dict(self._sample.counts)
        if self._log_z is not None:
            counts[LOG_Z.name, RUN] = float(self._logits_read)
        return counts

    def _probe_readings(self, probe: ProbeBatch) -> list[Reading]:
        if self.anatomy is None and self._proofs < MOST_PROOFS:
            try:
                proved = probe.prove(self._declared)
            except Exception as error:
                self._read_loop_instead(error)
                return []
            self._read_anatomy(lambda: proved)
        return probe.readings(self.anatomy)

    def _read_loop_instead(self, error: Exception) -> None:
        self._probe = None
        self._fence.note(
            "The anatomy could not be proved on the fixed batch that was given (probe=...): "
            f"{type(error).__name__}: {error} Give what the model is called with: of a data "
            "loader's (inputs, targets) the inputs alone. The loop's own batches are read in its "
            "place, from the next sample on."
        )

    # --- the hooks -------------------------------------------------------------------------------

    def _notice_tracing(self) -> None:
        self._traced = True

    def _before_forward(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        if own_depth() or self._fence.off or is_transformed() or is_recomputed():
            return
        if not torch.is_grad_enabled():
            self._enter(module)
            return
        self.on_forward()
        if not self._standing:
            return  # it was the update before that was to be sampled
        if self.failed:
            self._take_off()
            return
        training = self.module.training
        if self._called is module and self._running:
            self.give_up()  # whatever ended the last call, no hook has heard of it
        if not self._running:
            self._take_off()
        if self._called is not None and not self._makes_way(training):
            self._enter(module)
            return
        self.give_up()
        self._inside = [module]
        self._passed = True
        self._called, self._running, self._in_evaluation = module, True, not training
        self._fence.guard("Beginning a sample", self._begin)(args, kwargs)

    def _after_forward(self, module: nn.Module, args: Any, output: Any) -> None:
        if own_depth() or self._leave(module):
            return
        if output is None:  # the model raised an error: the loop may catch it and try again
            if self._running:
                self._interrupt()
            return
        self._take_off()
        if module is not self._called or not self._running:
            return
        self._running = False
        if self._sample is not None:
            self._fence.guard("Ending a forward pass", self._sample.end)()
        if self._compiled and self._sample is not None:
            self._fence.guard("Listening to the loss", self._listen_to_loss)(output)
        self._fence.guard("Reading the logits", set_apart(self._read_logits))(output)

    def _enter(self, module: nn.Module) -> None:
        """A call begins inside of the one that is read.

        Where the model calls itself without gradients, it asks itself something: that is not read.
        """
        if not self._running:
            return
        again = any(one is module for one in self._inside)
        self._inside.append(module)
        if again and not torch.is_grad_enabled() and not self._resting and self._sample:
            self._resting, self._sample.resting = len(self._inside), True

    def _leave(self, module: nn.Module) -> bool:
        """A call ends; say whether it was part of what the model asks itself."""
        if not self._inside or self._inside[-1] is not module:
            return False
        asked, depth = self._resting, len(self._inside)
        self._inside.pop()
        if asked == depth:
            self._resting = 0
            if self._sample is not None:
                self._sample.resting = False
        return 0 < asked <= depth

    def _makes_way(self, training: bool) -> bool:
        """Whether the pass that is sampled makes way for another one, which begins now.

        One in evaluation mode does for one in training mode; so does one that an inner loop or a
        penalty has differentiated, whose backward pass has failed, or whose graph nobody has kept, or
        behind which another optimizer has stepped.
        """
        if self._in_evaluation and training:
            return True
        unused = self._sample is not None and self._sample.of_no_training
        return (unused or self._of_another) and training is not self._in_evaluation

    def _interrupt(self) -> None:
        samples = [*self._left, *([] if self._sample is None else [self._sample])]
        for sample in samples:
            sample.interrupt()
        self._sample, self._left = None, samples
        self.give_up()

    def _begin(self, args: Any, kwargs: Any) -> None:
        # Wrappers that were taken off pass their arguments on unchanged.
        call = Call(self.module, args, kwargs)
        self._compiled = is_compiled(self.model) or has_compiled_parts(self.module)
        self._ranks.look_again()
        if self._ranks.sharding == "foreign":
            return
        if self._compiled and self._ranks.sharded:
            self._fence.note(
                "The model is compiled and its parameters are spread over processes, so layers are "
                "not read: the uncompiled pass would need all processes."
            )
            return
        if self.anatomy is None and self._proofs < MOST_PROOFS:
            self._read_anatomy(lambda: prove_anatomy(self.module, call, declared=self._declared))
        if self.anatomy is None:
            return
        self._sample = Sample(
            self.module,
            self.anatomy,
            self.plan,
            fence=self._fence,
            heads=self._heads,
            spread=self._ranks.sharding == "tensor",
            own=self._compiled,
        )
        if self._compiled:
            try:
                self._read_uncompiled(self._sample, call)
            except InputError as error:  # before the pass
                self._fence.note(f"{error} So layers are not read.", about="arguments")
                self.give_up()
        else:
            self._sample.begin(call)

    def _read_anatomy(self, prove: Callable[[], Anatomy]) -> None:
        """Prove the anatomy once; without one, what needs none is read."""
        self._proofs += 1
        try:
            if isinstance(self._declared, Anatomy):
                self._ranks.decline("it was given its anatomy")
                self.anatomy = self._declared
            else:
                self.anatomy = self._ranks.prove(prove)
        except Exception as error:
            let_signals_pass(error)
            if isinstance(error, LeadlineError) or self._ranks.sharded:
                self._proofs = MOST_PROOFS  # it is the model, and not the moment
            again = "; it is tried again" if self._proofs < MOST_PROOFS else ""
            self._fence.note(
                f"The anatomy of {type(self.module).__name__} could not be proved "
                f"({type(error).__name__}: {error}), so stream and updates are not read{again}. "
                "Losses, gradients and weights are, by the model's own blocks."
            )
            return
        self.on_anatomy(self.anatomy)

    def _read_uncompiled(self, sample: Sample, call: Call) -> None:
        kept = untouched(self.module, *call.modules, evaluate=False, hooks=True)
        with apart(passes=True), kept, torch.enable_grad():
            sample.begin(call)
            try:
                output = call.again()
            finally:
                sample.end()
            loss = loss_in(output)
            if loss is not None and loss.requires_grad:
                # Unlike backward, this wakes no hook of data parallelism that waits for gradients.
                trained = [one for one in self.module.parameters() if one.requires_grad]
                torch.autograd.grad(loss, trained, allow_unused=True)
            else:
                self._fence.note(
                    "The model is compiled and returns no loss, so the gradient at the stream is "
                    "not read; give a fixed batch (probe=...) to have it."
                )

    def _listen_to_loss(self, output: Any) -> None:
        loss = loss_in(output)
        if loss is not None and loss.requires_grad:
            self._returned = ReturnedLoss(loss, self.module, self._fence)

    def _read_logits(self, output: Any) -> None:
        widths = set() if self.anatomy is None else {one.width for one in self.anatomy.stacks}
        logits = logits_in(output, vocabulary_sizes(self.module, widths))
        if logits is None:
            return
        if is_spread(logits):
            self._fence.note("The logits are spread over processes (a DTensor): they are not read.")
            return
        self._log_z, self._logits_read = log_z(logits)

    def _say_what_is_missing(self) -> None:
        if self._passed:
            return
        if self._traced and not is_compiled_in_place(self.module):
            self._measure_random_tokens()
        elif not self._traced:
            self._fence.note(
                "No forward pass of the model was seen in a sampled update, so its layers are not "
                "read: is this the module that the loop calls?"
            )

    def _measure_random_tokens(self) -> None:
        """Exchange the loop's batch, which nobody sees, for a fixed one."""
        words = "The model runs inside of torch.compile, where hooks are ignored, so "
        remedy = (
            "watch the compiled module itself, or, where a trainer compiles it, give a fixed batch: "
            "LeadlineCallback(path, probe=batch)."
        )
        try:
            self._probe = ProbeBatch(self.module, None, self.plan)
        except Exception:
            self._fence.note(f"{words}layers are not read: {remedy}")
            return
        self._fence.note(
            f"{words}layers are read of random tokens that pass through the uncompiled module "
            f"after each sampled update. To have those of the loop's own batches {remedy}"
        )


def _multiplied(readings: Sequence[Reading], factor: float) -> list[Reading]:
    """Multiply the gradient at the stream."""
    return [
        replace(one, value=one.value * abs(factor)) if one.quantity == STREAM.name else one
        for one in readings
    ]
