"""The note's experiment without the truth beside it: forward passes of its own modules alone."""

from __future__ import annotations

import torch

from leadline.experiments.rank_collapse.experiment import VARIANTS, Setting
from leadline.experiments.rank_collapse.note_block import note_blocks

__all__ = ["note_ends", "sample_curves"]


def note_ends() -> dict[str, float]:
    """The mean residual after the last layer of every variant, with the note's seed in float32."""
    return {name: float(curve[-1].mean()) for name, curve in _drawn(Setting()).items()}


def sample_curves(seed: int) -> dict[str, torch.Tensor]:
    """The residual of every sample, [layer, sample], of every variant."""
    return _drawn(Setting(seed=seed))


def _drawn(setting: Setting) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = {}
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.default_generator.manual_seed(setting.seed)
        for name, (skip, mlp) in VARIANTS.items():
            blocks = note_blocks(
                setting.depth,
                setting.width,
                setting.heads,
                mlp=mlp,
                skip=skip,
                norm=setting.norm,
                causal=setting.causal,
            )
            x = torch.randn(setting.samples, setting.tokens, setting.width)
            curve = [_residual(x)]
            for block in blocks:
                x = block(x)
                curve.append(_residual(x))
            found[name] = torch.stack(curve)
    return found


def _residual(x: torch.Tensor) -> torch.Tensor:
    return (x - x.mean(1, keepdim=True)).flatten(1).norm(dim=1)
