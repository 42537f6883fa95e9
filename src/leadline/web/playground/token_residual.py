"""The relative residual of the tokens at every site, also where it lies below rounding.

Three routes, each where it is good enough and no slower than it must be:

    float32     the stream of the pass itself, as `leadline.measure` has it, while the residual is at
                least `SINGLE` of the stream; what rounding did to the stream is at most eps / SINGLE
                of it
    float64     the same pass in float64, from where the first falls short, down to `DOUBLE`
    exact       `leadline.collapse`: tokens as a reference and what sets them apart, each with its
                own exponent, begun at the last good float64 site, whose tokens it takes without loss

From the first site on that falls below SINGLE the numbers are those of `leadline.collapse`. A stream
of lanes, and what `collapse` cannot follow, stays in float64 or float32: `remark` says so.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.func import functional_call

from leadline.errors import InputError
from leadline.instruments.collapse.measure import follow
from leadline.instruments.collapse.split.split import log10_of
from leadline.numerics.tokens import Tokens
from leadline.parts.branches import Run
from leadline.web.playground.walk import tensors_of

if TYPE_CHECKING:
    from leadline.instruments.collapse.split.split import Split
    from leadline.parts import Transformer
    from leadline.web.playground.walk import Walk

__all__ = ["DOUBLE", "SINGLE", "TokenResidual", "token_residual"]

Tensor = torch.Tensor
SINGLE = 1e-3
"""Residuals below this share of the stream are not taken from float32."""
DOUBLE = 1e-7
"""Residuals below this share of the stream are not taken from float64, and keep eight digits there."""


@dataclass(frozen=True)
class TokenResidual:
    """log10 of the relative residual at every site; minus infinity where all tokens are equal.

    `beyond_single` is the first site that float32 did not give, or None.
    """

    log10: tuple[float, ...]
    beyond_single: int | None = None
    remark: str = ""


def token_residual(model: Transformer, record: Walk, relative: Tensor) -> TokenResidual:
    """Begin with [site] relative residuals in float32 and replace what is not good enough."""
    single = [_log10(value) for value in relative.tolist()]
    weak = next((at for at, value in enumerate(single) if value < math.log10(SINGLE)), None)
    if weak is None:
        return TokenResidual(tuple(single))
    if model.first.lanes > 1:
        return TokenResidual(
            tuple(single), None, "Lanes are not followed below rounding: float32 throughout."
        )
    logs, last, state = _double(model, record, single)
    remark = ""
    if state is not None:
        exact, remark = _exact(model, state, last)
        logs[last:] = [*exact, *single[last + len(exact) :]]
    return TokenResidual((*single[:weak], *logs[weak:]), weak, remark)


def _double(model: Transformer, record: Walk, single: list[float]) -> tuple[list[float], int, Any]:
    """Residuals of a float64 pass, and the site and the state from which another route goes on."""
    logs = list(single)
    run = _double_run(model, record)
    state = _map(record.states[0], lambda tensor: tensor.detach().double())
    # A history may hold what differs more than the stream does; it is followed from the beginning.
    if isinstance(state, tuple):
        return logs, 0, state
    good: tuple[int, Any] = (0, state)
    with torch.no_grad():
        for site in range(len(single)):
            value = float(Tokens(model.first.stream(state)).relative_residual.all)
            logs[site] = _log10(value)
            if not value >= DOUBLE:
                return logs, good[0], good[1]
            good = site, state
            if site < len(model.blocks):
                block = model.blocks[site]
                weights = {name: one.double() for name, one in block.named_parameters()}
                state = functional_call(block, weights, (state, run))
                if isinstance(state, tuple):
                    return logs, 0, _map(record.states[0], lambda one: one.detach().double())
    return logs, len(single) - 1, None


def _exact(model: Transformer, state: Any, first: int) -> tuple[list[float], str]:
    """Residuals from a site on, without cancellation, and what ended them early."""
    logs: list[float] = []

    def note(tokens: Split) -> None:
        sizes, exponent = tokens.residual()
        logs.append(log10_of(sizes, exponent) - log10_of(*tokens.norm()))

    run = Run(
        rotate=model.embedding.positions.rotation(
            torch.arange(next(tensors_of(state)).shape[1]), torch.float64
        ),
        causal=bool(model.causal),
    )

    def step(number: int, block: Any) -> Any:
        return lambda tokens: block(model.first.open(tokens) if number == 0 else tokens, run)

    steps = [step(at, block) for at, block in enumerate(model.blocks) if at >= first]
    try:
        with torch.no_grad():
            follow(steps, next(tensors_of(state))[0], causal=bool(model.causal), watch=note)
    except InputError as error:
        return logs, f"Below rounding from layer {first + len(logs)} on: {error}"
    return logs, ""


def _double_run(model: Transformer, record: Walk) -> Run:
    positions = torch.arange(record.streams[0].shape[1])
    return Run(
        mask=record.run.mask,
        causal=record.run.causal,
        rotate=model.embedding.positions.rotation(positions, torch.float64),
    )


def _map(state: Any, change: Any) -> Any:
    if isinstance(state, tuple):
        return tuple(_map(one, change) for one in state)
    return change(state)


def _log10(value: float) -> float:
    if not math.isfinite(value):
        return math.nan
    return math.log10(value) if value > 0 else -math.inf
