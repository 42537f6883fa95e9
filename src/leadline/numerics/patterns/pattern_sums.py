"""One pass over blocks of rows: what is added up, and the proof that they are the right ones.

The formulas stand in `patterns`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from leadline.numerics.patterns.matrix_group import MatrixGroup, ModelPattern
from leadline.numerics.spectra.attention_rows import Softmax

__all__ = ["Sums", "add_block", "miss_in_eps", "proof_vectors"]

Tensor = torch.Tensor
ALTERED = 1e-4
"""Weights that differ by more from the softmax of their logits have been changed after it."""
_SIGNS = 4
"""Random sign vectors w that A V w and the output are compared by."""
_COARSEST = 1e-2
"""Rounding beyond this proves nothing any more."""


@dataclass
class Sums:
    """What the pass over the rows adds up: [matrix] or [example]."""

    columns: Tensor
    entropy: Tensor
    variance: Tensor
    span: Tensor
    sink: Tensor
    distance: Tensor
    divergence: Tensor
    missing: int = 0
    uneven: float = 0.0
    largest: Tensor | None = None
    excess: float = -1.0
    lowest: float = 0.0
    altered: bool = False
    broken: bool = False
    doubtful: bool = False
    counts: list[Tensor] = field(default_factory=list[Tensor])
    triangle: bool = True


def add_block(sums: Sums, block: Softmax, *, group: MatrixGroup) -> None:
    """Take one block of rows in. No step here branches entry by entry: that would cost most."""
    first, top, shifted, partition, weights = block
    rows, keys = weights.shape[1:]
    device, dtype = weights.device, weights.dtype
    by_model = isinstance(group.matrices, ModelPattern)
    sight = group.sight(block)
    visible, empty = sight.visible, sight.empty
    sums.doubtful = sums.doubtful or sight.doubtful
    count = visible.sum(-1)
    broken = ~torch.isfinite(top[..., 0]) & ~empty
    sums.broken = sums.broken or bool(broken.any())
    sums.missing += int(empty.sum())
    # What is hidden is -inf or very low: brought to a finite number, times zero.
    shifted.clamp_(min=torch.finfo(dtype).min).mul_(visible.to(dtype))
    total = weights.sum(-1)
    sums.excess = max(sums.excess, float((total.nan_to_num(0.0) - 1).max()))
    if by_model:
        sums.lowest = min(sums.lowest, float(weights.amin().nan_to_num(0.0)))
    off = torch.where(empty | broken, 0.0, (total - 1).abs()).amax()
    sums.uneven = max(sums.uneven, float(off))
    span = -shifted.amin(-1)
    size = torch.where(empty | broken, 0.0, top[..., 0].abs() + span).amax(1).double()
    assert sums.largest is not None
    sums.largest = torch.maximum(sums.largest, size)
    sums.columns[:, :keys] += weights.sum(1)
    if by_model and not sums.altered:
        sums.altered = _is_altered(group, weights, shifted, visible, total, empty | broken)
    if sums.altered:
        entropy = torch.special.entr(weights).sum(-1)
    else:
        # -log A = log(sum exp) - l.
        entropy = partition[..., 0].log() * total - (weights * shifted).sum(-1)
    sums.entropy += entropy.double().sum(1)
    mean = shifted.sum(-1) / count.clamp_min(1)
    square = torch.linalg.vector_norm(shifted, dim=-1).square() / count.clamp_min(1)
    sums.variance += (square - mean * mean).clamp_min(0).double().sum(1)
    # A maximum forgets NaN on some devices; a sum does not.
    span = span.amax(1).double() + 0.0 * span.double().sum(1)
    sums.span = torch.maximum(sums.span, span) + 0.0 * span
    later = weights[:, 1:, 0] if first == 0 else weights[..., 0]
    sums.sink += later.double().sum(1)
    i = torch.arange(first, first + rows, device=device)
    j = torch.arange(keys, device=device)
    lower = i.unsqueeze(1) >= j
    sums.triangle = sums.triangle and bool((visible == lower).all())
    if sums.triangle:
        # Nothing lies ahead: the distance is the row's place less the mean place of its keys.
        apart = i * total - weights @ j.to(dtype)
    else:
        apart = (weights * (i.unsqueeze(1) - j).abs().to(dtype)).sum(-1)
    sums.distance += apart.double().sum(1)
    # A row that sees nothing in one example must not count as such in the others.
    sums.counts.append(torch.where(count == 0, group.keys, count).amin(0))
    mixed = weights.reshape(-1, group.heads, rows, keys).mean(1)
    mixed = -(mixed * mixed.clamp_min(torch.finfo(dtype).tiny).log()).sum(-1)
    separate = entropy.reshape(-1, group.heads, rows).mean(1)
    sums.divergence += (mixed - separate).double().sum(1)


def _is_altered(
    group: MatrixGroup,
    weights: Tensor,
    shifted: Tensor,
    visible: Tensor,
    total: Tensor,
    unknown: Tensor,
) -> bool:
    """Whether weights are not in proportion to exp(logits), as softmax makes them.

    A sink takes the same share from all weights of a row.
    """
    assert isinstance(group.matrices, ModelPattern)
    exponentials = shifted.exp() * visible.to(shifted.dtype)
    share = (total / exponentials.sum(-1)).unsqueeze(-1)
    apart = (weights - share * exponentials).abs().amax(-1)
    rounding = 2 * torch.finfo(group.matrices.weights.dtype).eps
    return float(torch.where(unknown, 0.0, apart).max()) > max(ALTERED, rounding)


def proof_vectors(group: MatrixGroup) -> tuple[Tensor, Tensor] | tuple[None, None]:
    """The values times random signs, and the output times them."""
    if group.value is None or group.output is None:
        return None, None
    features = group.value.shape[-1]
    if group.value.shape[:3] != (*group.output.shape[:2], group.keys):
        return None, None
    if group.output.shape[-1] != features or group.output.shape[2] != group.queries:
        return None, None
    generator = torch.Generator().manual_seed(0)
    signs = torch.randint(0, 2, (features, _SIGNS), generator=generator) * 2 - 1
    signs = signs.to(dtype=group.dtype, device=group.value.device)
    return (
        (group.value.to(group.dtype) @ signs).flatten(0, 1),
        (group.output.to(group.dtype) @ signs).flatten(0, 1),
    )


def miss_in_eps(misses: Tensor, sizes: Tensor, largest: Tensor, group: MatrixGroup) -> float:
    """|A V w - O w| / |A V w| of the worst matrix, in units of rounding; NaN where not finite."""
    output_eps = torch.finfo(group.attention.output.dtype).eps
    logit = torch.finfo(group.dtype).eps * (1 + largest)
    unit = logit.clamp(min=output_eps, max=max(output_eps, _COARSEST))
    # Values that are all zero prove nothing, and nothing can be wrong then.
    relative = torch.where(misses == 0, 0.0, misses / sizes)
    return float((relative / unit).max())
