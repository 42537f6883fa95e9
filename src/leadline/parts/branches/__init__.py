"""What computes: attention and MLP, one file each."""

from __future__ import annotations

from leadline.parts.branches.branch import ATTENTIONS, MLPS, Branch, Run

__all__ = ["ATTENTIONS", "MLPS", "Branch", "Run"]
