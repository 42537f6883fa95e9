"""Provenance: JSON in, the same JSON out."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline.errors import RecordError
from leadline.record import Record
from leadline.record.provenance import (
    decode,
    encode,
    number_at,
    strict_json,
    text_at,
    value_at,
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(json_values)
def test_any_json_value_comes_back(value: object) -> None:
    assert repr(decode(encode("k", value))) == repr(value)


@given(json_values)
def test_strict_form_is_strict_json(value: object) -> None:
    json.dumps(strict_json(value), allow_nan=False)


def test_strict_form_says_which_number_it_was() -> None:
    value = {"a": [math.nan, math.inf, -math.inf, 1.5, True, "NaN"]}
    assert strict_json(value) == {"a": [None, "Infinity", "-Infinity", 1.5, True, "NaN"]}


def test_values_of_other_libraries_become_json() -> None:
    value = {"n": np.int64(3), "x": np.float32(0.5), "p": Path("a/b"), "t": (1, 2), 5: None}
    assert decode(encode("k", value)) == {"n": 3, "x": 0.5, "p": "a/b", "t": [1, 2], "5": None}


@pytest.mark.parametrize("value", [{1, 2}, object(), b"raw", [1j]])
def test_what_is_not_json_is_refused_with_its_key(value: object) -> None:
    record = Record()
    with pytest.raises(RecordError, match="provenance entry 'model' cannot be kept as JSON"):
        record.note("model", value)
    assert record.provenance == {}


def test_paths_into_provenance_may_end_early() -> None:
    provenance = {"model": {"name": "gpt2", "parameters": 3, "tied": True}, "time": "now"}
    assert value_at(provenance, "model", "name") == "gpt2"
    assert value_at(provenance, "time", "zone") is None
    assert text_at(provenance, "model", "class") == ""
    assert number_at(provenance, "model", "parameters") == 3
    assert number_at(provenance, "model", "tied") is None
    assert number_at(provenance, "model", "name") is None
