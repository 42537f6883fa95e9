"""Material for tests, also for those of others: `assert_healthy`, tiny models, contract checks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leadline.testing.health import assert_healthy

__all__ = ["assert_healthy"]


def __getattr__(name: str) -> Any:
    # Imported when it is asked for: the pytest plug-in in this folder is loaded at every start.
    if name == "assert_healthy":
        from leadline.testing.health import assert_healthy

        return assert_healthy
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
