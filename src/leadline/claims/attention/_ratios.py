"""The worst ratio of a bound of the catalog over attacked heads of several kinds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count as counted

__all__ = ["climbed_ratio", "worst_ratio", "worst_ratios"]

COUNT, STARTS, STEPS, CLIMB = 100, 8, 40, 60
WIDTH, TOKENS = 16, 16


def worst_ratios(bounds: Sequence[str], kinds: Sequence[str], *, seed: int) -> dict[str, float]:
    """Attack heads that meet the assumptions at random and by ascent; above 1 is a violation.

    Of every bound the worst norm / bound over all heads of these kinds that meet its assumptions.
    """
    from leadline.errors import ProbeError
    from leadline.instruments.attacks.attention import merged, optimised_attack, random_attack

    results = [random_attack(kind, count=COUNT, seed=1000 * seed + 7) for kind in kinds]
    results += [
        optimised_attack(kind, steps=STEPS, seed=1000 * seed + 11, starts=STARTS) for kind in kinds
    ]
    found = merged(results)
    for bound in bounds:
        if not found[bound].within.attacks:
            raise ProbeError(
                f"No head of the kinds {', '.join(kinds)} meets the assumptions of the bound "
                f"{bound!r}; choose other kinds."
            )
    return {bound: found[bound].within.ratio for bound in bounds}


def worst_ratio(bound: str, kinds: Sequence[str], *, seed: int) -> float:
    """The same for one bound."""
    return worst_ratios((bound,), kinds, seed=seed)[bound]


def climbed_ratio(bound: str, kind: str, *, seed: int, sizes: Mapping[str, float]) -> float:
    """Push heads of one kind uphill from sizes that are set, 16 tokens of width 16, heads of width 1.

    The worst of norm / bound, whether the assumptions of the bound hold there or not.
    """
    import torch

    from leadline.instruments.attacks.attention import climb
    from leadline.instruments.attacks.heads import KINDS, Heads

    drawn = (
        Heads(KINDS[kind], 8, TOKENS, generator=torch.Generator().manual_seed(own))
        for own in counted(1000 * seed)
    )
    heads = next(one for one in drawn if (one.width, one.head_width) == (WIDTH, 1))
    for name, size in sizes.items():
        heads.sizes[name] = torch.full_like(heads.sizes[name], size)
    found = climb(heads, steps=CLIMB)[bound]
    return max(found.within.ratio, found.outside.ratio)
