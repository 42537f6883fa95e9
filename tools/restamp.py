"""Give the lines of a ledger of claims the digests that the code has now. Measures nothing.

    python tools/restamp.py src/leadline/claims/measured.jsonl

For one case alone: the way in which digests are made has changed, and the code that measures has
not. The numbers, curves and times of the file are kept as they are, so after any other change the
file would say that the new code measured what the old one did. Then measure again:
`leadline claims run --all --record FILE`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from leadline.claims import CLAIMS
from leadline.claims.catalog import trials
from leadline.claims.digest import code_digest, trial_digest


def restamp(rows: list[str]) -> tuple[list[str], int]:
    """The lines with the digests of the present code, and how many of them had another."""
    digests = {
        ("claim", name): code_digest(entry)
        for name, entry in CLAIMS.items()
        if entry.measure is not None
    }
    digests |= {("trial", name): trial_digest(one) for name, one in trials(CLAIMS.names()).items()}
    stamped: list[str] = []
    changed = 0
    for row in rows:
        line = json.loads(row)
        digest = digests[line["kind"], line["name"]]
        changed += line["code"] != digest
        line["code"] = digest
        line.pop("own", None)  # a second digest, which older ledgers have
        stamped.append(json.dumps(line, ensure_ascii=False, allow_nan=False))
    return stamped, changed


def main() -> None:
    """Rewrite the file that is named."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("ledger", type=Path)
    path: Path = parser.parse_args().ledger
    rows, changed = restamp(path.read_text(encoding="utf-8").splitlines())
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    print(f"{path}: {changed} of {len(rows)} lines have another digest now; nothing was measured.")


if __name__ == "__main__":
    main()
