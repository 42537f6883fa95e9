"""What a visit saw of every attention, by stack, beside the same of the twin."""

from __future__ import annotations

from typing import Any

from leadline.reading.diagnosis.case import OUTSIDE, Case

__all__ = ["call_lines", "every_call", "twin_call"]


def every_call(case: Case) -> list[dict[str, Any]]:
    """Every attention once: modules that run several times by their first call."""
    calls: dict[str, dict[str, Any]] = {}
    for one in case.fact("attention_calls", ()):
        calls.setdefault(one["module"], one)
    return list(calls.values())


def call_lines(case: Case) -> dict[str, list[dict[str, Any]]]:
    """Self-attention whose mask could be read, by stack."""
    stacks: dict[str, list[dict[str, Any]]] = {}
    for one in every_call(case):
        if one["visible"] is not None and one.get("stack", OUTSIDE):
            stacks.setdefault(one["stack"], []).append(one)
    return stacks


def twin_call(case: Case, one: dict[str, Any]) -> dict[str, Any] | None:
    """The same attention of the twin."""
    for other in case.fact("twin_attention_calls", ()):
        if other["module"] == one["module"]:
            return other
    return None
