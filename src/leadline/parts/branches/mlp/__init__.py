"""Multilayer perceptrons: one file per kind. `Plain` and `Gated` are what a new one starts from."""

from __future__ import annotations

from leadline.parts.branches.mlp.perceptron import Gated, Plain

__all__ = ["Gated", "Plain"]
