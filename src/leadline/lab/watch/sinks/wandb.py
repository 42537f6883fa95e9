"""Weights & Biases: into the run that the loop has started, or into one of its own.

W&B counts rows, and drops what is logged with a smaller `step=` than the last row has. So a monitor
that adds rows can cost a loop its own numbers. Here a sample joins the row that is open, gets a row
of its own only where that row already holds a sample, and there are never more rows than updates:
a loop that gives no step, or one whose `step=` counts updates or anything finer, loses nothing.
A loop whose `step=` counts something coarser, such as epochs, needs `wandb(commit=false)`: then of
several samples between two of its rows the last one is kept.

The axis of `leadline/*` is `leadline/step`, the number of the update.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.errors import require
from leadline.lab.watch.sinks.sink import SINKS, warning_text
from leadline.record import Finding

__all__ = ["WandbSink"]

STEP = "leadline/step"


@SINKS.register("wandb")
class WandbSink:
    """Logs to the active run of W&B; starts one in `project` where there is none."""

    def __init__(
        self, project: str = "leadline", run: str | None = None, commit: bool = True
    ) -> None:
        self._wandb: Any = require("wandb", extra="wandb")
        self._project = project
        self._run_name = run
        self._commit = commit
        self._run: Any = None
        self._is_own = False
        self._row: int | None = None
        """The row that holds the last sample, while it may still be open."""

    def write(self, step: int, values: Mapping[str, float]) -> None:
        run = self._active_run()
        # A loop counts its steps from 0 as a rule: its next one is step - 1.
        if self._commit and self._row == run.step and run.step + 1 <= step - 1:
            run.log({}, commit=True)
        self._row = run.step
        run.log({STEP: step, **values}, commit=False)

    def warn(self, finding: Finding) -> None:
        level = "ERROR" if finding.severity == "serious" else "WARN"
        title = f"leadline {finding.code} {finding.name}".rstrip()
        self._active_run().alert(title=title, text=warning_text(finding), level=level)

    def close(self) -> None:
        run, self._run = self._run, None
        if run is not None and self._is_own:
            run.finish()

    def _active_run(self) -> Any:
        if self._run is None:
            self._is_own = self._wandb.run is None
            # Beside wandb.run, so that a run which the loop starts later is not taken for it.
            self._run = self._wandb.run or self._wandb.init(
                project=self._project, name=self._run_name, reinit="create_new"
            )
            self._run.define_metric(STEP, hidden=True)
            self._run.define_metric("leadline/*", step_metric=STEP)
        return self._run
