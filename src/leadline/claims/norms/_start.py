"""Seven designs before training, over depth: the numbers that most claims about norms read.

The designs and the measurement are those of the experiment `gradient-flow` (bytes of Python's own
library, width 64, 4 heads, 64 tokens, 4 examples, float64, attention as plain products), with one
more: a stack without skip and without norm. Each design is drawn once per seed and depth; Pre-LN
and Post-LN are drawn again for the gradient of the last output matrix, the geometric mean of all
draws.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from leadline.claims.catalog import Trial

__all__ = [
    "AT_START",
    "DEPTHS",
    "EXAMPLES",
    "HEADS",
    "LENGTH",
    "WIDTH",
    "Found",
    "drawn",
    "found_in",
    "own_seed",
]

DEPTHS = (12, 24, 48, 96)
DESIGNS = ("pre", "post", "no skip", "plain", "no norm", "scaled pre", "gpt2-scaled")
WIDTH, HEADS, LENGTH, EXAMPLES = 64, 4, 64, 4
AGAIN = {"pre": 2, "post": 2}
"""How many times more these are drawn."""


def own_seed(seed: int, draw: int) -> int:
    """The seed of one of several draws, another for every seed and draw."""
    return 1000 * (seed + 1) + draw


def drawn(design: str, depth: int, seed: int, *, length: int = LENGTH) -> Any:
    """The untrained model of a design, with the weights of a seed."""
    from leadline.experiments.gradient_flow.starts import DESIGNS as FLOW
    from leadline.experiments.gradient_flow.starts import built
    from leadline.lab.presets.depth_limits import DESIGNS as PRESET
    from leadline.lab.presets.depth_limits import FIXED
    from leadline.lab.tasks import build_task
    from leadline.lab.trainer import model_for
    from leadline.parts import Recipe

    if design in FLOW:
        return built(design, depth, width=WIDTH, heads=HEADS, length=length, seed=seed)
    fields = {"init": FIXED["init"], "head": FIXED["head"], **PRESET[design]}
    recipe = Recipe(depth=depth, width=WIDTH, heads=HEADS, **fields)
    return model_for(recipe, build_task(f"stdlib(length={length})"), seed=seed).eval()


def run(seed: int) -> dict[str, Any]:
    """One forward and one backward pass of every design at every depth."""
    from leadline.experiments.gradient_flow.starts import batch_of, measured

    found: dict[str, Any] = {}
    batch = batch_of(LENGTH, examples=EXAMPLES, seed=seed)
    for design in DESIGNS:
        for depth in DEPTHS:
            start = measured(drawn(design, depth, seed), batch, design=design, seed=seed)
            weights = [start.weight]
            for draw in range(AGAIN.get(design, 0)):
                own = own_seed(seed, draw)
                another = batch_of(LENGTH, examples=EXAMPLES, seed=own)
                model = drawn(design, depth, own)
                weights.append(measured(model, another, design=design, seed=own).weight)
            found.setdefault(design, {})[str(depth)] = {
                "weight": _typical(weights),
                "gradients": list(start.gradients),
                "squares": list(start.squares),
                "updates": start.updates,
                "crosses": start.crosses,
                "cosine": start.cosine,
            }
    return found


def _typical(values: list[float]) -> float:
    """The geometric mean; 0 where a value is."""
    return math.exp(sum(map(math.log, values)) / len(values)) if min(values) > 0.0 else 0.0


AT_START = Trial("norms-at-start", run, seconds=16.0)


class Found:
    """What the trial found of one design, by depth."""

    def __init__(self, kept: Mapping[str, Any]) -> None:
        self._kept = kept

    def weight(self, depth: int) -> float:
        """|dL/dW2| of the last block, typical of the draws."""
        return float(self._kept[str(depth)]["weight"])

    def gradients(self, depth: int) -> list[float]:
        """|dL/dx_l| at the sites 0 ... L."""
        return [float(one) for one in self._kept[str(depth)]["gradients"]]

    def squares(self, depth: int) -> list[float]:
        """The mean square of the stream at the sites 0 ... L."""
        return [float(one) for one in self._kept[str(depth)]["squares"]]

    def number(self, name: str, depth: int) -> float:
        """One of `updates`, `crosses`, `cosine`."""
        return float(self._kept[str(depth)][name])

    def ratio(self, depth: int) -> float:
        """|dL/dx_0| / |dL/dx_L|."""
        gradients = self.gradients(depth)
        return gradients[0] / gradients[-1]

    def least(self, depth: int) -> float:
        """The smallest |dL/dx_l| of any site over that of the last site."""
        gradients = self.gradients(depth)
        return min(gradients) / gradients[-1]

    def growth(self, depth: int) -> float:
        """Mean square at the last site over that at the first."""
        squares = self.squares(depth)
        return squares[-1] / squares[0]

    def exponent(self, values: Mapping[int, float]) -> float:
        """The power of the depth with which a number grows."""
        from leadline.experiments.exponent import fit_exponent

        return fit_exponent(list(values), {0: list(values.values())}).slope


def found_in(trials: Mapping[str, Mapping[str, Any]], design: str) -> Found:
    """The numbers of one design from the results of the trials."""
    return Found(trials[AT_START.name][design])
