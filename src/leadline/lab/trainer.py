"""One training run: updates, rows, checkpoints, and why it ended.

Everything a run does follows from the model, the task, the training and the seed: batches are a
function of seed and step, and the random numbers of the model (dropout, dropped layers) are the
run's own. So a run that goes on from its checkpoint gives the rows of one that was never
stopped, to the bit on the same processor with the same number of threads. The rows hold no times.

Numbers below the normal range are taken as zero: in a network whose signal dies out with depth
most are, and a processor is many times slower with them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from leadline.errors import AnatomyError, LabError
from leadline.lab.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from leadline.lab.cost import affordable_steps, flops_of
from leadline.lab.gauges import Gauges, task_loss
from leadline.lab.optimizer import FlatAdamW
from leadline.lab.precision import choose_precision
from leadline.lab.tasks import Batch, Task
from leadline.lab.training import Training, learning_rate
from leadline.numerics.denormals import flushed
from leadline.numerics.half_precision import prepare_half_products
from leadline.parts import Recipe, Transformer
from leadline.parts.loss import IGNORED
from leadline.record import Quantity, Reading
from leadline.record.rows.site import RUN
from leadline.record.run.training import (
    GRADIENT_NORM,
    LEARNING_RATE,
    TRAIN_LOSS,
    TRAINING,
    VALIDATION_LOSS,
)

__all__ = ["Beat", "Ending", "Trainer", "model_for", "refuse_misfit"]

VALIDATION_BATCH = 64
"""So many validation examples are passed through the model at a time."""
WINDOW = 10
"""Progress is judged by the mean loss of so many updates."""
BEAT = 0.25
"""Seconds between two beats, at least."""


@dataclass(frozen=True)
class Beat:
    """How a run is doing."""

    step: int
    steps: int
    loss: float
    tokens_per_second: float
    gauges: Mapping[str, float]


@dataclass(frozen=True)
class Ending:
    """Why a run ended: finished, diverged, plateau or seconds; `loss` is the last validation loss."""

    status: str
    reason: str
    steps: int
    loss: float
    seconds: float


@dataclass
class _RunState:
    """What a run remembers from one update to the next, beside its tensors."""

    step: int = 0
    seconds: float = 0.0
    sum: float = 0.0
    count: int = 0
    recent: list[float] = field(default_factory=list[float])
    lowest: float = math.inf
    lowest_at: int = 0
    loss: float = math.nan
    gauges: dict[str, float] = field(default_factory=dict[str, float])
    broken: str = ""
    """What was not finite: the loss or the gradient."""
    ending: dict[str, Any] | None = None


def model_for(recipe: Recipe, task: Task, *, seed: int) -> Transformer:
    """Build a model of the recipe with the vocabulary and the context of a task."""
    model = Transformer(recipe.but(vocabulary=task.vocabulary, context=task.length), seed=seed)
    refuse_misfit(model, task)
    return model


def refuse_misfit(model: Transformer, task: Task) -> None:
    """Refuse a model that cannot read the task's examples, or sees the answers."""
    recipe = model.recipe
    if recipe.vocabulary < task.vocabulary or (model.context_limit or task.length) < task.length:
        raise LabError(
            f"The task {task.name!r} has {task.vocabulary} symbols and examples of {task.length} "
            f"tokens, and the model takes {recipe.vocabulary} symbols and {recipe.context} "
            "tokens; build it with that vocabulary and context."
        )
    if task.causal and model.causal is False:
        raise LabError(
            f"The task {task.name!r} asks for the next token, which a bidirectional model sees; "
            "train one with causal attention."
        )


