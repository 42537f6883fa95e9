"""How gradients travel through depth, at initialisation and in training."""

from __future__ import annotations

from leadline.experiments.gradient_flow.experiment import gradient_flow
from leadline.experiments.options.gradient_flow import GradientFlowOptions

__all__ = ["GradientFlowOptions", "Setting", "gradient_flow"]

Setting = GradientFlowOptions
"""What the options were called in version 0.1.0."""
