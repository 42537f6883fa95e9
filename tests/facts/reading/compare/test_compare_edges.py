"""What a comparison says of records that are broken, empty, unfinished, alike, or of other depth."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING

import pytest

from leadline.reading.compare.answer import comparison_answer
from leadline.reading.compare.compare import compare
from leadline.record import Quantity, Reading, Record, Site

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_QUANTITIES = {
    "gradient.stream": Quantity(
        "gradient.stream", "Gradient of the stream", "g", "g", scale="log", leads=True
    ),
    "stream.norm": Quantity("stream.norm", "Norm of the stream", "x", "x", scale="log", leads=True),
    "collapse.log10_norm": Quantity(
        "collapse.log10_norm", "Logarithm of the norm", "l", "l", unit="log10"
    ),
}


@pytest.fixture(autouse=True)
def _without_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def record(name: str, lines: dict[str, list[float]], *, first_layer: int = 0) -> Record:
    made = Record()
    made.note("model", {"name": name})
    for quantity, values in lines.items():
        made.describe(_QUANTITIES[quantity])
        made.append(
            Reading(quantity, Site("decoder", first_layer + at), "mean", value)
            for at, value in enumerate(values)
        )
    return made


def norms(name: str, values: Iterable[float]) -> Record:
    return record(name, {"stream.norm": list(values)})


def gradients(name: str, values: list[float]) -> Record:
    return record(name, {"gradient.stream": values, "stream.norm": [1.0] * len(values)})


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_gradients_that_are_not_finite_are_told_with_record_and_place(value: float) -> None:
    comparison = compare(gradients("A", [1.0] * 5), gradients("B", [value, value, 1, 1, value]))
    first, *_ = comparison_answer(comparison)
    assert first.startswith("B has gradients that are not finite, A has not: ")
    assert "in B it is not finite at layers 0 to 1, 4." in first
    assert "Neither" not in str(comparison)
    side = comparison.to_json()["rows"][0]["records"][1]
    assert side["not_finite_layers"] == [0, 1, 4]


def test_gradients_of_zero_are_not_called_healthy() -> None:
    first, *_ = comparison_answer(compare(gradients("A", [1.0] * 3), gradients("B", [0.0] * 3)))
    assert first.startswith("B has gradients that are 0, A has not: ")


def test_the_ratio_is_that_of_the_last_layer_both_have() -> None:
    # Both models have four layers; the line of B ends one layer earlier.
    long, short = norms("A", [1, 1, 1, 1, 8]), norms("B", [1, 1, 1, 2])
    short.note("anatomy", {"stacks": {"decoder": {"depth": 4}}})
    [row] = compare(long, short).rows
    side = row.sides[1]
    assert side is not None
    assert (side.ends[-1].layer, side.ratio_at_last) == (3, 2.0)
    data = compare(long, short).to_json()["rows"][0]["records"][1]
    assert (data["compared_layers"], data["ratio_at_last"]) == ([0, 3], 2.0)


@pytest.mark.parametrize(
    ("size", "other", "told"),
    [(1e-200, 1e-201, "0.1 times"), (1e300, 1e-300, "10^-600 times"), (1e-13, 1e14, "10^27 times")],
)
def test_ratios_of_tiny_and_huge_values_are_told(size: float, other: float, told: str) -> None:
    *_, last = comparison_answer(compare(norms("A", [size] * 3), norms("B", [other] * 3)))
    assert f"at layer 0 B has {told} the value of A" in last


def test_other_depths_are_told_with_the_layers_of_both() -> None:
    # 20 of 20 layers and 24 of 24 are the same share; 5 of 20 is 6 of 24.
    comparison = compare(norms("A", [1.0] * 25), norms("B", [1.0] * 20 + [5.0]))
    *_, last = comparison_answer(comparison)
    assert "at the same share of depth (A layer 24, B layer 20) B has 5 times" in last
    assert "×5 @24|20" in str(comparison)
    assert "@l|m: layer l of A and layer m of the other, at the same share of depth" in str(
        comparison
    )
    most = comparison.to_json()["rows"][0]["records"][1]["differs_most"]
    assert (most["layer"], most["layer_of_first"], most["ratio"]) == (20, 24, 5.0)
    between = compare(norms("A", [1, 1, 1]), norms("B", [1, 1, 1, 9, 1]))
    assert "(A between layers 1 and 2, B layer 3)" in comparison_answer(between)[-1]


def test_identical_records_are_called_identical() -> None:
    comparison = compare(gradients("A", [1, 2, 3]), gradients("B", [1, 2, 3]))
    assert comparison_answer(comparison)[0] == "The two are identical."
    assert "differ" not in str(comparison)
    more = record("B", {"stream.norm": [1, 1, 1], "gradient.stream": [1, 2, 3]})
    part = compare(norms("A", [1, 1, 1]), more)
    assert comparison_answer(part)[0] == "The two are identical in all that they share."


def test_rounding_is_not_told_as_a_difference() -> None:
    told = comparison_answer(compare(norms("A", [1, 2, 4]), norms("B", [1, 2, 4 * (1 + 3e-7)])))
    assert told[0] == "Nothing differs by more than 3.0e-7 of its size."
    assert not any("largest difference" in one for one in told)


def test_empty_records_hold_nothing_to_compare() -> None:
    text = str(compare(Record(), Record(), names=["A", "B"]))
    assert "A and B hold no readings: there is nothing to compare." in text


def test_an_unfinished_record_is_told_first() -> None:
    open_one = norms("B", [1, 2, 3])
    open_one.note("unfinished", {"parts": 25, "finished": {str(at): 1 for at in range(21)}})
    first, *_ = comparison_answer(compare(norms("A", [1, 2, 3]), open_one))
    assert first.startswith("B is unfinished")
    assert "21 of 25 parts" in first


def test_logarithms_are_compared_by_their_difference() -> None:
    one, two = (
        record(name, {"collapse.log10_norm": values})
        for name, values in (("A", [-1.0, -2.0, -4.0]), ("B", [-1.0, -3.0, -12.0]))
    )
    comparison = compare(one, two)
    assert "at layer 2 B is 8 below A" in comparison_answer(comparison)[-1]
    [row] = [line for line in str(comparison).splitlines() if line.startswith("collapse")]
    assert row.split()[-2:] == ["-8", "@2"]
    assert "×" not in row


def test_in_little_room_gradients_show_the_value_that_vanishes() -> None:
    comparison = compare(gradients("A", [1e-7, 1, 1]), gradients("B", [0.5, 1, 1]))
    table = comparison.table().text(50)
    [row] = [line for line in table.splitlines() if line.startswith("gradient")]
    assert "1.00e-7" in row
    assert "→" not in row
    legend = " ".join(table.split())
    assert "values: at the last layer, of gradients at the first" in legend


def test_a_single_value_is_no_line() -> None:
    text = str(compare(norms("A", [1.5]), norms("B", [2.5])))
    [row] = [line for line in text.splitlines() if line.startswith("stream.norm")]
    assert row.split()[1:3] == ["1.5", "2.5"]


def test_records_of_one_model_are_told_apart_by_what_wrote_them() -> None:
    name = "a model with quite a long name"
    one, two = norms(name, [1, 2, 3]), norms(name, [1, 2, 6])
    one.note("probes", {})
    two.note("instrument", {"name": "jacobian"})
    comparison = compare(one, two)
    assert comparison.names == (f"{name} (measure)", f"{name} (jacobian)")
    title = str(comparison).splitlines()[0]
    assert title == f"A: {name} (measure); B: {name} (jacobian)"
