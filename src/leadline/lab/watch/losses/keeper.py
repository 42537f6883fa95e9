"""The losses of every update, told from all values on which backward is called.

    thread      what the thread that steps has called; other threads train other models
    model       what changed a gradient of the model, unless nothing ever did: gradients may be kept
                elsewhere, and then every value counts
    kept        what was not thrown away: the loop may set gradients to zero and begin again
    first       of passes through weights that were moved in between (SAM, LBFGS) the first one:
                the update begins at its weights, unless another optimizer has moved them
    scaled      a loss without the factor of a scaler counts as the scaler makes it count: it divides
                every gradient that a scaled loss has reached as well

The losses of an update are those that are left, added up. On the processor they are read at once,
from other devices with the next sample, so that nobody waits.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from threading import get_ident
from typing import Any

import torch
from torch import Tensor, nn

from leadline.errors import InputError
from leadline.lab.watch.losses.calls import BackwardCall
from leadline.lab.watch.losses.witnesses import Mark, Witnesses
from leadline.lab.watch.sampling.apart import inside_backward
from leadline.record import Reading
from leadline.record.rows.site import RUN
from leadline.record.run.watching import LOSS

__all__ = ["LossKeeper"]

MOST_CALLS = 10_000
"""Micro-batches of one update that are kept: a loop may never step the optimizer that is watched."""
MOST_UPDATES = 1000
"""After so many updates without a sample their losses are read, so that they take no more room."""


class _Heard:
    """One backward call, and what became of it."""

    __slots__ = ("call", "ended", "moved_before", "of_another", "reached")

    def __init__(self, call: BackwardCall) -> None:
        self.call = call
        self.ended = False
        self.reached: frozenset[int] = frozenset()
        """The witnesses whose gradients hold something of it."""
        self.moved_before = False
        """Whether it went through weights that were moved on the way, so that another one counts."""
        self.of_another = False
        """Whether an optimizer that is not watched has stepped since: it may be the loss of that."""


class LossKeeper:
    """The losses of every update, kept on their device until somebody reads them."""

    def __init__(self, module: nn.Module | None = None) -> None:
        self.on_not_finite: Callable[[int], None] = lambda _: None
        """Called with the step where losses begin to be NaN or infinite; at once on the processor."""
        self.on_unscaled: Callable[[], None] = lambda: None
        """Called where a loss without a scale reached what a scaled one has reached."""
        self.unstepped = 0
        """How many backward calls were heard since the last update."""
        self._witnesses = Witnesses(module)
        self._thread = get_ident()
        self._heard: dict[int, deque[_Heard]] = {}
        self._left: list[Mark] | None = None
        """The gradients as the last backward call of this update has left them."""
        self._weights: list[Mark] | None = None
        """The weights at the first backward call of this update."""
        self._moved = False
        self._reached: frozenset[int] = frozenset()
        self._named: Tensor | None = None
        self._updates: list[tuple[int, Tensor | float]] = []
        self._finite = True

    # --- what the loop does ----------------------------------------------------------------------

    def follow(self) -> None:
        """The model is called in this thread: that is where it is trained."""
        self._thread = get_ident()

    def hear(self, call: BackwardCall) -> Callable[[], None] | None:
        """Keep a value on which backward is called; what is returned is called behind it.

        Of another thread the gradients are not looked at: the one that trains may be writing them.
        """
        heard = self._heard.setdefault(get_ident(), deque(maxlen=MOST_CALLS))
        one = _Heard(call)
        if get_ident() != self._thread:
            one.ended = True
            heard.append(one)
            return None
        before = self._witnesses.gradients()
        self._look(before)
        self.unstepped += 1
        one.moved_before = self._moved
        heard.append(one)
        if self._weights is None:
            self._weights = self._witnesses.weights()

        def done() -> None:
            one.ended = True
            self._left = after = self._witnesses.gradients()
            one.reached = self._same(_differences(before, after))
            if not one.reached and self._witnesses.call_again():
                self._left = self._weights = None

        return done

    def look(self) -> bool:
        """Leave out what the loop has thrown away; say whether that was all there was."""
        if get_ident() != self._thread or self._left is None:
            return False
        return self._look(self._witnesses.gradients())

    def _look(self, now: list[Mark]) -> bool:
        heard, left = self._heard.get(get_ident()), self._left
        if not heard or left is None:
            return False
        changed = _differences(left, now)
        if not changed:
            return False
        taken = frozenset(at for at in changed if now[at] is None)
        gone = taken | self._witnesses.zeroed(changed - taken)
        self._left = now
        return bool(gone) and self._leave_out(heard, gone)

    def _same(self, reached: frozenset[int]) -> frozenset[int]:
        """The set of the call before, where it is the same: a thousand micro-batches have one."""
        if reached != self._reached:
            self._reached = reached
        return self._reached

    def _leave_out(self, heard: deque[_Heard], gone: frozenset[int]) -> bool:
        moved: frozenset[int] | None = None
        for one in list(heard):
            touched = one.reached & gone
            if not touched:
                continue
            if moved is None:
                moved = _differences(self._weights or [], self._witnesses.weights())
            again = one.reached <= gone and one.reached <= moved
            if again and not (one.moved_before or one.of_another):
                self._moved = True  # a second look from elsewhere: what was heard here is the loss
                continue
            one.reached = one.reached - gone
            if not one.reached:
                heard.remove(one)
        if heard:
            return False
        self._weights = None
        return True

    def step_elsewhere(self) -> None:
        """An optimizer that is not watched has moved weights of the model."""
        for one in self._heard.get(get_ident(), ()):
            one.of_another = True

    def name(self, value: Any) -> None:
        """Keep what the loop itself calls the loss of this update."""
        if isinstance(value, Tensor) and value.numel() != 1:
            raise InputError(
                f"A loss is one number, and watch.loss was given a tensor of shape "
                f"{tuple(value.shape)}; give its mean."
            )
        tensor = value.detach() if isinstance(value, Tensor) else torch.tensor(float(value))
        # A copy: loops average a loss over processes in place.
        tensor = tensor.reshape(()).to(torch.float64, copy=True)
        self._named = tensor if self._named is None else self._named + tensor.to(self._named.device)

    def skip(self, scaler: int) -> bool:
        """Forget what was scaled for a step that was skipped; say whether there was any."""
        heard = list(self._heard.get(get_ident(), ()))
        skipped = any(one.call.scaled and one.call.scaled.scaler == scaler for one in heard)
        if skipped:
            self._forget()
        return skipped

    def end_update(self, step: int) -> list[BackwardCall]:
        """Give the losses since the last update to this one, and return what was heard."""
        # An optimizer that steps inside of backward may do so in a thread of autograd.
        inside = inside_backward()
        if not inside or get_ident() in self._heard:
            self._thread = get_ident()
        every = list(self._heard.get(self._thread, ()))
        under_way = every[-1] if inside and every else None
        heard = [one for one in every if one.ended or one is under_way]
        heard = [one for one in heard if one.reached or one is under_way] or heard
        named = self._named
        self._forget()
        self._scale_alike(heard)
        losses = [one.call.loss for one in heard if not one.moved_before]
        if named is not None:
            losses = [named]
        if losses:
            self._keep(step, _sum(losses))
        return [one.call for one in heard]

    def _scale_alike(self, heard: Sequence[_Heard]) -> None:
        """Give a loss the scale by which its gradients are divided, where it has none of its own."""
        scaled = [one for one in heard if one.call.scaled is not None]
        if not scaled or len(scaled) == len(heard):
            return
        for one in heard:
            shared = (other for other in scaled if other.reached & one.reached)
            beside = None if one.call.scaled is not None else next(shared, None)
            if beside is not None:
                one.call = replace(one.call, scaled=beside.call.scaled)
                self.on_unscaled()

    def _forget(self) -> None:
        self._heard = {}
        self._left = self._weights = self._named = None
        self._moved = False
        self.unstepped = 0

    def _keep(self, step: int, loss: Tensor) -> None:
        if loss.device.type != "cpu":
            self._updates.append((step, loss))
            return
        value = float(loss)
        self._updates.append((step, value))
        was_finite, self._finite = self._finite, math.isfinite(value)
        if was_finite and not self._finite:
            self.on_not_finite(step)

    # --- what was kept -----------------------------------------------------------------------------

    @property
    def full(self) -> bool:
        """Whether the losses should be read, whether or not there is a sample."""
        return len(self._updates) >= MOST_UPDATES

    def last(self, step: int) -> float:
        """The loss of the update that has just ended; NaN where there was none."""
        if not self._updates or self._updates[-1][0] != step:
            return math.nan
        return float(self._updates[-1][1])

    def readings(self) -> list[Reading]:
        """The losses of all updates since this was asked last, with one transfer from the device."""
        updates, self._updates = self._updates, []
        tensors = [loss for _, loss in updates if isinstance(loss, Tensor)]
        device = tensors[0].device if tensors else None
        read = iter(torch.stack([one.to(device) for one in tensors]).tolist() if tensors else ())
        return [
            Reading(
                LOSS.name,
                RUN,
                "value",
                next(read) if isinstance(loss, Tensor) else loss,
                step=step,
            )
            for step, loss in updates
        ]


def _differences(ones: Sequence[Mark], others: Sequence[Mark]) -> frozenset[int]:
    pairs = enumerate(zip(ones, others, strict=False))
    return frozenset(at for at, (one, other) in pairs if one != other)


def _sum(losses: Sequence[Tensor]) -> Tensor:
    if len(losses) == 1:
        return losses[0].reshape(())
    device = losses[0].device
    return torch.stack([loss.reshape(()).to(device) for loss in losses]).sum()
