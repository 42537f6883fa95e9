"""Where the numbers came from: one JSON value per key.

Values are kept as JSON text. A float that is not finite is written as `NaN` or `Infinity`, which
Python reads back as it was; the JSON report turns it into strict JSON.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any, cast

import numpy as np

from leadline.errors import MOST_NESTED, RecordError, check_text, is_nested_deeply

__all__ = [
    "decode",
    "encode",
    "number_at",
    "strict_json",
    "strict_number",
    "text_at",
    "value_at",
]


def encode(key: str, value: object) -> str:
    """Turn one provenance entry into JSON text."""
    check_text(key, "The name of a provenance entry", error=RecordError)
    if is_nested_deeply(value):
        raise RecordError(
            f"The provenance entry {key!r} holds more than {MOST_NESTED} lists and mappings inside "
            "each other; keep something flatter."
        )
    try:
        text = json.dumps(_plain(value), ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise RecordError(
            f"The provenance entry {key!r} cannot be kept as JSON: {error}. "
            "Use numbers, strings, lists and mappings."
        ) from error
    check_text(text, f"The provenance entry {key!r}", error=RecordError)
    return text


def decode(text: str) -> Any:
    """Turn the JSON text of one provenance entry back into its value."""
    return json.loads(text)


def value_at(provenance: Mapping[str, Any], *keys: str) -> Any | None:
    """Follow the keys into nested mappings; None where the path ends early."""
    here: Any = provenance
    for key in keys:
        if not isinstance(here, Mapping):
            return None
        here = cast(Mapping[str, Any], here).get(key)
    return here


def text_at(provenance: Mapping[str, Any], *keys: str) -> str:
    """Return the text at the path; empty where there is none."""
    value = value_at(provenance, *keys)
    return "" if value is None else str(value)


def number_at(provenance: Mapping[str, Any], *keys: str) -> float | None:
    """Return the number at the path; None where there is none."""
    value = value_at(provenance, *keys)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value


def strict_number(value: float) -> float | str | None:
    """Return a number that strict JSON can hold: NaN is null, infinities are strings."""
    if math.isnan(value):
        return None
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return float(value)


def strict_json(value: Any) -> Any:
    """Return the same JSON value with every number as strict JSON can hold it."""
    if isinstance(value, float):
        return strict_number(value)
    if isinstance(value, Mapping):
        items = cast(Mapping[str, Any], value)
        return {key: strict_json(item) for key, item in items.items()}
    if isinstance(value, list):
        return [strict_json(item) for item in cast(list[Any], value)]
    return value


def _plain(value: object) -> object:
    if isinstance(value, np.generic):
        return cast(object, value.item())
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        items = cast(Mapping[object, object], value)
        return {str(key): _plain(item) for key, item in items.items()}
    if isinstance(value, str | bytes):
        return value
    if isinstance(value, Set):
        raise TypeError("a set has no order")
    if isinstance(value, Sequence):
        return [_plain(item) for item in cast(Sequence[object], value)]
    return value
