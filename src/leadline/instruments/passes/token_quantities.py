"""How far tokens still differ: the definitions of what is read, without torch."""

from __future__ import annotations

from leadline.record import Quantity

__all__ = ["COSINE", "RELATIVE", "RESIDUAL"]

_SOURCE = "Dong, Cordonnier, Loukas 2021, arXiv 2103.03404"

RESIDUAL = Quantity(
    name="tokens.residual",
    title="Token residual",
    symbol="‖X − 1m′‖_F",
    formula="Frobenius norm of the tokens of one example minus their mean",
    scale="log",
    high="Tokens differ; in a growing stream that alone says little: see the relative residual.",
    low="Tokens have become equal: rank collapse.",
    source=_SOURCE,
    meaning="How far the tokens of a text are from their mean.",
)
RELATIVE = Quantity(
    name="tokens.relative_residual",
    title="Relative token residual",
    symbol="‖X − 1m′‖_F / ‖X‖_F",
    formula="token residual over the norm of all tokens",
    scale="log",
    high="Tokens keep their own content (1: they share no common part).",
    low="Tokens are nearly one vector: rank collapse, attention can no longer tell them apart.",
    source=_SOURCE,
    meaning="How much of the stream is what tells tokens apart.",
)
COSINE = Quantity(
    name="tokens.cosine",
    title="Token cosine",
    symbol="mean cos(x_i, x_j)",
    formula="mean cosine over all pairs of different tokens of one example",
    high="Towards 1: all tokens point the same way (rank collapse or one massive direction).",
    low="Near 0: tokens are spread in all directions.",
    source="Noci et al. 2022, arXiv 2206.03126",
    meaning="How alike the tokens of a text have become.",
    leads=True,
    better="low",
)
