"""MLflow: into the run that the loop has started, or into one of its own.

Metrics are sent from MLflow's own thread, so that a slow server does not slow the loop. A run of
its own is not left active: `mlflow.start_run()` of the loop would be refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.errors import require
from leadline.lab.watch.sinks.sink import SINKS, warning_text
from leadline.record import Finding

__all__ = ["MlflowSink"]

LONGEST_TAG = 5000
"""MLflow refuses tags with more characters."""


@SINKS.register("mlflow")
class MlflowSink:
    """Logs metrics to the active run of MLflow; creates a run where there is none."""

    def __init__(self, run: str | None = None) -> None:
        self._mlflow: Any = require("mlflow", extra="mlflow")
        self._run_name = run
        self._run: str | None = None
        self._is_own = False

    def write(self, step: int, values: Mapping[str, float]) -> None:
        self._mlflow.log_metrics(
            dict(values), step=step, run_id=self._active_run(), synchronous=False
        )

    def warn(self, finding: Finding) -> None:
        step = finding.details.get("step", 0)
        tag = f"leadline.warning.{finding.code or 'note'}.{step}"
        client = self._mlflow.MlflowClient()
        client.set_tag(self._active_run(), tag, warning_text(finding)[:LONGEST_TAG])

    def close(self) -> None:
        if self._run is None:
            return
        self._mlflow.flush_async_logging()
        if self._is_own:
            self._mlflow.MlflowClient().set_terminated(self._run)
        self._run = None

    def _active_run(self) -> str:
        if self._run is None:
            active = self._mlflow.active_run()
            self._is_own = active is None
            if active is None:
                active = self._mlflow.start_run(run_name=self._run_name)
                self._mlflow.end_run(status="RUNNING")
            self._run = str(active.info.run_id)
        return self._run
