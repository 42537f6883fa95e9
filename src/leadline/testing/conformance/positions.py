"""What positions must say: how many tokens there are positions for, and refuse more."""

from __future__ import annotations

import torch

from leadline.errors import InputError
from leadline.testing.conformance._case import CONTEXT, PartCase
from leadline.testing.conformance._check import Failed, Question, require

__all__ = ["questions"]


def questions(case: PartCase) -> list[Question]:
    """The checks of positions on their own."""
    return [("limit", lambda: _limit(case))]


def _limit(case: PartCase) -> str:
    model = case.fresh
    limit = model.context_limit
    require(
        limit is None or limit == CONTEXT,
        f"limit is {limit!r} for a context of {CONTEXT}; it is that number, or None for no limit",
    )
    longer = case.inputs(1, CONTEXT + 1)
    with torch.no_grad():
        if limit is None:
            require(
                bool(model(longer).isfinite().all()),
                "limit is None, and beyond the context values are not finite",
            )
            return "none"
        try:
            model(longer)
        except InputError:
            return f"{limit} tokens, more are refused"
    raise Failed(f"limit is {limit}, and more tokens are not refused")
