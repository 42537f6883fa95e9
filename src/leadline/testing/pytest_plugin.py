"""The pytest plug-in: a fixture `assert_healthy` for the tests of a model repository.

pytest imports this file at every start, so it imports nothing but pytest; torch and Leadline come
when a test asks for the fixture.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from leadline.reading.diagnosis.diagnosis import Diagnosis


@pytest.fixture
def assert_healthy() -> Callable[..., Diagnosis]:
    """Hand over `leadline.testing.assert_healthy`: fails with the findings in words."""
    from leadline.testing.health import assert_healthy as check

    def check_health(model: Any, inputs: Any = None, **options: Any) -> Diagnosis:
        __tracebackhide__ = True
        return check(model, inputs, **options)

    return check_health
