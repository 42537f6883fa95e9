"""One pass over blocks of rows: what is added up, and the proof that they are the right ones.

The formulas stand in `patterns`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from leadline.numerics.patterns.matrix_group import MatrixGroup, ModelPattern
from leadline.numerics.spectra.attention_rows import Softmax

__all__ = ["ProofVectors", "Sums", "add_block", "miss_in_eps", "proof_vectors"]

Tensor = torch.Tensor
ALTERED = 1e-4
"""Weights that differ by more from the softmax of their logits have been changed after it."""
_SIGNS = 4
"""Random sign vectors w that A V w and the output are compared by."""
_COARSEST = 1e-2
"""Rounding beyond this proves nothing any more."""


@dataclass
class Sums:
    """What the pass over the rows adds up, on the device of the matrices.

    [matrix] and [example] in float64, flags as tensors without a shape. Only weights that the model
    computed itself can be `altered` or `doubtful`, which decides how the pass goes on.
    """

    columns: Tensor
    entropy: Tensor
    variance: Tensor
    span: Tensor
    sink: Tensor
    distance: Tensor
    divergence: Tensor
    largest: Tensor
    misses: Tensor
    sizes: Tensor
    missing: Tensor
    uneven: Tensor
    excess: Tensor
    lowest: Tensor
    broken: Tensor
    triangle: Tensor
    altered: bool = False
    doubtful: bool = False
    counts: list[Tensor] = field(default_factory=list[Tensor])

    @staticmethod
    def empty(group: MatrixGroup) -> Sums:
        """Nothing added up yet."""
        matrices, device = len(group.members) * group.heads, group.device
        each = torch.zeros(8, matrices, dtype=torch.float64, device=device)
        numbers = torch.zeros(4, dtype=torch.float64, device=device)
        flags = torch.zeros(2, dtype=torch.bool, device=device)
        entropy, variance, span, sink, distance, largest, misses, sizes = each
        return Sums(
            columns=torch.zeros(matrices, group.keys, dtype=torch.float64, device=device),
            entropy=entropy,
            variance=variance,
            span=span,
            sink=sink,
            distance=distance,
            divergence=torch.zeros(len(group.members), dtype=torch.float64, device=device),
            largest=largest,
            misses=misses,
            sizes=sizes,
            missing=numbers[0],
            uneven=numbers[1],
            excess=numbers[2] - 1,
            lowest=numbers[3],
            broken=flags[0],
            triangle=~flags[1],
        )


def add_block(
    sums: Sums, block: Softmax, vectors: ProofVectors | None, *, group: MatrixGroup
) -> None:
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
    unknown = empty | broken
    sums.broken = sums.broken | broken.any()
    sums.missing = sums.missing + empty.sum()
    # What is hidden is -inf or very low: brought to a finite number, times zero.
    shifted.clamp_(min=torch.finfo(dtype).min).mul_(visible.to(dtype))
    total = weights.sum(-1)
    above = total - 1
    sums.excess = torch.maximum(sums.excess, above.nan_to_num(-1.0).amax())
    sums.uneven = torch.maximum(sums.uneven, above.abs().masked_fill(unknown, 0.0).amax())
    if by_model:
        sums.lowest = torch.minimum(sums.lowest, weights.amin().nan_to_num(0.0))
    span = -shifted.amin(-1)
    size = (top[..., 0].abs() + span).masked_fill(unknown, 0.0).amax(1)
    sums.largest = torch.maximum(sums.largest, size)
    sums.columns[:, :keys] += weights.sum(1)
    if by_model and not sums.altered:
        sums.altered = _is_altered(group, weights, shifted, visible, total, unknown)
    known = count.clamp_min(1)
    mean = shifted.sum(-1) / known
    square = torch.linalg.vector_norm(shifted, dim=-1).square() / known
    sums.variance += (square - mean * mean).clamp_min(0).double().sum(1)
    if sums.altered:
        entropy = torch.special.entr(weights).sum(-1)
    else:
        # -log A = log(sum exp) - l. In place: new memory costs more than the product.
        entropy = partition[..., 0].log() * total - shifted.mul_(weights).sum(-1)
    sums.entropy += entropy.double().sum(1)
    # A maximum forgets NaN on some devices; a sum does not.
    span = span.amax(1).double() + 0.0 * span.double().sum(1)
    sums.span = torch.maximum(sums.span, span) + 0.0 * span
    later = weights[:, 1:, 0] if first == 0 else weights[..., 0]
    sums.sink += later.double().sum(1)
    i = torch.arange(first, first + rows, device=device)
    j = torch.arange(keys, device=device)
    sums.triangle = sums.triangle & (visible == (i.unsqueeze(1) >= j)).all()
    if group.ordered:
        # Nothing lies ahead: the distance is the row's place less the mean place of its keys.
        apart = i * total - weights @ j.to(dtype)
    else:
        apart = (weights * (i.unsqueeze(1) - j).abs().to(dtype)).sum(-1)
    sums.distance += apart.double().sum(1)
    if vectors is not None:
        # Few rows times a transposed matrix: four times faster than the matrix times few columns.
        image = torch.bmm(vectors.image[..., :keys], weights.mT)
        miss = image - vectors.expected[..., first : first + rows]
        sums.misses += miss.double().square().sum((1, 2))
        sums.sizes += image.double().square().sum((1, 2))
    # A row that sees nothing in one example must not count as such in the others.
    sums.counts.append(count.masked_fill(count == 0, group.keys).amin(0))
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


@dataclass(frozen=True)
class ProofVectors:
    """The values times random signs, [matrix, sign, key], and the output times them, likewise."""

    image: Tensor
    expected: Tensor


def proof_vectors(group: MatrixGroup) -> ProofVectors | None:
    """The vectors of the proof; None where values and output do not fit the matrices."""
    if group.value is None or group.output is None:
        return None
    features = group.value.shape[-1]
    if group.value.shape[:3] != (*group.output.shape[:2], group.keys):
        return None
    if group.output.shape[-1] != features or group.output.shape[2] != group.queries:
        return None
    generator = torch.Generator().manual_seed(0)
    signs = torch.randint(0, 2, (features, _SIGNS), generator=generator) * 2 - 1
    signs = signs.to(dtype=group.dtype, device=group.device)
    return ProofVectors(
        (signs.mT @ group.value.to(group.dtype).mT).flatten(0, 1),
        (signs.mT @ group.output.to(group.dtype).mT).flatten(0, 1),
    )


def miss_in_eps(sums: Sums, group: MatrixGroup) -> Tensor:
    """|A V w - O w| / |A V w| of the worst matrix, in units of rounding; NaN where not finite."""
    output_eps = torch.finfo(group.attention.output.dtype).eps
    logit = torch.finfo(group.dtype).eps * (1 + sums.largest)
    unit = logit.clamp(min=output_eps, max=max(output_eps, _COARSEST))
    misses, sizes = sums.misses.sqrt(), sums.sizes.sqrt()
    # Values that are all zero prove nothing, and nothing can be wrong then.
    relative = (misses / sizes).masked_fill(misses == 0, 0.0)
    return (relative / unit).max()
