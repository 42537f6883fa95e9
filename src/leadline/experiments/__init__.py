"""Published and noted experiments, done again: one file per experiment."""

from __future__ import annotations

from leadline.experiments.experiment import EXPERIMENTS

__all__ = ["EXPERIMENTS"]
