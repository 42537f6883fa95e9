"""What a record answers in words: values made by formula, so that each sentence can be worked out."""

from __future__ import annotations

import math

import pytest

from leadline.record import Quantity, Reading, Record, Site
from leadline.record.words.answer import answer
from leadline.record.words.screen import MOST_ROWS

STREAM = Quantity("stream.norm", "Stream norm", "x", "x", scale="log", leads=True)
GRADIENT = Quantity("gradient.stream", "Gradient", "g", "g", scale="log", leads=True)
COSINE = Quantity("tokens.cosine", "Token cosine", "c", "c", leads=True, better="low")


def record_of(**lines: list[float]) -> Record:
    """A record with the lines `stream`, `gradient` and `cosine`, layer 0 first."""
    record = Record()
    named = {"stream": STREAM, "gradient": GRADIENT, "cosine": COSINE}
    for name, values in lines.items():
        record.describe(named[name])
        record.append(
            Reading(named[name].name, Site("decoder", layer), "mean", value)
            for layer, value in enumerate(values)
        )
    return record


def test_a_gradient_that_halves_in_each_of_ten_layers_vanishes_evenly() -> None:
    # From layer 10 back to layer 0: 2^10 = 1024, half of it in half of the layers.
    record = record_of(gradient=[2.0**layer for layer in range(11)])
    assert answer(record) == [
        "Gradients vanish: the gradient shrinks 1000-fold from layer 10 to layer 0."
    ]


def test_a_stream_that_doubles_in_each_of_ten_layers_explodes() -> None:
    record = record_of(stream=[2.0**layer for layer in range(11)])
    assert answer(record) == [
        "The signal explodes: the stream norm grows 1000-fold from layer 0 to layer 10."
    ]


def test_a_jump_is_named_with_its_step() -> None:
    # Nothing but one step, from layer 3 to layer 4, and a thousandfold there.
    record = record_of(stream=[1.0] * 4 + [1000.0] * 5)
    (sentence,) = answer(record)
    assert sentence == (
        "The signal explodes: the stream norm grows 1000-fold from layer 0 to layer 4, most of it "
        "in the step from layer 3 to 4."
    )


def test_a_gradient_that_is_exactly_zero_has_vanished_where_it_first_is() -> None:
    record = record_of(gradient=[0.0, 0.0, 0.0, 1.0, 1.0])
    assert answer(record) == [
        "Gradients vanish: the gradient is 0, or too small to be kept, from layer 2 to layer 0."
    ]


def test_tokens_become_equal_where_they_stay_so() -> None:
    # A cosine of 0.995 leaves sqrt(0.005) = 0.07 of their size; a dip at layer 1 does not count.
    record = record_of(cosine=[0.1, 0.999, 0.5, 0.995, 0.999])
    assert answer(record) == [
        "Tokens become equal: the token cosine is 0.99 at layer 3 and stays there or beyond."
    ]


def test_flat_lines_have_nothing_wrong() -> None:
    flat = [1.0, 1.02, 0.99, 1.01]
    sentences = answer(record_of(stream=flat, gradient=flat, cosine=[0.1, 0.2, 0.15, 0.2]))
    assert (
        sentences[0] == "Neither signal nor gradient vanishes or explodes, and tokens stay apart."
    )
    assert sentences[1:] == [
        "The gradient keeps its size within 2 %.",
        "The stream norm keeps its size within 2 %.",
    ]


@pytest.mark.parametrize("bad", [math.inf, math.nan])
def test_values_that_are_not_finite_come_first_and_nothing_is_called_well(bad: float) -> None:
    sentences = answer(record_of(stream=[1.0, 1.0, bad, bad], gradient=[1.0, 1.0, 1.0, 1.0]))
    assert sentences[0] == "Values that are not finite appear from layer 2 on (Stream norm)."
    assert not any("Neither" in sentence for sentence in sentences)


def test_the_first_screen_has_the_answer_before_its_rows_and_fits_a_terminal() -> None:
    record = record_of(stream=[1.0, 2.0, 4.0])
    for number in range(30):
        name = f"other.line{number}"
        record.describe(Quantity(name, name, "o", "o"))
        record.append(Reading(name, Site("decoder", layer), "mean", layer) for layer in range(3))
    lines = str(record).splitlines()
    first_row = next(at for at, line in enumerate(lines) if line.startswith("stream.norm"))
    assert any("The stream norm grows 4-fold" in line for line in lines[:first_row])
    assert sum(line.startswith(("stream.", "other.")) for line in lines) == MOST_ROWS
    assert len(lines) <= 25
