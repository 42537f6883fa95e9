"""Sweeps that answer a common question: one file each, a function of `quick` that returns a Sweep."""

from __future__ import annotations

from leadline.lab.presets._preset import PRESETS, Preset

__all__ = ["PRESETS", "Preset"]
