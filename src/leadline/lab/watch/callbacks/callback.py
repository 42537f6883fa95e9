"""One callback for the Trainer of transformers and for Lightning.

    transformers.Trainer(..., callbacks=[ll.LeadlineCallback("run.leadline")])
    lightning.Trainer(..., callbacks=[ll.LeadlineCallback("run.leadline")])

It starts a watch when the trainer has model and optimizer, counts from the trainer's own step, so that
a run that is resumed goes on in the same record, and ends the watch with the training. Validation in
between is not sampled: it asks for no gradients.

Both libraries are optional and want a base class of their own: `bases` has it. What else they ask for:

- transformers calls `on_train_end` only where training ends well. After an exception the watch stays
  open until the process ends or the same file is watched again; nothing of it is lost. Use the
  callback as a context manager to end it with a block.
- Lightning calls `on_exception`.
- Both ask a flag whether to stop; every process must set it, or the others wait for ever.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from torch import nn

from leadline.anatomy import Anatomy, Declaration
from leadline.lab.watch.callbacks.bases import bases_in_use, plain_class, with_bases
from leadline.lab.watch.callbacks.trained import called_module, ids_in, optimizers_of
from leadline.lab.watch.fence import let_signals_pass, log
from leadline.lab.watch.watch import Watch, watch
from leadline.record import Finding

__all__ = ["LeadlineCallback"]

_open: weakref.WeakValueDictionary[Path, LeadlineCallback] = weakref.WeakValueDictionary()
"""The callbacks of this process whose watch is open, by file."""


class LeadlineCallback:
    """Watches the training of a `transformers.Trainer` or a Lightning `Trainer`.

    `module` is the path of the module to watch inside of the trained one, such as "model"; it is
    needed where a LightningModule calls something else than its `forward` or its only child. All
    other options are those of `leadline.watch`; with `stop` the trainer is asked to end.
    """

    def __new__(cls, *_args: Any, **_options: Any) -> LeadlineCallback:
        return object.__new__(with_bases(cls, bases_in_use()))

    def __init__(
        self,
        path: str | PathLike[str] | None,
        every: int = 50,
        *,
        module: str | None = None,
        probes: str | Sequence[Any] | None = None,
        attention: bool = False,
        anatomy: Anatomy | Declaration | None = None,
        probe: Any = None,
        sinks: Any = (),
        on_warning: Callable[[Finding], object] | None = None,
        stop: bool = False,
        snapshot: bool = False,
        name: str | None = None,
        quiet: bool = False,
    ) -> None:
        self.path = path
        self.every = every
        self.module = module
        self.stop = stop
        self.snapshot = snapshot
        self._options: dict[str, Any] = {
            "probes": probes,
            "attention": attention,
            "anatomy": anatomy,
            "probe": probe,
            "sinks": sinks,
            "on_warning": on_warning,
            "name": name,
            "quiet": quiet,
        }
        self.watch: Watch | None = None
        """The watch of the training under way, or of the last one."""
        self._batches: list[str] = []
        self._made: int | None = None
        """How many updates there were before, as a checkpoint of Lightning says."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Lightning sends callbacks to the processes that it starts; classes made here cannot be sent.
        options = {"module": self.module, "stop": self.stop, "snapshot": self.snapshot}
        return _rebuild, (plain_class(type(self)), self.path, self.every, options | self._options)

    @property
    def notes(self) -> list[str]:
        """What could not be watched, and why."""
        return [] if self.watch is None else self.watch.notes

    @property
    def warnings(self) -> list[Finding]:
        """What alarms have said so far."""
        return [] if self.watch is None else self.watch.warnings

    def close(self) -> None:
        """End the watch; the trainers' own end does it, too."""
        if self.watch is not None:
            self.watch.close()

    def __enter__(self) -> LeadlineCallback:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def start(self, model: nn.Module, optimizer: Any, *, step: int) -> None:
        """Begin to watch; `step` updates have been made before."""
        self.close()
        if self.path is not None:
            file = Path(self.path).absolute()
            if (other := _open.get(file)) is not None:
                other.close()  # of a training that an exception ended
            _open[file] = self
        self.watch = watch(
            model,
            optimizer,
            self.path,
            every=self.every,
            start=step,
            snapshot=self.snapshot,
            **self._options,
        )

    def _stops(self) -> bool:
        """Whether to end the training: the watch says the same in all processes."""
        return self.stop and self.watch is not None and self.watch.should_stop

    def _name_batch(self, name: str, *, first: bool) -> None:
        """Name the batch for snapshots, after those that the same update has accumulated."""
        self._batches = [name] if first else [*self._batches, name]
        if self.watch is not None:
            self.watch.batch("; ".join(self._batches))

    # --- transformers ------------------------------------------------------------------------------

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Start where model and optimizer are ready: after a checkpoint has been loaded."""
        _fenced(self._start_in_transformers, state, given)

    def _start_in_transformers(self, state: Any, given: Mapping[str, Any]) -> None:
        model = given["model"]
        if self.module is not None:
            model = model.get_submodule(self.module)
        self.start(model, given.get("optimizer"), step=int(state.global_step))

    def on_step_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Name the batches that the next update takes; callbacks do not get to see them."""
        if self.snapshot:
            _fenced(self._name_in_transformers, args, state, given)

    def _name_in_transformers(self, args: Any, state: Any, given: Mapping[str, Any]) -> None:
        count = args.gradient_accumulation_steps
        try:
            length = len(given["train_dataloader"])
        except TypeError:  # a stream has no length: its only epoch is the whole run
            length = state.max_steps * count
        epoch, done = divmod(float(state.epoch or 0.0), 1.0)
        first = round(done * length)
        last = min(first + count, length) - 1
        batches = f"batch {first}" if last == first else f"batches {first} to {last}"
        self._name_batch(f"epoch {int(epoch)}, {batches}", first=True)

    def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> Any:
        """Ask the trainer to stop after a serious warning."""
        if _fenced(self._stops):
            control.should_training_stop = True
        return control

    # --- Lightning ---------------------------------------------------------------------------------

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Start where model and optimizer are ready: after a checkpoint has been loaded."""
        _fenced(self._start_in_lightning, trainer, pl_module)

    def _start_in_lightning(self, trainer: Any, pl_module: Any) -> None:
        module, optimizers = called_module(pl_module, self.module), list(trainer.optimizers)
        # Lightning counts the steps of all optimizers together.
        step = int(trainer.global_step) // max(1, len(optimizers))
        made, self._made = self._made, None
        # What steps other modules alone makes no update of this one.
        self.start(
            module,
            optimizers_of(module, optimizers),
            step=made if made is not None and step else step,
        )

    @property
    def state_key(self) -> str:
        """Under which Lightning keeps the state: several callbacks may watch several modules."""
        return f"LeadlineCallback(path={str(self.path)!r}, module={self.module!r})"

    def state_dict(self) -> dict[str, Any]:
        """What Lightning keeps in a checkpoint: how many updates there were.

        Its own count of steps does not tell, where several optimizers step together or in turn.
        """
        return {} if self.watch is None else {"updates": self.watch.updates_made}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take up what a checkpoint holds."""
        made = state_dict.get("updates")
        self._made = made if isinstance(made, int) else None

    def on_train_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int
    ) -> None:
        """Name the batch, by what it says about itself and by its number."""
        if self.snapshot:
            _fenced(self._name_in_lightning, trainer, batch, batch_idx)

    def _name_in_lightning(self, trainer: Any, batch: Any, number: int) -> None:
        words = [f"epoch {trainer.current_epoch}", f"batch {number}", ids_in(batch)]
        first = number % max(1, trainer.accumulate_grad_batches) == 0
        self._name_batch(", ".join(word for word in words if word), first=first)

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Ask the trainer to stop after a serious warning."""
        if _fenced(self._stops):
            trainer.should_stop = True

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """End the watch."""
        self.close()

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """End the watch, whatever has ended the training."""
        self.close()

    # --- both ----------------------------------------------------------------------------------------

    def on_train_end(self, *_args: Any, **_given: Any) -> None:
        """End the watch. Both libraries call it, with arguments of their own."""
        self.close()


def _fenced(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function of ours; its faults go to the log and not to the trainer."""
    try:
        return function(*args)
    except Exception as error:
        let_signals_pass(error)
        log.warning(
            "leadline.watch: the callback failed; training continues: %s: %s",
            type(error).__name__,
            error,
        )
        return None


def _rebuild(
    cls: type[LeadlineCallback], path: Any, every: int, options: dict[str, Any]
) -> LeadlineCallback:
    return cls(path, every, **options)
