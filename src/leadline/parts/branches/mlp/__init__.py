"""Multilayer perceptrons. `Plain` and `Gated` are what a new one starts from; `kinds` has them all."""

from __future__ import annotations

from leadline.parts.branches.mlp.perceptron import Gated, Plain

__all__ = ["Gated", "Plain"]
