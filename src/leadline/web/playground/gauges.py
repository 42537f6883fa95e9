"""The numbers of one model over its depth, quantity by quantity, as the instruments define them.

    stream.norm                mean over the tokens of |x|, sites 0 to L
    stream.variance            mean over the tokens of the variance over features, sites 0 to L
    gradient.stream            |dL/dx| over all tokens, sites 0 to L
    gradient.parameters        |dL/dw| over the parameters of a write
    tokens.cosine              mean cosine over pairs of tokens, sites 0 to L
    tokens.relative_residual   log10 (`token_residual`), sites 0 to L
    update.ratio               mean over the tokens of |u| / |x|, every write
    attention.spectral_norm    [layer, head], with the range of the logits beside it
    jacobian.distance          |J - I|_F / sqrt N of every block (`block_maps`)

One example. A model is read in evaluation and left as it was.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from leadline.numerics.spectra.spectrum import spectral_norm
from leadline.numerics.tokens import Tokens, row_norms
from leadline.web.playground.block_maps import identity_distances
from leadline.web.playground.token_residual import TokenResidual, token_residual
from leadline.web.playground.walk import walk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leadline.models.inputs import Inputs
    from leadline.parts import Transformer
    from leadline.web.playground.walk import SeenCall, Walk

__all__ = ["PlayGauges", "WriteLine", "read_gauges"]

Tensor = torch.Tensor


@dataclass(frozen=True)
class WriteLine:
    """The numbers of the writes of one role, by layer."""

    role: str
    layers: tuple[int, ...]
    values: tuple[float, ...]


@dataclass(frozen=True)
class PlayGauges:
    """Every number; what is not finite is NaN or infinite here."""

    loss: float
    stream_norm: tuple[float, ...]
    stream_norm_median: tuple[float, ...]
    stream_variance: tuple[float, ...]
    gradient: tuple[float, ...]
    parameter_gradients: tuple[WriteLine, ...]
    cosine: tuple[float, ...]
    residual: TokenResidual
    update_ratio: tuple[WriteLine, ...]
    attention_norm: tuple[tuple[float, ...], ...]
    logit_span: tuple[tuple[float, ...], ...]
    jacobian_distance: tuple[float, ...]

    @property
    def depth(self) -> int:
        """How many layers there are."""
        return len(self.stream_norm) - 1


def read_gauges(model: Transformer, inputs: Inputs) -> PlayGauges:
    """Read everything from one forward and one backward pass and a run of every block."""
    training = model.training
    try:
        model.eval()
        record = walk(model, inputs)
        with torch.no_grad():
            return _reduced(model, record)
    finally:
        model.train(training)


def _reduced(model: Transformer, record: Walk) -> PlayGauges:
    streams = Tokens(torch.cat(record.streams))
    norms = streams.norm.double()
    relative = streams.relative_residual.all
    attention, spans = _attention_numbers(record.attention)
    return PlayGauges(
        loss=record.loss,
        stream_norm=tuple(norms.mean(1).tolist()),
        stream_norm_median=tuple(norms.quantile(0.5, dim=1).tolist()),
        stream_variance=tuple(streams.variance.double().mean(1).tolist()),
        gradient=_gradient_norms(record.gradients),
        parameter_gradients=_lines(record, record.parameter_gradients),
        cosine=tuple(streams.cosine.all.tolist()),
        residual=token_residual(model, record, relative),
        update_ratio=_lines(record, _ratios(record)),
        attention_norm=attention,
        logit_span=spans,
        jacobian_distance=tuple(identity_distances(model, record)),
    )


def _gradient_norms(gradients: Sequence[Tensor | None]) -> tuple[float, ...]:
    """NaN where no gradient comes by: nothing below depends on that tensor."""
    known = [one for one in gradients if one is not None]
    norms = torch.linalg.vector_norm(row_norms(torch.cat(known)).double(), dim=1).tolist()
    remaining = iter(norms)
    return tuple(math.nan if one is None else next(remaining) for one in gradients)


def _ratios(record: Walk) -> list[float]:
    updates = row_norms(torch.cat([one.update for one in record.writes]))
    before = row_norms(torch.cat([one.before for one in record.writes]))
    return torch.where(before > 0, updates / before, math.nan).mean(1, dtype=torch.float64).tolist()


def _lines(record: Walk, values: Sequence[float]) -> tuple[WriteLine, ...]:
    roles = dict.fromkeys(write.role for write in record.writes)
    pairs = list(zip(record.writes, values, strict=True))
    return tuple(
        WriteLine(
            role,
            tuple(write.layer for write, _ in pairs if write.role == role),
            tuple(value for write, value in pairs if write.role == role),
        )
        for role in roles
    )


def _attention_numbers(
    calls: Sequence[SeenCall],
) -> tuple[tuple[tuple[float, ...], ...], tuple[tuple[float, ...], ...]]:
    """Largest singular value and range of the logits of every head, layer by layer."""
    if not calls:
        return (), ()
    query = torch.cat([one.query for one in calls])
    key = torch.cat([one.key for one in calls])
    first = calls[0]
    scale = query.shape[-1] ** -0.5 if first.scale is None else first.scale
    scores = (query * scale) @ key.mT
    visible = torch.ones(scores.shape[-2:], dtype=torch.bool)
    visible = visible.tril() if first.causal else visible
    weights = torch.softmax(scores.masked_fill(~visible, -math.inf), -1)
    norms = spectral_norm(weights).value
    highest = scores.masked_fill(~visible, -math.inf).amax(-1)
    lowest = scores.masked_fill(~visible, math.inf).amin(-1)
    spans = (highest - lowest).double().amax(-1)
    return tuple(map(tuple, norms.tolist())), tuple(map(tuple, spans.tolist()))
