"""The ledger of claims: what five notes say about residual connections, ruled on by measurement.

A claim is a text with checks (`texts/`, one TOML file per group) and a function that measures
(`measure/`, grouped by topic): `leadline.claims.catalog` has the decorator. The verdict is computed
from the numbers by `leadline.claims.ruling`; no entry holds one.
"""

from __future__ import annotations

from leadline.claims.catalog import (
    CLAIMS,
    Entry,
    Measured,
    Trial,
    claim,
    measures,
    read_texts,
    uncheckable,
)

__all__ = ["CLAIMS", "Entry", "Measured", "Trial", "claim", "measures", "read_texts", "uncheckable"]
