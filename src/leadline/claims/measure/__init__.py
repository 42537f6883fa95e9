"""How claims are measured: functions grouped by topic, each under `measures("claim-name")`."""

from __future__ import annotations

from leadline.claims.catalog import TEXTS, read_texts

for _path in sorted(TEXTS.glob("*.toml")):
    if not (TEXTS.parent / _path.stem).is_dir():  # a group that has not been moved here yet
        read_texts(_path)
