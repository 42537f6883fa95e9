"""Published and noted experiments, done again; `options` has one file for each."""

from __future__ import annotations

from leadline.experiments.experiment import EXPERIMENTS, ExperimentOptions, option

__all__ = ["EXPERIMENTS", "ExperimentOptions", "option"]
