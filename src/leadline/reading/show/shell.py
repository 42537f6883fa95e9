"""The shell of every page: one self-contained HTML file that asks for nothing.

Style, scripts and data stand inside the file. Its content security policy forbids every request and
allows only the scripts whose SHA-256 is in the policy, so that no text of a record can become a
program.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from importlib import resources
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["BRAND", "FOOTER", "page_asset", "page_shell"]

# Runs before the page is painted, so that a chosen theme does not flash.
_EARLY = """\
document.documentElement.classList.add("js");
try { const t = localStorage.getItem("leadline-theme"); if (t === "dark" || t === "light") document.documentElement.dataset.theme = t; } catch { }"""
BRAND = (
    '<span class="brand"><svg viewBox="0 0 20 20" aria-hidden="true" fill="none" '
    'stroke="currentColor" stroke-width="1.8" stroke-linecap="round">'
    '<path d="M10 1v9M6.5 3.5h7M7.5 6.5h5"/>'
    '<path d="M10 10l3.2 8H6.8z" fill="currentColor" stroke-linejoin="round"/></svg>Leadline</span>'
)
FOOTER = (
    "Made by Leadline, the depth gauge for Transformers. This file is complete: it loads nothing."
)


def page_shell(
    *, title: str, body: str, styles: Sequence[str], scripts: Sequence[str], data: Mapping[str, Any]
) -> str:
    """Return the page as text: `title` and `body` are HTML, `data` what the scripts read.

    The scripts run in their order, when all of the body is there.
    """
    programs = [re.sub(r"</(?=script)", r"<\\/", one, flags=re.IGNORECASE) for one in scripts]
    policy = "; ".join(
        [
            "default-src 'none'",
            "script-src " + " ".join(map(_fingerprint, [_EARLY, *programs])),
            "style-src 'unsafe-inline'",
            "img-src data: blob:",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
    sheets = "".join(f"<style>{style}</style>\n" for style in styles)
    tail = "".join(f"<script>{program}</script>\n" for program in programs)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="generator" content="leadline">\n'
        f"{title}\n{sheets}<script>{_EARLY}</script>\n</head>\n<body>\n{body}\n"
        f'<script type="application/json" id="leadline-data">{_embed(data)}</script>\n'
        f"{tail}</body>\n</html>\n"
    )


def page_asset(package: str, name: str) -> str:
    """Read a style or a script that comes with the package."""
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")


def _embed(payload: Mapping[str, Any]) -> str:
    """JSON that cannot end its script block: no <, > or & stands in it as such."""
    text = json.dumps(payload, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def _fingerprint(script: str) -> str:
    digest = hashlib.sha256(script.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"
