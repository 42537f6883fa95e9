"""A new probe or another way to print measures no claim anew; no claim asks for all probes."""

from __future__ import annotations

import importlib.resources

from leadline.claims.digest.digest import VESSELS
from leadline.record.words.screen import Screen, Sentence, Showable


def test_no_measurement_asks_for_all_probes() -> None:
    folder = importlib.resources.files("leadline.claims") / "measure"
    sources = [one.read_text() for one in folder.iterdir() if one.name.endswith(".py")]
    assert len(sources) > 5
    assert not [text for text in sources if 'probes="all"' in text or "probes=['all'" in text]


def test_what_shows_numbers_counts_for_no_digest() -> None:
    assert {Screen, Sentence, Showable} <= set(VESSELS)
