"""Paths drawn at random, each followed on its own: sampling beside the exact answer.

A path of length l takes one head at each of l attention layers and skips the others. Drawn are a
uniformly random set of layers and a uniformly random head in each, so that

    Z_l = sum of all paths = E[ (number of sets) (product of the heads taken) Y ]

with Y what one path gives. Dong, Cordonnier, Loukas 2021 (arXiv 2103.03404) draw paths this way to
see how their residual falls with length. Layers without a skip are in every set.

How many paths there are is read off the pass as well. The values of a layer were reached by the
paths p_l(t), a polynomial in the number of hops, and what they give has H_l t p_l(t); the stream
in the end was reached by the paths of the layers that joined it, and by none where it was never
cut. Where every layer reads the stream that is prod (1 + H_l t), and fewer where layers share
values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from leadline.anatomy import Stack
from leadline.errors import ProbeError
from leadline.instruments.paths.carried.books import ByPlan
from leadline.instruments.paths.carried.carried import Journey
from leadline.instruments.paths.carried.model_pass import AttentionLayer, Passed, carry_through
from leadline.instruments.paths.carried.rows import Ways
from leadline.instruments.paths.carried.shares import View

__all__ = ["DrawnPath", "counted_paths", "draw", "judge_sample", "sampled_paths"]

Tensor = torch.Tensor
Numbers = tuple[float | None, ...]


@dataclass(frozen=True)
class DrawnPath:
    """One path: hop index -> head, and how many paths it stands for."""

    plan: dict[int, int]
    weight: int


def draw(
    attentions: Sequence[AttentionLayer], length: int, *, samples: int, seed: int
) -> list[DrawnPath]:
    """Draw paths of one length; none where there is no such path."""
    free = [at for at, layer in enumerate(attentions) if layer.skip]
    forced = [at for at, layer in enumerate(attentions) if not layer.skip]
    wanted = length - len(forced)
    if not 0 <= wanted <= len(free):
        return []
    random = np.random.default_rng([seed, length])
    paths: list[DrawnPath] = []
    for _ in range(samples):
        chosen = sorted([*forced, *random.choice(free, wanted, replace=False)] if free else forced)
        plan: dict[int, int] = {}
        weight = math.comb(len(free), wanted)
        for at in chosen:
            layer = attentions[int(at)]
            assert layer.heads is not None and layer.held is not None
            head = int(random.integers(layer.heads))
            weight *= layer.heads
            for hop, (first, number) in zip(layer.hops, layer.held, strict=True):
                if first <= head < first + number:
                    plan[hop.index] = head - first
        paths.append(DrawnPath(plan, weight))
    return paths


def counted_paths(ways: Ways, attentions: Sequence[AttentionLayer]) -> tuple[int, ...] | None:
    """The number of paths of every length that reach a tensor; None: heads are not known."""
    layer_of = {hop.index: at for at, layer in enumerate(attentions) for hop in layer.hops}
    known: dict[Ways, list[int]] = {}
    latest: tuple[Ways, list[int]] = (Ways(False, frozenset()), [0] * (len(attentions) + 1))

    def polynomial(ways: Ways) -> list[int] | None:
        nonlocal latest
        if ways in known:
            return known[ways]
        # The stream is reached by the ways of the layer before and by the hops of that layer.
        before, counts = latest
        if not before.last <= ways.last or before.fresh > ways.fresh:
            before, counts = Ways(False, frozenset()), [0] * (len(attentions) + 1)
        counts_by_length = [counts[0] + ways.fresh - before.fresh, *counts[1:]]
        counted = {layer_of.get(last) for last in before.last}
        for at in {layer_of.get(last) for last in ways.last} - counted:
            if at is None or attentions[at].heads is None:
                return None
            entered = {hop.ways for hop in attentions[at].hops}
            values = polynomial(entered.pop()) if len(entered) == 1 else None
            if values is None:
                return None
            for length, count in enumerate(values[:-1]):
                counts_by_length[length + 1] += count * (attentions[at].heads or 0)
        known[ways] = counts_by_length
        latest = (ways, counts_by_length)
        return counts_by_length

    totals = polynomial(ways)
    return None if totals is None else tuple(totals)


def sampled_paths(
    model: nn.Module,
    stack: Stack,
    forward: Callable[[], Any],
    passed: Passed,
    *,
    samples: int,
    seed: int,
    view: View,
    residual: View | None,
    say: Callable[[int, int], None],
) -> tuple[Numbers, Numbers]:
    """For every length the mean relative residual of drawn paths, and the error of their sum.

    One forward pass per length; `passed` holds the exact answer.
    """
    exact = passed.stream.parts
    assert exact is not None
    judgements: list[tuple[float | None, float | None]] = []
    lengths = len(passed.attentions) + 1
    for length in range(lengths):
        say(length, lengths)
        drawn = draw(passed.attentions, length, samples=samples, seed=seed)
        if not drawn:
            judgements.append((None, None))
            continue
        journey = Journey(book=ByPlan([path.plan for path in drawn]))
        alone = carry_through(model, stack, forward, journey, to_the_end=False).stream.parts
        assert alone is not None
        if any(behind != length for behind in alone.inputs.lengths):
            raise ProbeError(
                f"A path that was drawn with {length} hops came out with another number; give "
                "samples=0."
            )
        rows = [alone.inputs.row(at) for at in range(len(drawn))]
        target = exact.inputs.row(length)
        judgements.append(judge_sample(rows, drawn, target, view=view, residual=residual))
    return tuple(one for one, _ in judgements), tuple(other for _, other in judgements)


def judge_sample(
    paths: Sequence[Tensor],
    drawn: Sequence[DrawnPath],
    exact: Tensor,
    *,
    view: View,
    residual: View | None,
) -> tuple[float | None, float | None]:
    """Mean of |res Y| / |Y|, and the error of the estimate relative to |Z|; None: undefined."""
    ratios: list[float] = []
    estimate = torch.zeros_like(view(exact))
    for y, path in zip(paths, drawn, strict=True):
        viewed = view(y)
        size = float(torch.linalg.vector_norm(viewed))
        if size > 0 and residual is not None:
            ratios.append(float(torch.linalg.vector_norm(residual(y))) / size)
        estimate += viewed * (_number(path.weight) / len(drawn))
    target = view(exact)
    size = float(torch.linalg.vector_norm(target))
    miss = float(torch.linalg.vector_norm(estimate - target))
    error = miss / size if size > 0 and math.isfinite(miss) else None
    return (math.fsum(ratios) / len(ratios) if ratios else None), error


def _number(count: int) -> float:
    """A count as a float; those beyond the largest float are infinite."""
    try:
        return float(count)
    except OverflowError:
        return math.inf
