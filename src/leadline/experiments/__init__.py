"""Published and noted experiments, done again: one file each, or one folder."""

from __future__ import annotations

from leadline.experiments.experiment import EXPERIMENTS, ExperimentOptions, option

__all__ = ["EXPERIMENTS", "ExperimentOptions", "option"]
