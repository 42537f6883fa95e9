"""Ten short lessons on depth, in three languages, with live figures and measured claims.

The texts are TOML files, one per lesson and language (`texts/`); `lesson` says of what parts a
lesson is made, `reading` reads and checks the files, `serving` turns a lesson into the JSON that
the page shows: formulas as MathML, numbers filled in, verdicts as the ledger gives them now.
"""

from __future__ import annotations

from leadline.web.lessons.lesson import LANGUAGES
from leadline.web.lessons.serving import lesson_json, lessons_json

__all__ = ["LANGUAGES", "lesson_json", "lessons_json"]
