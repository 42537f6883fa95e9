"""How early and how rightly each alarm has spoken, as it was measured.

`scores.json` beside this file is written by tools/watch_scores.py from the outcomes of
`make scores ONLY=watch`, with docs/watch-scores.md: runs that were made to fail, and healthy
ones, on which no alarm was tuned.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["KEPT", "score_sentence"]

KEPT = Path(__file__).with_suffix(".json")
_WORDS = {
    "rate-too-large": "runs whose rate was too large",
    "moment-stale": "runs with a stale second moment",
    "attention-growing": "runs whose attention logits grew",
    "post-no-warmup": "post-norm runs without warm-up",
}


def score_sentence(code: str) -> str:
    """Say how early an alarm spoke before failures, and how often of healthy runs."""
    scores = _kept()
    one = scores["alarms"].get(code)
    if one is None:
        return "Not scored: it gives notes only, or was added after the trial."
    spoke = [
        f"{count} of {scores['failed'][kind]} {_WORDS[kind]}"
        for kind, count in one["warned"].items()
        if count
    ]
    if spoke:
        early = (
            f"It warned before the loss failed in {_listed(spoke)}, "
            f"with a median lead of {one['median_lead']:g} updates."
        )
    else:
        early = f"It warned of none of the {sum(scores['failed'].values())} failures of the trial in time."
    updates = f"{scores['healthy_updates']:,} healthy updates"
    if not one["false"]:
        return f"{early} No false alarm in {updates}."
    rate = 1000 * one["false"] / scores["healthy_updates"]
    return f"{early} False alarms: {one['false']} in {updates} ({rate:.2g} per 1,000)."


@cache
def _kept() -> dict[str, Any]:
    return json.loads(KEPT.read_text(encoding="utf-8"))


def _listed(words: list[str]) -> str:
    return " and ".join([", ".join(words[:-1])] * bool(words[:-1]) + words[-1:])
