"""The largest values of the stream: head room in half precision, heavy tails, massive activations.

    largest    max |x| over the tokens and features of a site; of an update likewise
    room       65,504 / max |x|, the largest number of float16 over it; likewise for bfloat16
    kurtosis   E (x - m)^4 / Var(x)^2 over the tokens and features; 3 for a normal distribution
    massive    max |x| over the median of |x|

A few entries of the stream of a trained model are thousands of times larger than the median, in the
same few features and mostly at the first token (Sun et al. 2024, arXiv 2402.17762). Padding does
not count. The median of more than 2^18 entries is taken of evenly spaced ones.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from leadline.instruments.cost.work import Size, Workload, moving
from leadline.instruments.passes.probe import PROBES, At, Result, Single
from leadline.numerics.devices import widest_float
from leadline.numerics.tokens import Tokens
from leadline.record import Quantity

LARGEST = Quantity(
    name="stream.largest",
    title="Largest value of the stream",
    symbol="max |x_l|",
    formula="largest absolute value over all tokens and features; token, feature: where it stands",
    scale="log",
    headline="value",
    high="Near 65,504 the stream overflows in float16.",
    low="There is head room in every number format.",
    source="Sun et al. 2024, arXiv 2402.17762",
    meaning="How large the largest single number of the stream is.",
)
ROOM = Quantity(
    name="stream.float16_room",
    title="Head room of the stream in float16",
    symbol="65504 / max |x_l|",
    formula="largest number of float16 over the largest absolute value; bfloat16: likewise",
    scale="log",
    headline="value",
    high="The stream fits into float16.",
    low="Below 2 the next write may overflow in float16; below 1 the stream does.",
    meaning="How many times larger the stream could be before float16 overflows.",
)
KURTOSIS = Quantity(
    name="stream.kurtosis",
    title="Kurtosis of the stream",
    symbol="E(x−m)⁴ / Var(x)²",
    formula="fourth central moment over the squared variance, of all tokens and features",
    scale="log",
    headline="value",
    high="A few entries are far larger than the rest: quantisation with one scale loses the rest.",
    low="Near 3 the entries are spread like those of a normal distribution.",
    source="Dettmers et al. 2022, arXiv 2208.07339",
    meaning="How heavy the tails of the stream are.",
)
MASSIVE = Quantity(
    name="stream.massive",
    title="Largest over median value of the stream",
    symbol="max |x_l| / median |x_l|",
    formula="largest absolute value over the median absolute value, of all tokens and features",
    scale="log",
    headline="value",
    high="Above 1000 there are massive activations.",
    low="All entries are of a size.",
    source="Sun et al. 2024, arXiv 2402.17762",
    meaning="How far the largest entry of the stream stands out.",
)
UPDATE = Quantity(
    name="update.largest",
    title="Largest value of an update",
    symbol="max |u|",
    formula="largest absolute value of what one write adds, over all tokens and features",
    lives_on="sublayer",
    scale="log",
    headline="value",
    high="Near 65,504 the write overflows in float16.",
    low="There is head room in every number format.",
    meaning="How large the largest single number of a write is.",
)

MOST_ENTRIES = 2**18
"""A median of more entries is taken of an even sample: sorting would cost more than the layer."""
FLOAT16_MAX = torch.finfo(torch.float16).max
BFLOAT16_MAX = torch.finfo(torch.bfloat16).max


@PROBES.register("extremes")
class ExtremesProbe:
    """Largest value at every site; head room, kurtosis and largest over median between blocks."""

    sees = ("stream", "update")
    quantities = (LARGEST, ROOM, KURTOSIS, MASSIVE, UPDATE)

    def cost(self, size: Size) -> Workload:
        """Three times over it at every site and write; kurtosis and median some ten times more."""
        everywhere = 3 * (size.all_sites + size.depth * size.writes)
        return moving(size.numbers, times=everywhere + 10 * size.sites)

    def stream(self, at: At, x: Tokens, start: Tokens) -> Iterator[Result]:
        rows = x.real
        if rows.numel() == 0:
            return
        sizes = rows.abs()
        largest, place = sizes.flatten().max(0)
        yield Single(LARGEST, largest, join="largest")
        if at.site.sublayer is not None:
            return
        width = x.x.shape[-1]
        token = _token_of(x, place.div(width, rounding_mode="floor"))
        yield Single(LARGEST, token, "token", join="beside largest")
        yield Single(LARGEST, place % width + 1, "feature", join="beside largest")
        # Nothing can be divided by a stream of zeros; NaN is not zero.
        exists = largest != 0
        wide = largest.to(widest_float(largest.device))
        for statistic, most in (("value", FLOAT16_MAX), ("bfloat16", BFLOAT16_MAX)):
            yield Single(ROOM, most / wide, statistic, join="smallest", exists=exists)
        yield Single(KURTOSIS, _kurtosis(rows), exists=exists)
        # An odd step is no multiple of the usual widths, so that all features are sampled.
        middle = sizes.flatten()[:: -(-sizes.numel() // MOST_ENTRIES) | 1].median()
        yield Single(MASSIVE, largest / middle, exists=exists & (middle != 0))

    def update(self, at: At, u: Tokens, x: Tokens) -> Iterator[Result]:
        rows = u.real
        if rows.numel():
            yield Single(UPDATE, rows.abs().max(), join="largest")


def _token_of(x: Tokens, row: torch.Tensor) -> torch.Tensor:
    """The position in its example of a row of the real tokens, from 1 on, padding not counted."""
    if x.mask is None:
        return row % x.length + 1
    ends = x.mask.sum(1).cumsum(0)
    # The last example that ended before this row.
    before = torch.where(ends <= row, ends, 0).amax()
    return row - before + 1


def _kurtosis(rows: torch.Tensor) -> torch.Tensor:
    """Of all entries; scaled first, because fourth powers soon leave the range of float32."""
    centred = rows - rows.mean()
    squares = (centred / centred.abs().max().clamp_min(torch.finfo(rows.dtype).tiny)).square()
    return squares.square().mean() / squares.mean().square()
