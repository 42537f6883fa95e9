"""Watch somebody's training loop: one line, and gauges of every layer stand in a record.

    ll.watch(model, optimizer, "run.leadline", every=50)

Here is what users call; `beginning` sets up what they asked for, and `course` follows the loop, one
update after the other.

Whatever goes wrong in here becomes a note (`notes`) and a line in the log; the loop never sees it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from torch import nn

from leadline.anatomy import Anatomy, Declaration
from leadline.lab.watch.beginning import Options, begin_course
from leadline.lab.watch.course import WatchCourse
from leadline.lab.watch.fence import Fence
from leadline.lab.watch.pace import Overhead, Pace
from leadline.lab.watch.register import REGISTER
from leadline.record import Finding, Record

__all__ = ["Watch", "watch"]


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
    one writes what all of them read. `should_stop` and `stop` are the same in all of them, as the
    first one has it.

    Nothing that goes wrong in here stops the training: what cannot be watched is said once, in the
    log and in `notes`. With `strict` wrong arguments raise an error instead.
    """
    options = Options(
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
    return Watch(model, optimizer, path, options)


class Watch:
    """A run that is being watched. As a context manager it ends with its block, else with the process.

    `notes` are sentences about what could not be watched, `warnings` what alarms said so far.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Any,
        path: str | PathLike[str] | None,
        options: Options,
    ) -> None:
        self._fence = Fence(quiet=options.quiet)
        self._course: WatchCourse | None = None
        self._options = options
        self._closed = False
        self._left_alone: WatchCourse | None = None
        try:
            self._course = begin_course(model, optimizer, path, options, self._fence)
            REGISTER.enter(self)
            self._course.watch = self
        except Exception as error:
            self._closed = True
            self._fence.switch_off(f"{error} The run is not watched; training continues.")
            if options.strict:
                raise

    # --- how it goes ---------------------------------------------------------------------------------

    @property
    def every(self) -> int:
        """How many updates lie between two samples."""
        return self._options.every if self._course is None else self._course.every

    @property
    def step(self) -> int:
        """How many updates the model has had."""
        return 0 if self._course is None else self._course.step

    @property
    def updates_made(self) -> int:
        """The same, with an update of which only the next pass says that it is over."""
        return 0 if self._course is None else self._course.updates_made

    @property
    def active(self) -> bool:
        """Whether anything is being watched."""
        return not (self._closed or self._fence.off)

    @property
    def path(self) -> Path | None:
        """The file of the record, as it was given."""
        return None if self._course is None else self._course.path

    @property
    def place(self) -> Path | None:
        """The file of the record, wherever the loop has gone since."""
        return None if self._course is None else self._course.place

    @property
    def record(self) -> Record | None:
        """The record that is being written; None in processes that write none."""
        return None if self._course is None else self._course.record

    @property
    def notes(self) -> list[str]:
        """What could not be watched, and why."""
        return list(self._fence.notes)

    @property
    def warnings(self) -> list[Finding]:
        """What alarms have said so far."""
        return [] if self._course is None else self._course.warnings

    @property
    def should_stop(self) -> bool:
        """Whether a serious warning was said: for loops that look before they go on."""
        return self._course is not None and self._course.should_stop

    @property
    def overhead(self) -> Overhead:
        """What watching has cost so far."""
        return Pace().overhead() if self._course is None else self._course.overhead

    # --- what the loop may say -------------------------------------------------------------------------

    def loss(self, value: Any) -> None:
        """Name the loss of the update under way, where backward is called on something else."""
        if self._course is not None:
            self._course.name_loss(value)

    def batch(self, ids: object) -> None:
        """Name the batch of the update under way: warnings and snapshots say which came last."""
        if self._course is not None:
            self._course.name_batch(ids)

    def close(self, error: BaseException | None = None) -> None:
        """End the watch: take everything off the loop, write what is left, say what it cost.

        `error` is what ended the training, for the record to say so.
        """
        self._closed = True
        if self._course is not None:  # again, where hooks could not be taken off inside of a step
            self._fence.shield(self._course.close)(error)
        self._fence.shield(REGISTER.leave)(self)

    def disown(self) -> None:
        """Do nothing more, and leave the file alone: it is that of the process that this one left."""
        self._closed = True
        self._fence.off = True
        self._left_alone, self._course = self._course, None

    def __repr__(self) -> str:
        state = "closed" if self._closed else "off" if self._fence.off else "open"
        where = "no file" if self.path is None else str(self.path)
        return f"<Watch of step {self.step}, every {self.every}, {state}, {where}>"

    def __deepcopy__(self, memo: dict[int, Any]) -> Watch:
        return self  # the copy of a model that holds it is not what is trained

    def __reduce__(self) -> tuple[Any, ...]:
        return _ended, ()  # hooks, locks and files stay with the process

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, kind: object, error: BaseException | None = None, *_: object) -> None:
        self.close(error)

    def __del__(self) -> None:
        """End with the model and its optimizer, where nobody closes it."""
        if not getattr(self, "_closed", True):
            self.close()


def _ended() -> Watch:
    """A watch that is over: what a model that held one has when it is loaded from a file."""
    one = Watch.__new__(Watch)
    one._options, one._fence = Options(), Fence(quiet=True)
    one._course = one._left_alone = None
    one._closed = True
    return one
