"""Training with layers left out, and models that lose layers afterwards."""

from __future__ import annotations

from leadline.experiments.layer_dropping.experiment import layer_dropping
from leadline.experiments.options.layer_dropping import LayerDroppingOptions

__all__ = ["LayerDroppingOptions", "Setting", "layer_dropping"]

Setting = LayerDroppingOptions
"""What the options were called in version 0.1.0."""
