"""What a page gets for a design, part by part, as soon as each part is known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from leadline.web.playground.curves import curves_of
from leadline.web.playground.design import Design, DesignError

__all__ = ["parts_of"]


def parts_of(design: Design | object) -> Iterator[dict[str, Any]]:
    """Yield curves, laws, the verdict and the end; or an error with the knob to turn.

    Takes a design or its JSON. Each part is computed when it is asked for, so that whoever no longer
    wants the rest can stop.
    """
    try:
        checked = design if isinstance(design, Design) else Design.from_json(design)
        measured = curves_of(checked)
    except DesignError as error:
        yield {"part": "error", **error.to_json()}
        return
    yield measured.to_json()
    # Here and not above: what a page waits for does not wait for these rooms to be imported.
    from leadline.web.playground.laws import laws_beside
    from leadline.web.playground.verdict import verdict_on

    yield {"part": "verdict", "verdict": verdict_on(measured).to_json()}
    yield {"part": "laws", "laws": [one.to_json() for one in laws_beside(measured)]}
    yield {"part": "end"}
