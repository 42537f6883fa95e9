"""Write a text to a file in one step: a reader finds the old file or the new one, never a half."""

from __future__ import annotations

import os
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING

from leadline.errors import RecordError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["write_text_file"]


def write_text_file(path: Path, text: str, *, problem: str) -> None:
    """Write the text, or raise the `problem` with its reason. Never replaces a device or a pipe."""

    def refusal(reason: str) -> RecordError:
        return RecordError(
            f"{problem}: {reason}. Choose a file in a folder that exists and can be written."
        )

    if path.is_dir():
        raise refusal("it is a folder")
    # Replacing /dev/null by a file would break the machine for everybody.
    if path.exists() and not path.is_file():
        raise refusal("it is not a regular file")
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}.partial")
    try:
        partial.write_text(text, encoding="utf-8", newline="")
        os.replace(partial, path)  # noqa: PTH105 (the atomic call, by its own name)
    except OSError as error:
        raise refusal(error.strerror or str(error)) from error
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
