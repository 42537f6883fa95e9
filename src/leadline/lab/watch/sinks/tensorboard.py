"""TensorBoard, by torch's own writer: scalars under `leadline/`, warnings as texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.errors import require
from leadline.lab.watch.sinks.sink import SINKS, warning_text
from leadline.record import Finding

__all__ = ["TensorBoardSink"]


@SINKS.register("tensorboard")
class TensorBoardSink:
    """Writes event files to a folder, `runs/leadline` unless another one is given."""

    def __init__(self, folder: str = "runs/leadline") -> None:
        require("tensorboard", extra="tensorboard")  # torch's own error does not name it
        torch_tensorboard: Any = require("torch.utils.tensorboard", extra="tensorboard")
        self._writer = torch_tensorboard.SummaryWriter(log_dir=folder)

    def write(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def warn(self, finding: Finding) -> None:
        step = finding.details.get("step")
        self._writer.add_text(f"leadline/warning/{finding.code}", warning_text(finding), step)
        self._writer.flush()  # what is waiting is lost if the loop dies of what was warned of

    def close(self) -> None:
        self._writer.close()
