"""The ledger of claims: what five notes say about residual connections, ruled on by measurement.

One file per claim, in a folder per group. A claim is a text, its checks, and a function that
measures: `leadline.claims.entry` has the decorator. The verdict is computed from the numbers by
`leadline.claims.ruling`; no entry holds one.
"""

from __future__ import annotations

from leadline.claims.entry import CLAIMS, Entry, Measured, Trial, claim, uncheckable

__all__ = ["CLAIMS", "Entry", "Measured", "Trial", "claim", "uncheckable"]
