"""A design trains live: the loss of every update, the curves of the model now and then, what goes wrong.

    for event in train_live(design, {"steps": 400, "rate": 1e-3}): ...

    {"event": "step", "step": 7, "loss": 4.9, "rate": 0.00035}
    {"event": "gauges", "step": 25, "curves": [...]}        on the design's own text
    {"event": "finding", "step": 25, "level": ..., "sentence": ..., "findings": [...]}
    {"event": "end", "step": 400, "reason": "finished", "sentence": ...}

A finding is told when the verdict on the model changes. Closing the generator stops the run; a
`LiveRun` keeps its state and `events()` goes on from there. A run is a function of design and
settings alone, stopped or not, on one machine with one number of threads.

Updates are those of the lab: its tasks, its learning rate, its optimizer.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from leadline.errors import LabError, LeadlineError, shown
from leadline.lab.optimizer import FlatAdamW
from leadline.lab.tasks import Task, build_task
from leadline.lab.trainer import refuse_misfit
from leadline.lab.training import Training, learning_rate
from leadline.numerics.denormals import flushed
from leadline.web.playground.curves import curves_of_model
from leadline.web.playground.design import MOST_TOKENS, Design, DesignError, checked_fields
from leadline.web.playground.verdict import PlayVerdict, verdict_on

__all__ = ["LiveRun", "LiveSettings", "train_live"]

MOST_STEPS = 10_000
MOST_RATE = 1.0
BATCH = 16
"""Examples of an update: with 64 tokens each, an update of 12 layers takes a tenth of a second."""
DEFAULT_TASKS = {"causal": "stdlib", "full": "addition"}
"""By mask: where every token sees every token, the next one is no task."""
TASKS_OFFERED = ("stdlib", "copy", "induction", "sorting", "recall", "addition", "identity")
"""Tasks that need nothing but the package: a page may not name a file to be read."""
CLOSE_TO_START = 0.95
"""A loss that is at least this share of the first one at the end has not learned anything to speak of."""
LAST = 10
"""So many losses are averaged to say what was learned."""


@dataclass(frozen=True, kw_only=True)
class LiveSettings:
    """How a design is trained. `task=None` is the one that fits its mask; `every` is for the curves."""

    steps: int = 400
    rate: float = 1e-3
    warmup: int = 0
    task: str | None = None
    every: int = 25

    def __post_init__(self) -> None:
        for name, least, most in (("steps", 1, MOST_STEPS), ("warmup", 0, MOST_STEPS), ("every", 1, MOST_STEPS)):  # fmt: skip
            value: object = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
                raise DesignError(
                    f"{name} is {shown(value)}; give a whole number from {least} to {most}.",
                    knob=name,
                )
        rate: object = self.rate
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate <= MOST_RATE:
            raise DesignError(
                f"The rate is {shown(rate)}; give a number above 0, at most {MOST_RATE:g}.",
                knob="rate",
            )

    @classmethod
    def from_json(cls, fields: object) -> LiveSettings:
        """Read settings; what is absent takes the default."""
        known = [field.name for field in dataclasses.fields(cls)]
        return cls(**checked_fields(fields, known, what="training", part="setting"))

    def training(self, mask: str) -> Training:
        """Return them as the lab has them."""
        fields: dict[str, Any] = {"steps": self.steps, "rate": self.rate, "warmup": self.warmup}
        task = DEFAULT_TASKS[mask] if self.task is None else self.task
        try:
            return Training(task=task, batch=BATCH, log=0, gauges=0, **fields)
        except LeadlineError as error:
            raise DesignError(str(error), knob="task") from error


class LiveRun:
    """A run that can be stopped at any event and gone on with: all of its state is here."""

    def __init__(self, design: Design, settings: LiveSettings | None = None) -> None:
        self.design = design
        self.settings = LiveSettings() if settings is None else settings
        self.training = self.settings.training(design.mask)
        self.task = _built_task(self.training)
        self.model = design.model()
        self._refuse_misfit()
        self.step = 0
        self.losses: list[float] = []
        self.verdict: PlayVerdict | None = None
        self.ended: dict[str, Any] | None = None
        self._optimizer = FlatAdamW(self.model, decay=self.training.decay)
        self._random = torch.Generator().manual_seed(design.seed).get_state()
        self._read_at = -1

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield what happens from here on; the state is whole at every event."""
        while self.ended is None:
            if self._is_due():
                self._read_at = self.step
                yield from self._gauges()
            if self.ended is None:
                self.ended = self._why_end()
            if self.ended is None:
                yield self._update()
        yield self.ended

    def _is_due(self) -> bool:
        last = self.step == self.settings.steps
        return self._read_at != self.step and (last or self.step % self.settings.every == 0)

    def _gauges(self) -> Iterator[dict[str, Any]]:
        """The curves of the model as it is, and the verdict where it has changed."""
        with flushed():
            measured = curves_of_model(self.design, self.model)
        verdict = verdict_on(measured, trained=self.step > 0)
        curves = [one.to_json() for one in measured.curves]
        yield {"event": "gauges", "step": self.step, "curves": curves}
        if self.verdict is None or _kinds(verdict) != _kinds(self.verdict):
            self.verdict = verdict
            yield {"event": "finding", "step": self.step, **verdict.to_json()}

    def _update(self) -> dict[str, Any]:
        rate = learning_rate(self.training, self.step + 1)
        batch = self.task.train(self.step, self.training.batch, seed=self.design.seed)
        self.model.train()
        with self._own_random_numbers(), flushed():
            self._optimizer.zero()
            loss = self.model.loss(batch.ids, batch.targets)
            loss.backward()
            value = float(loss.detach())
            healthy = math.isfinite(value) and math.isfinite(float(self._optimizer.norm()))
            if healthy:
                self._optimizer.step(rate)
        self.step += 1
        self.losses.append(value if healthy else math.nan)
        finite = value if math.isfinite(value) else None
        return {"event": "step", "step": self.step, "loss": finite, "rate": rate}

    def _why_end(self) -> dict[str, Any] | None:
        ending = {"event": "end", "step": self.step}
        if self.losses and math.isnan(self.losses[-1]):
            sentence = (
                f"The loss or its gradient was not finite at step {self.step}: the run diverged."
            )
            return ending | {"reason": "diverged", "sentence": sentence}
        if self.step < self.settings.steps:
            return None
        recent = self.losses[-LAST:]
        first, last = self.losses[0], sum(recent) / len(recent)
        learned = last < CLOSE_TO_START * first
        sentence = (
            f"The loss went from {first:.2f} to {last:.2f} in {self.step} steps."
            if learned
            else f"The loss began at {first:.2f} and is {last:.2f} after {self.step} steps: hardly "
            "anything was learned."
        )
        return ending | {"reason": "finished", "sentence": sentence}

    def _refuse_misfit(self) -> None:
        try:
            refuse_misfit(self.model, self.task)
        except LabError as error:
            if self.task.length > MOST_TOKENS:
                raise DesignError(
                    f"The task {self.task.name!r} has examples of {self.task.length} tokens, and "
                    f"designs have positions for {MOST_TOKENS}; make its examples shorter.",
                    knob="task",
                ) from error
            knob = "mask" if self.design.mask == "full" else "task"
            raise DesignError(str(error), knob=knob) from error

    @contextmanager
    def _own_random_numbers(self) -> Iterator[None]:
        """Dropout and dropped layers draw the run's own numbers, whoever else draws meanwhile."""
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(self._random)
            yield
            self._random = torch.get_rng_state()


def _built_task(training: Training) -> Task:
    if training.task_choice.name not in TASKS_OFFERED:
        raise DesignError(
            f"The task {training.task_choice.name!r} reads files; choose {', '.join(TASKS_OFFERED)}.",
            knob="task",
        )
    try:
        return build_task(training.task)
    except LeadlineError as error:
        raise DesignError(str(error), knob="task") from error


def train_live(
    design: Design | object, settings: LiveSettings | object | None = None
) -> Iterator[dict[str, Any]]:
    """Begin to train a design and return its events; both may be given as JSON.

    DesignError where the design cannot be built or the settings are wrong, before the first event.
    """
    checked = design if isinstance(design, Design) else Design.from_json(design)
    if not isinstance(settings, LiveSettings):
        settings = LiveSettings.from_json({} if settings is None else settings)
    return LiveRun(checked, settings).events()


def _kinds(verdict: PlayVerdict) -> tuple[str, frozenset[str]]:
    """What of a verdict is news when it changes: its level and which rules found something."""
    return verdict.level, frozenset(one.code for one in verdict.findings)
