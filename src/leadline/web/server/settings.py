"""How a lab is set up: what it shows, what it allows, and which functions answer it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import leadline.web

__all__ = ["LabCalls", "LabSettings"]


@dataclass(frozen=True)
class LabCalls:
    """The functions that run in other processes, as `module:function`.

    The server knows the playground and the lessons by these names alone, and imports none of them.
    """

    knobs: str = "leadline.web.playground.knobs:knobs_json"
    curves: str = "leadline.web.playground.answer:parts_of"
    train: str = "leadline.web.playground.training:train_live"
    lessons: str = "leadline.web.lessons:lessons_json"
    lesson: str = "leadline.web.lessons:lesson_json"
    diagnose: str = "leadline.web.server.diagnosing:diagnose_events"


@dataclass(frozen=True)
class LabSettings:
    """What one server of the lab shows and allows.

    `folder` and `files` are the records that it shows, `code` whether code that a request names may
    run, `framed_by` the origins that may show the page in a frame, `limit` the seconds that one
    computation of curves may take.
    """

    folder: Path | None = None
    files: tuple[Path, ...] = ()
    code: bool = False
    plugins: tuple[Path, ...] = ()
    framed_by: tuple[str, ...] = ()
    limit: float = 20.0
    reading_limit: float = 60.0
    debug: bool = False
    pages: Path = Path(leadline.web.__file__).parent / "pages"
    calls: LabCalls = field(default_factory=LabCalls)
