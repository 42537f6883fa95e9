"""Which code measured a claim: a digest that changes when a number could."""

from __future__ import annotations

from leadline.claims.digest.digest import code_digest, place_of, source_of, trial_digest

__all__ = ["code_digest", "place_of", "source_of", "trial_digest"]
