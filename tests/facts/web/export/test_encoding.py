"""The short form of the curves, against the parts that the server sends."""

from __future__ import annotations

import math
from typing import Any

import pytest

from leadline.web.export.encoding import LabelList, decoded_parts, encoded_parts, rounded
from leadline.web.playground.answer import parts_of
from leadline.web.playground.design import Design

CASES: list[dict[str, Any]] = [
    {"depth": 3},
    {"depth": 4, "connection": "none", "norm": "none", "placement": "none", "mlp": "none"}
    | {"mask": "full", "init": "xavier", "heads": 1},  # residuals below the range of floats
    {"depth": 3, "placement": "parallel"},  # one write in each block
    {"depth": 6, "gain": 0.0},
]


def same(one: object, two: object) -> bool:
    """Whether the values are the same to the digits of the export."""
    if isinstance(one, float | int) and isinstance(two, float | int):
        return math.isclose(one, two, rel_tol=5.1e-6, abs_tol=0.0)
    if isinstance(one, dict) and isinstance(two, dict):
        return set(one) == set(two) and all(same(one[name], two[name]) for name in one)
    if isinstance(one, list | tuple) and isinstance(two, list | tuple):
        return len(one) == len(two) and all(map(same, one, two))
    return one == two


@pytest.mark.parametrize("fields", CASES, ids=str)
def test_what_is_decoded_is_what_the_server_sends(fields: dict[str, Any]):
    parts = list(parts_of(fields))
    words = LabelList()
    short = encoded_parts(parts, words)
    back = decoded_parts(short, words.to_json(), Design.from_json(fields).to_json())
    del parts[0]["facts"]["seconds"]
    assert [part["part"] for part in back] == [part["part"] for part in parts]
    for part, other in zip(parts, back, strict=True):
        assert same(part, other)


@pytest.mark.parametrize(
    ("value", "short"),
    [
        (1234567.0, 1234570.0),
        (0.1234564, 0.123456),
        (2.0, 2),
        (-1.0000001, -1),
        (1e300, 1e300),
        (math.inf, None),
        (math.nan, None),
        (None, None),
    ],
)
def test_numbers_have_six_digits(value: float | None, short: float | None):
    assert rounded(value) == short


def line(values: list[float | None], layers: list[int], **more: Any) -> dict[str, Any]:
    return {"label": "one", "layers": layers, "values": values, **more}


@pytest.mark.parametrize(
    "one",
    [
        line([1.0, 1.0, 1.0], [1, 2, 3]),
        line([None, None], [0, 1]),
        line([1.5], [7]),
        line([1.5, 2.5, 3.5], [1, 3, 9]),
        line([1.5, None], [2, 1]),
        line([1.5, 2.5], [0, 2], exponents=[0.0, 0.0]),
        line([1.5, 2.5], [0, 1], exponents=[-400.0, -400.0]),
        line([], []),
    ],
    ids=str,
)
def test_every_shape_of_a_line_comes_back(one: dict[str, Any]):
    words = LabelList()
    facts = {"parameters": 1}
    parts = [
        {"part": "curves", "curves": [{"quantity": "q", "series": [one]}], "facts": facts},
        {"part": "verdict", "verdict": {"level": "note"}},
        {"part": "laws", "laws": []},
        {"part": "end"},
    ]
    short = encoded_parts(parts, words)
    back = decoded_parts(short, words.to_json(), {})
    assert back[0]["curves"][0]["series"] == [one]
