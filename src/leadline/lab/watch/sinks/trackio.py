"""Trackio: into the run that the loop has started, or into one of its own.

Trackio takes steps in any order, so samples are logged at the number of their update.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.errors import require
from leadline.lab.watch.sinks.sink import SINKS, warning_text
from leadline.record import Finding

__all__ = ["TrackioSink"]


@SINKS.register("trackio")
class TrackioSink:
    """Logs to the active run of Trackio; starts one in `project` where there is none."""

    def __init__(self, project: str = "leadline", run: str | None = None) -> None:
        self._trackio: Any = require("trackio", extra="trackio")
        self._project = project
        self._run_name = run
        self._run: Any = None
        self._is_own = False

    def write(self, step: int, values: Mapping[str, float]) -> None:
        self._active_run().log(dict(values), step=step)

    def warn(self, finding: Finding) -> None:
        levels = self._trackio.AlertLevel
        self._active_run().alert(
            title=f"leadline {finding.code} {finding.name}".rstrip(),
            text=warning_text(finding),
            level=levels.ERROR if finding.severity == "serious" else levels.WARN,
        )

    def close(self) -> None:
        run, self._run = self._run, None
        if run is None or not self._is_own:
            return
        if self._trackio.context_vars.current_run.get() is run:
            self._trackio.finish()  # a run that has only been finished would stay the active one
        else:
            run.finish()

    def _active_run(self) -> Any:
        if self._run is None:
            active = self._trackio.context_vars.current_run.get()
            self._is_own = active is None
            self._run = active or self._trackio.init(
                project=self._project, name=self._run_name, resume="allow"
            )
        return self._run
