"""What a model is trained on: one file per task, one decorator to add it."""

from __future__ import annotations

from leadline.lab.tasks._batch import Batch
from leadline.lab.tasks._drawn import Drawn
from leadline.lab.tasks._entropies import Entropies
from leadline.lab.tasks._task import TASKS, Task, build_task

__all__ = ["TASKS", "Batch", "Drawn", "Entropies", "Task", "build_task"]
