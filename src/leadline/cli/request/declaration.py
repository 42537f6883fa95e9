"""The option `--declare`: the user's own declaration of the anatomy, as JSON or in a file."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import TYPE_CHECKING

from leadline.errors import AnatomyError

if TYPE_CHECKING:
    from leadline.anatomy import Declaration

__all__ = ["read_declaration"]


def read_declaration(text: str | None) -> Declaration | None:
    """Read `--declare`: the arguments of `leadline.declare` as JSON, or a file that holds them."""
    if text is None:
        return None
    place = "--declare"
    if not text.lstrip().startswith("{"):
        place = text
        try:
            text = Path(text).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise AnatomyError(f"The declaration {place} cannot be read: {error}.") from error
    try:
        given = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise AnatomyError(f"The declaration in {place} is not JSON: {error}.") from error
    from leadline.anatomy import declare

    known = inspect.signature(declare).parameters
    needed = [key for key, value in known.items() if value.default is value.empty]
    if not isinstance(given, dict) or not set(needed) <= set(given) <= set(known):
        raise AnatomyError(
            f"The declaration in {place} must be an object with {' and '.join(needed)}, and may "
            f"have {', '.join(key for key in known if key not in needed)}; "
            f"it has {', '.join(map(str, given)) if isinstance(given, dict) else 'none of them'}."
        )
    return declare(**given)
