"""Numbers and symbols as the report writes them."""

from __future__ import annotations

import math

import pytest

from leadline.reading.show.wording import count, number, statistic_in_words, times, with_indices


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (0.0, "0"),
        (1.0, "1.00"),
        (41.34, "41.3"),
        (-41.34, "−41.3"),
        (0.00123, "0.00123"),
        (0.000999, "9.99×10⁻⁴"),
        (1.254e-7, "1.25×10⁻⁷"),
        (99_949.0, "99900"),
        (99_960.0, "1.00×10⁵"),
        (9.999, "10.0"),
        (2.5e12, "2.50×10¹²"),
        (math.nan, "NaN"),
        (math.inf, "∞"),
        (-math.inf, "−∞"),
    ],
)
def test_a_number_is_written_with_three_digits(value: float, written: str) -> None:
    assert number(value) == written


@pytest.mark.parametrize("value", [3.14159, 0.0271828, 1234.5678, 6.02214e23, 1.6e-19])
def test_a_written_number_reads_back_to_its_last_digit(value: float) -> None:
    mantissa, _, power = number(value, digits=4).partition("×10")
    exponent = int(power.translate(str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")) or "0")
    assert float(mantissa) * 10.0**exponent == pytest.approx(value, rel=5e-4)


def test_counts_are_said_in_words() -> None:
    assert count(950) == "950"
    assert count(45_000) == "45,000"
    assert count(124_439_808) == "124 million"
    assert count(7_240_000_000) == "7.24 billion"


def test_ratios_lose_digits_as_they_grow() -> None:
    assert times(1.043) == "1.04 times"
    assert times(312.7) == "310 times"


def test_a_statistic_without_words_of_its_own_is_said_plainly() -> None:
    assert statistic_in_words("median_without_first") == "median without first token"
    assert statistic_in_words("upper_quartile") == "upper quartile"


@pytest.mark.parametrize(
    ("plain", "set_text"),
    [
        ("‖x_l‖", "‖x<sub>l</sub>‖"),
        ("cos(x_{l−1}, x_l)", "cos(x<sub>l−1</sub>, x<sub>l</sub>)"),
        ("‖C‖_F² / n", "‖C‖<sub>F</sub>² / n"),
        ("x_l^{(k)}", "x<sub>l</sub><sup>(k)</sup>"),
        ("l^-0.5", "l<sup>-0.5</sup>"),
        ("mean_without_first", "mean_without_first"),
        ("2 a b", "2 a b"),
    ],
)
def test_indices_are_lowered_and_exponents_raised(plain: str, set_text: str) -> None:
    assert with_indices(plain) == set_text
