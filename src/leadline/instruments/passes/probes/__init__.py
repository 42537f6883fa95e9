"""The probes: one quantity or family of quantities per file, added by one decorator."""

from __future__ import annotations

from leadline.instruments.passes.probe import PROBES, At, Each, PerToken, Single
from leadline.instruments.passes.probe_plan import DEFAULT, Plan, plan

__all__ = ["DEFAULT", "PROBES", "At", "Each", "PerToken", "Plan", "Single", "plan"]
