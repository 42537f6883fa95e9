"""Keep a model healthy in the tests of its repository.

    from leadline.testing import assert_healthy

    def test_the_model_is_healthy():
        assert_healthy(build_model(), fail_on="warning", ignore=["A09"])

The pytest plug-in of the same package hands `assert_healthy` over as a fixture.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from leadline.errors import InputError

if TYPE_CHECKING:
    from torch import nn

    from leadline.models.loading import LoadedModel
    from leadline.reading.diagnosis.diagnosis import Diagnosis
    from leadline.record import Record
    from leadline.record.rows.finding import Severity

__all__ = ["assert_healthy"]


def assert_healthy(
    model: nn.Module | LoadedModel | Record,
    inputs: Any = None,
    *,
    fail_on: Severity = "serious",
    ignore: Sequence[str] = (),
    select: Sequence[str] = (),
    **options: Any,
) -> Diagnosis:
    """Diagnose a model, or a record, and raise AssertionError with the findings if there are any.

    Findings below the severity `fail_on` are let pass; `ignore` and `select` are codes or names of
    rules. Further options are those of `leadline.diagnose`. Returns the diagnosis.
    """
    __tracebackhide__ = True  # pytest shows the line of the test
    from leadline.instruments.visit.diagnose import diagnose
    from leadline.reading.diagnosis.diagnosis import Diagnosis
    from leadline.record.rows.finding import SEVERITIES

    if fail_on not in SEVERITIES:
        raise InputError(f"fail_on is {fail_on!r}; give one of {', '.join(SEVERITIES)}.")
    diagnosis = diagnose(model, inputs, select=select, ignore=ignore, **options)
    if not diagnosis.worse_than(fail_on):
        return diagnosis
    limit = SEVERITIES.index(fail_on)
    faults = tuple(one for one in diagnosis.findings if SEVERITIES.index(one.severity) <= limit)
    told = Diagnosis(faults, diagnosis.coverage, diagnosis.record)
    codes = ", ".join(dict.fromkeys(f'"{one.code}"' for one in faults if one.code))
    raise AssertionError(
        f"{told.in_full()}\n\nIf this is as it should be: assert_healthy(..., ignore=[{codes}])."
    )
