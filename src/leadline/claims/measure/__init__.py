"""How claims are measured: functions grouped by topic, each under `measures("claim-name")`."""

from __future__ import annotations

from leadline.claims.catalog import TEXTS, read_texts

for _path in sorted(TEXTS.glob("*.toml")):
    read_texts(_path)
