"""Published and noted experiments, done again: one file per experiment."""

from __future__ import annotations

from leadline.reproduce._experiment import EXPERIMENTS

__all__ = ["EXPERIMENTS"]
