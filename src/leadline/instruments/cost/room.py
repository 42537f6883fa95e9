"""Whether a measurement fits into the memory that is free, and what would fit where it does not.

A request is refused where its predicted memory exceeds what is free by more than the prediction may
be off (`UNCERTAINTY`); between the two it is remarked on. What would fit is found by predicting
smaller inputs, and by the streamed reading of the weights. Predicting takes some tenths of a second,
so it is done only where a bound that costs nothing leaves it open (`surely_fits`).

What counts hangs on where the weights are: there already ("loaded"), to be read ("whole"), or read
block by block while the model runs ("streamed").
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

import torch
from torch import nn

from leadline.errors import MemoryLack
from leadline.instruments.cost.result import CostEstimate
from leadline.instruments.cost.uncertainty import UNCERTAINTY
from leadline.models.inputs import Inputs
from leadline.models.streaming.memory import free_memory, in_bytes

__all__ = ["Weights", "check_room", "free_on", "size_of", "surely_fits"]

GENEROUS = 6
"""Numbers that a pass may hold for each row and column of a weight and each token. GPT-2
small holds 1.6 at 4 x 128 tokens; the attention matrices are counted apart."""
HEADS = 64
"""More heads than a layer usually has."""
DIRECTIONS = 4
"""Times as much where directions or components are carried along. Beside a block's weights they are
few: 48 numbers a token and column for 8 exponents, where `GENEROUS` allows 96 for a block of GPT-2."""
Weights = Literal["loaded", "whole", "streamed"]
Predict = Callable[[int, int], CostEstimate]
"""The estimate for so many examples of so many tokens."""


def free_on(device: torch.device) -> int:
    """Bytes that are free on a device: of the machine, or as torch says of an accelerator."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    module: Any = getattr(torch, device.type, None)
    if device.type not in ("cpu", "meta") and hasattr(module, "mem_get_info"):
        return module.mem_get_info(device)[0]
    return free_memory()


def size_of(batch: Inputs) -> tuple[int, int]:
    """How many examples of how many tokens."""
    main = batch.main
    return (main.shape[0], main.shape[1]) if main.ndim > 1 else (1, main.numel())


def surely_fits(
    module: nn.Module,
    size: tuple[int, int],
    free: int,
    *,
    weights: Weights = "loaded",
    directions: bool = False,
) -> bool:
    """Whether a measurement needs so little that nothing has to be predicted.

    `size` is how many examples of how many tokens; `directions` says that it carries directions or components through the blocks.
    """
    examples, tokens = size
    matrices = [parameter for parameter in module.parameters() if parameter.ndim > 1]
    edges = sum(sum(parameter.shape) for parameter in matrices)
    grids = HEADS * examples * tokens**2 * len(matrices) / 4
    numbers = (DIRECTIONS if directions else 1) * (GENEROUS * edges * examples * tokens + grids)
    to_read = 0 if weights == "loaded" else sum(p.nbytes for p in module.parameters())
    return 4 * numbers + to_read < free


def check_room(
    estimate: CostEstimate,
    *,
    free: int,
    weights: Weights,
    predict: Predict | None = None,
    streamable: bool = False,
) -> str | None:
    """A remark where memory may not do; MemoryLack where it will not.

    `predict` finds what would fit; `streamable` says that the weights lie in files that can be
    read block by block.
    """
    needed = _needed(estimate, weights)
    if needed is None:
        return None
    size = f"{estimate.examples} x {estimate.tokens} tokens"
    if needed <= free:
        return None
    if needed <= free * (1 + UNCERTAINTY):
        return (
            f"{estimate.model} at {size} may need {in_bytes(needed)} of memory, give or take "
            f"{UNCERTAINTY:.0%}, and {in_bytes(free)} are free."
        )
    options = list(_fitting(estimate, free, weights, predict)) if predict is not None else []
    streamed = estimate.streamed
    if streamable and weights == "whole" and streamed is not None and streamed <= free:
        options.append(f"--stream, which needs about {in_bytes(streamed)}")
    advice = f" What would fit: {', or '.join(options)}." if options else ""
    raise MemoryLack(
        f"{estimate.instrument} was asked for {estimate.model} at {size}, which needs about "
        f"{in_bytes(needed)} of memory{_BESIDE[weights]}; {in_bytes(free)} are free.{advice} To go on "
        "nevertheless: anyway=True (--anyway)."
    )


_BESIDE = {
    "loaded": " beside the weights",
    "whole": "",
    "streamed": " with the weights read block by block",
}


def _needed(estimate: CostEstimate, weights: Weights) -> float | None:
    if weights == "streamed":
        return estimate.streamed
    return estimate.added if weights == "loaded" else estimate.memory


def _fitting(
    estimate: CostEstimate, free: int, weights: Weights, predict: Predict
) -> Iterator[str]:
    """Fewer examples, or shorter ones, that fit: the largest halves that do."""

    def fits(examples: int, tokens: int) -> bool:
        needed = _needed(predict(examples, tokens), weights)
        return needed is not None and needed <= free

    examples, tokens = estimate.examples // 2, estimate.tokens // 2
    while examples >= 1 and not fits(examples, estimate.tokens):
        examples //= 2
    if examples >= 1:
        yield f"{examples} x {estimate.tokens} tokens"
    while tokens >= 2 and not fits(estimate.examples, tokens):
        tokens //= 2
    if tokens >= 2:
        yield f"{estimate.examples} x {tokens} tokens"
