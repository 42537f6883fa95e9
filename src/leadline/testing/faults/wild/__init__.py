"""Faults that people really had, ported from public threads as tiny models.

    for fault in wild_faults("seen"):
        model, inputs, answer = fault.build()

The answer of each comes from its thread. Two halves: `seen` may be looked at by whoever writes
rules; `sealed` is only scored, after the rules are frozen.
"""

from __future__ import annotations

from leadline.testing.faults.wild.case import WildFault

__all__ = ["HALVES", "WildFault", "wild_faults"]

HALVES = ("seen", "sealed")


def wild_faults(half: str | None = None) -> tuple[WildFault, ...]:
    """All wild faults, or those of one half."""
    from leadline.testing.faults.wild.sealed import SEALED_FAULTS
    from leadline.testing.faults.wild.seen import OPEN_FAULTS

    shelves = {"seen": OPEN_FAULTS, "sealed": SEALED_FAULTS}
    if half is None:
        return (*OPEN_FAULTS, *SEALED_FAULTS)
    if half not in shelves:
        raise ValueError(f"There is no half {half!r} of the wild faults; take one of {HALVES}.")
    return shelves[half]
