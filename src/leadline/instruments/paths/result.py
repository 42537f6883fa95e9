"""The result of `paths`: a forward pass by path length, as data.

With attention patterns, norm statistics and gates frozen, the stream after the last layer is

    X = sum_l Z_l + sum_l B_l,        Z_l the sum of all paths with l hops of attention,

B_l what biases gave. L attention layers with H heads and a skip have C(L, l) H^l paths of length
l: the coefficients of prod (1 + H_i t) where heads differ, of prod H_i t where nothing is skipped
(Dong, Cordonnier, Loukas 2021, arXiv 2103.03404, section 2). Layers that share values have fewer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from leadline.record.provenance import strict_json
from leadline.record.words.screen import Showable

if TYPE_CHECKING:
    from leadline.record.words.screen import Screen

__all__ = [
    "CAVEAT",
    "Paths",
    "SampledPaths",
    "Shares",
    "path_counts",
]

CAVEAT = (
    "This takes apart this forward pass: patterns, statistics and gates are frozen as they were, "
    "and they depend on the whole input. It is no decomposition into independent functions. The "
    "frozen gate of GELU or SiLU is a secant, f(x)/x, and not the slope."
)


@dataclass(frozen=True, kw_only=True)
class Shares:
    """One tensor X by path length; index l is the length.

    `norm_share` |Z_l| / |X|, `share` <Z_l, X> / |X|^2; the same for biases (empty: none joined).
    `share` and `bias_share` together sum to 1. `remainder` is what they leave over of the worst
    token, |x - sum| / max(|x|, sqrt(sum |z_l|^2 + sum |b_l|^2)), and the same in eps.
    """

    norm: float
    norm_share: tuple[float, ...]
    share: tuple[float, ...]
    bias_norm_share: tuple[float, ...] = ()
    bias_share: tuple[float, ...] = ()
    remainder: float
    remainder_eps: float

    @property
    def bias_total(self) -> float:
        """The share of all biases together."""
        return math.fsum(self.bias_share)

    def to_json(self) -> dict[str, Any]:
        """Return the numbers as JSON."""
        return strict_json(
            {
                "norm": self.norm,
                "norm_share": list(self.norm_share),
                "share": list(self.share),
                "bias_norm_share": list(self.bias_norm_share),
                "bias_share": list(self.bias_share),
                "remainder": self.remainder,
                "remainder_eps": self.remainder_eps,
            }
        )


@dataclass(frozen=True, kw_only=True)
class SampledPaths:
    """Paths drawn at random, beside the exact answer; index l is the length, None: no such path.

    `residual` is the mean of |res Y| / |Y| over the drawn paths Y, as in Dong et al.; `error` that
    of the estimate (number of paths / samples) sum Y of Z_l, relative to |Z_l|.
    """

    samples: int
    seed: int
    residual: tuple[float | None, ...]
    error: tuple[float | None, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the numbers as JSON."""
        return strict_json(
            {
                "samples": self.samples,
                "seed": self.seed,
                "residual": list(self.residual),
                "error": list(self.error),
            }
        )


@dataclass(frozen=True, kw_only=True)
class Paths(Showable):
    """A forward pass by path length: what `leadline.paths` returns.

    It takes apart one forward pass: patterns, statistics and gates are frozen as they were and
    depend on the whole input. It is no decomposition into independent functions, and the frozen
    gate of GELU or SiLU is a secant, not the slope.

    `heads` has a number for every attention layer, None where it is not known; `counts[l]` is the
    number of paths of length l that reach the stream, None without all heads.
    `output` is the stream after the last layer; `residual` the same with the mean token of every
    example taken away (None where that leaves nothing); `logits` without their mean over the
    vocabulary (None without a head). `loss_at_most[k]` is the loss of the logits made of all
    components with at most k hops; the last one is the model's own, `loss`, up to rounding. A head
    with attention of its own makes logits and losses longer than the output.
    """

    model: str
    dtype: str
    heads: tuple[int | None, ...]
    counts: tuple[int, ...] | None
    output: Shares
    residual: Shares | None = None
    logits: Shares | None = None
    loss: float | None = None
    loss_kind: str | None = None
    loss_at_most: tuple[float, ...] | None = None
    sampled: SampledPaths | None = None
    precision: str = ""
    """The coarsest number type that the stream went through: its eps is the unit of rounding."""
    allowed: float = math.inf
    """The largest remainder that counts as rounding."""
    input: Mapping[str, Any] = field(default_factory=dict[str, Any])
    remarks: tuple[str, ...] = ()

    @property
    def caveat(self) -> str:
        """What the numbers do not mean."""
        return CAVEAT

    @property
    def depth(self) -> int:
        """How many attention layers there are: the longest path."""
        return len(self.heads)

    @property
    def lengths(self) -> range:
        """0 to depth, or further where the logits go on behind the last layer."""
        further = 0 if self.logits is None else len(self.logits.share)
        return range(max(self.depth + 1, further))

    @property
    def norm_share(self) -> tuple[float, ...]:
        """That of the output."""
        return self.output.norm_share

    @property
    def share(self) -> tuple[float, ...]:
        """That of the output."""
        return self.output.share

    @property
    def bias_share(self) -> tuple[float, ...]:
        """That of the output."""
        return self.output.bias_share

    def to_json(self) -> dict[str, Any]:
        """Return the answer and everything else as JSON; counts are whole numbers of any size."""
        from leadline.instruments.paths.text import answer

        return {
            "schema": 1,
            "model": self.model,
            "answer": answer(self),
            "dtype": self.dtype,
            "depth": self.depth,
            "heads": list(self.heads),
            "counts": None if self.counts is None else list(self.counts),
            "output": self.output.to_json(),
            "residual": None if self.residual is None else self.residual.to_json(),
            "logits": None if self.logits is None else self.logits.to_json(),
            "loss": None if self.loss is None else strict_json(self.loss),
            "loss_kind": self.loss_kind,
            "loss_at_most": None
            if self.loss_at_most is None
            else strict_json(list(self.loss_at_most)),
            "sampled": None if self.sampled is None else self.sampled.to_json(),
            "precision": self.precision,
            "allowed": strict_json(self.allowed),
            "input": strict_json(dict(self.input)),
            "remarks": list(self.remarks),
            "caveat": CAVEAT,
        }

    def screen(self, *, everything: bool = True) -> Screen:
        """Return the answer and a row per length; without `everything` the largest shares."""
        from leadline.instruments.paths.text import paths_screen

        return paths_screen(self, everything=everything)


def path_counts(heads: Sequence[int], skips: Sequence[bool]) -> tuple[int, ...]:
    """The number of paths of every length: coefficients of prod (skip_i + heads_i t).

    >>> path_counts([3] * 5, [True] * 5)
    (1, 15, 90, 270, 405, 243)
    """
    counts = [1]
    for number, skip in zip(heads, skips, strict=True):
        longer = [0, *(count * number for count in counts)]
        for length, count in enumerate(counts if skip else ()):
            longer[length] += count
        counts = longer
    return tuple(counts)