class Trainer:
    """Trains one model on one task, writes its rows and checkpoints, and says why it ended.

    With a `folder` a checkpoint is written there every `every` seconds and at the end, and the
    run goes on from the one that it finds. `model` is trained in place.
    """

    def __init__(
        self,
        model: nn.Module,
        task: Task,
        training: Training,
        *,
        seed: int = 0,
        run: str = "",
        folder: Path | None = None,
        every: float = 10.0,
    ) -> None:
        self.model = model
        self.task = task
        self.training = training
        self.seed = seed
        self.run_name = run
        self.folder = folder
        self.every = every
        self.readings: list[Reading] = []
        self.saved_rows = 0
        """How many of the readings the checkpoint holds."""
        self.device = next(model.parameters()).device
        self.steps = self._steps()
        self.precision = choose_precision(
            training.precision, width=_width(model), device=self.device
        )
        in_half = self.precision == "bfloat16" and self.device.type == "cpu"
        self.half_route = prepare_half_products() if in_half else None
        """How half precision is multiplied on the CPU; None where it is not."""
        self._validation = _on(self.device, task.validation(training.examples))
        self._gauges = Gauges(model, self._validation, layers=training.layers, seed=seed)
        self._optimizer = FlatAdamW(model, decay=training.decay)
        self._memory = _RunState()
        self._random = torch.Generator().manual_seed(seed).get_state()
        self._resume()

    # --- what others ask ---------------------------------------------------------------------

    @property
    def step(self) -> int:
        """How many updates have been made."""
        return self._memory.step

    @property
    def quantities(self) -> tuple[Quantity, ...]:
        """What the rows are of."""
        return (*TRAINING, *self._gauges.quantities) if self.training.gauges else TRAINING

    @torch.no_grad()
    def validate(self, batch: Batch | None = None) -> float:
        """The mean loss of the validation examples, or of a batch, in evaluation mode."""
        batch = self._validation if batch is None else batch
        training = self.model.training
        self.model.eval()
        total, counted = 0.0, 0
        try:
            for piece in _pieces(batch, VALIDATION_BATCH):
                count = int((piece.targets != IGNORED).sum())
                if count:
                    total += float(self._loss(piece)) * count
                    counted += count
        finally:
            self.model.train(training)
        return total / counted

    def run(self, *, beat: Callable[[Beat], None] | None = None) -> Ending:
        """Train until an end; what `beat` raises pauses the run, after a checkpoint."""
        if self._memory.ending is not None:
            return Ending(**self._memory.ending)
        self._started = self._spoke_at = self._saved_at = time.perf_counter()
        self._seconds_before, self._tokens = self._memory.seconds, 0
        self._speed_since = self._started
        self.model.train()
        with self._own_random_numbers(), flushed():
            if self.step == 0:
                self._read_due(last=False)
            reason = self._why_end()
            while reason is None:
                self._update()
                self._read_due(last=self._why_end() is not None)
                # Ask again: the gauges may have met a value that is not finite.
                reason = self._why_end()
                if reason is None:
                    self._keep_up(beat)
            ending = self._end(*reason)
            self._save()
        if beat is not None:
            beat(self._beat())
        return ending

    # --- one update --------------------------------------------------------------------------

    def _update(self) -> None:
        training, memory, optimizer = self.training, self._memory, self._optimizer
        batch = _on(self.device, self.task.train(self.step, training.batch, seed=self.seed))
        counted = int((batch.targets != IGNORED).sum())
        optimizer.zero()
        loss = 0.0
        for piece in _pieces(batch, training.batch // training.accumulate):
            share = 1.0
            if training.accumulate > 1:
                share = int((piece.targets != IGNORED).sum()) / counted
                if share == 0.0:
                    continue
            part = self._loss(piece)
            (part if share == 1.0 else part * share).backward()
            loss += float(part.detach()) * share
        norm = optimizer.norm()
        if training.clip is not None:
            optimizer.scale((training.clip / (norm + 1e-6)).clamp(max=1.0))
        self._norm = float(norm)
        memory.sum += loss
        memory.count += 1
        self._tokens += batch.ids.numel()
        memory.step += 1
        self._compare(loss)
        if math.isfinite(loss) and math.isfinite(self._norm):
            if training.layers and self._reads_gauges(last=self.step == self.steps):
                self._gauges.begin_step(optimizer)
            optimizer.step(learning_rate(training, memory.step, steps=self.steps))
        else:
            memory.broken = "gradient" if math.isfinite(loss) else "loss"

    def _compare(self, loss: float) -> None:
        """Remember the lowest mean of ten losses, and when it was."""
        memory = self._memory
        memory.recent = [*memory.recent, loss]
        if len(memory.recent) == WINDOW:
            mean = sum(memory.recent) / WINDOW
            memory.recent = []
            if mean < memory.lowest - self.training.least:
                memory.lowest, memory.lowest_at = mean, memory.step

    def _loss(self, batch: Batch) -> Tensor:
        half = self.precision == "bfloat16"
        with torch.autocast(self.device.type, torch.bfloat16) if half else nullcontext():
            if isinstance(self.model, Transformer):
                return self.model.loss(batch.ids, batch.targets)
            return task_loss(self.model(input_ids=batch.ids), batch.targets)

    # --- rows --------------------------------------------------------------------------------

    def _read_due(self, *, last: bool) -> None:
        """Read what is due at this step; at the last one everything is."""
        training, memory, step = self.training, self._memory, self.step
        if step and training.log and (step % training.log == 0 or last):
            mean = memory.sum / memory.count
            self._row(TRAIN_LOSS, mean)
            self._row(LEARNING_RATE, learning_rate(training, step, steps=self.steps))
            self._row(GRADIENT_NORM, self._norm)
            memory.sum, memory.count = 0.0, 0
            memory.loss = mean
        if memory.broken:
            return
        if training.validate and step % training.validate == 0 and not last:
            self._row(VALIDATION_LOSS, self.validate())
        if self._reads_gauges(last=last):
            try:
                readings = self._gauges.read(run_name=self.run_name, step=step, seed=self.seed)
            except AnatomyError:
                if math.isfinite(self.validate()):
                    raise
                memory.broken = "validation loss"
                return
            self.readings += readings
            memory.gauges = {r.quantity: r.value for r in readings if r.site == RUN}

    def _reads_gauges(self, *, last: bool) -> bool:
        """Whether the gauges are read at this step."""
        every = self.training.gauges
        return bool(every) and (self.step % every == 0 or last)

    def _row(self, quantity: Quantity, value: float) -> None:
        self.readings.append(
            Reading(
                quantity.name,
                RUN,
                "value",
                value,
                run=self.run_name,
                step=self.step,
                seed=self.seed,
            )
        )

    # --- ends --------------------------------------------------------------------------------

    def _why_end(self) -> tuple[str, str] | None:
        """Return (status, reason) if the run ends at this step."""
        training, memory = self.training, self._memory
        memory.seconds = self._seconds_before + time.perf_counter() - self._started
        if memory.broken:
            return "diverged", f"the {memory.broken} was not finite at step {self.step}"
        if self.step >= self.steps:
            if self.steps == training.steps:
                return "finished", ""
            reason = f"{training.flops:.3g} FLOPs allow {self.steps} of {training.steps} steps"
            return "finished", reason
        if training.seconds is not None and memory.seconds >= training.seconds:
            return "seconds", f"{training.seconds:g} seconds of training were over"
        # Judged only after a full window: before, it is not known whether the mean loss has fallen.
        stuck = not memory.recent and self.step - memory.lowest_at >= training.plateau
        if training.plateau and stuck and self.step:
            return (
                "plateau",
                f"no training loss below {memory.lowest:.3f} in {training.plateau} steps",
            )
        return None

    def _end(self, status: str, reason: str) -> Ending:
        loss = math.nan
        if status != "diverged":
            loss = self.validate()
            self._row(VALIDATION_LOSS, loss)
            if not math.isfinite(loss):
                status, reason = (
                    "diverged",
                    f"the validation loss was not finite at step {self.step}",
                )
        memory = self._memory
        memory.seconds = self._seconds_before + time.perf_counter() - self._started
        ending = Ending(status, reason, self.step, loss, memory.seconds)
        memory.ending = asdict(ending)
        return ending

    def _steps(self) -> int:
        """The updates that the training asks for and its FLOPs allow."""
        training = self.training
        if training.flops is None:
            return training.steps
        if not isinstance(self.model, Transformer):
            raise LabError("A budget of FLOPs needs a model made of a recipe; give steps instead.")
        cost = flops_of(self.model.recipe, examples=training.batch, length=self.task.length)
        return affordable_steps(training.steps, cost=cost, flops=training.flops)

    # --- going on ----------------------------------------------------------------------------

    def _keep_up(self, beat: Callable[[Beat], None] | None) -> None:
        """Save a checkpoint and call `beat` when they are due."""
        now = time.perf_counter()
        if self.folder is not None and now - self._saved_at >= self.every:
            self._save()
            self._saved_at = time.perf_counter()
        if beat is not None and now - self._spoke_at >= BEAT:
            try:
                beat(self._beat())
            except BaseException:
                self._save()
                raise
            self._spoke_at = now

    def _beat(self) -> Beat:
        memory, now = self._memory, time.perf_counter()
        speed = self._tokens / max(now - self._speed_since, 1e-9)
        if now - self._speed_since > 5.0:
            self._speed_since, self._tokens = now, 0
        loss = memory.sum / memory.count if memory.count else memory.loss
        return Beat(self.step, self.steps, loss, speed, dict(memory.gauges))

    def _identity(self) -> dict[str, Any]:
        """Which run this is: a checkpoint of another one is refused."""
        model = self.model
        recipe = model.recipe.to_json() if isinstance(model, Transformer) else None
        return {
            "model": recipe or type(model).__name__,
            "parameters": sum(p.numel() for p in model.parameters() if p.requires_grad),
            "training": self.training.to_json(),
            "task": self.task.facts(),
            "seed": self.seed,
            "run": self.run_name,
        }

    def _save(self) -> None:
        if self.folder is None:
            return
        self._memory.seconds = self._seconds_before + time.perf_counter() - self._started
        buffers = {f"buffer.{name}": b.clone() for name, b in self.model.named_buffers()}
        state = {f"optimizer.{name}": t for name, t in self._optimizer.state().items()}
        random = {"random.cpu": torch.random.get_rng_state()}
        if self.device.type == "cuda":
            random["random.cuda"] = torch.cuda.get_rng_state(self.device)
        write_checkpoint(
            self.folder,
            Checkpoint(
                run=self._identity(),
                state=vars(self._memory),
                tensors={**buffers, **state, **random},
                readings=self.readings,
            ),
        )
        self.saved_rows = len(self.readings)

    def _resume(self) -> None:
        if self.folder is None:
            return
        checkpoint = read_checkpoint(self.folder, self._identity())
        if checkpoint is None:
            return
        self._memory = _RunState(**checkpoint.state)
        self.readings = list(checkpoint.readings)
        self.saved_rows = len(self.readings)
        tensors = checkpoint.tensors
        self._optimizer.load(_under("optimizer.", tensors))
        self._random = tensors["random.cpu"]
        self._cuda_random = tensors.get("random.cuda")
        buffers = dict(self.model.named_buffers())
        with torch.no_grad():
            for name, value in _under("buffer.", tensors).items():
                buffers[name].copy_(value)

    @contextmanager
    def _own_random_numbers(self) -> Iterator[None]:
        """Use the random state of the run inside; restore the caller's afterwards."""
        devices = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            torch.random.set_rng_state(self._random)
            if devices:
                state = getattr(self, "_cuda_random", None)
                if state is None:
                    torch.cuda.manual_seed(self.seed)
                else:
                    torch.cuda.set_rng_state(state, self.device)
            try:
                yield
            finally:
                self._random = torch.random.get_rng_state()


def _pieces(batch: Batch, examples: int) -> Iterator[Batch]:
    for ids, targets in zip(batch.ids.split(examples), batch.targets.split(examples), strict=True):
        yield Batch(ids, targets)


def _on(device: torch.device, batch: Batch) -> Batch:
    if device.type == "cpu":
        return batch
    return replace(batch, ids=batch.ids.to(device), targets=batch.targets.to(device))


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors whose names begin with a prefix, by the rest of their names."""
    return {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}


def _width(model: nn.Module) -> int | None:
    return model.recipe.width if isinstance(model, Transformer) else None
