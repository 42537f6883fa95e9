"""What a record answers in words: values made by formula, so that each sentence can be worked out."""

from __future__ import annotations

import math

import pytest

from leadline.record import Quantity, Reading, Record, Site
from leadline.record.rows.site import RUN
from leadline.record.run.training import TOKEN_COSINE, VALIDATION_LOSS
from leadline.record.words.answer import answer
from leadline.record.words.screen import MOST_ROWS
from leadline.record.words.summary import summarize
from leadline.record.words.text import depth_table

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
        "Tokens become nearly equal: the token cosine is above 0.99 from layer 3 on."
    ]


def test_flat_lines_have_nothing_wrong() -> None:
    flat = [1.0, 1.02, 0.99, 1.01]
    sentences = answer(record_of(stream=flat, gradient=flat, cosine=[0.1, 0.2, 0.15, 0.2]))
    assert (
        sentences[0] == "Neither signal nor gradient vanishes or explodes, and tokens stay apart."
    )
    assert sentences[1:] == [
        "The gradient keeps its size within 3 %.",  # 1.01 / 0.99 is 2.02 % above 1
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
    assert "all: print(record.table())" in str(record)  # an option of the command is none of Python


def travel(values: list[float], *, backward: bool = False) -> str:
    """The sentence about the way of a line, the last one of the answer."""
    return answer(record_of(**{"gradient" if backward else "stream": values}))[-1]


def test_a_line_that_turns_is_told_from_turn_to_turn() -> None:
    # 1 to 100, then 100 to 0.0098: up a hundredfold, and down 100 / 0.0098 = 10204-fold.
    assert travel([1, 10, 100, 1, 0.0098]) == (
        "The signal vanishes: the stream norm grows 100-fold from layer 0 to layer 2, most of it in "
        "the step from layer 0 to 1, then shrinks 10000-fold to layer 4."
    )


def test_a_fall_between_two_layers_counts_wherever_the_line_began() -> None:
    # Neither end is a hundredfold from the start, but 99 to 1 / 99 is a fall of 99^2 = 9801.
    assert travel([1, 99, 1 / 99]) == (
        "The signal vanishes: the stream norm grows 99-fold from layer 0 to layer 1, then shrinks "
        "9800-fold to layer 2."
    )


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([1, 1, 0, 1, 1], "at layer 2; elsewhere it keeps its size within 0 %."),
        ([0, 0, 1, 0, 1], "at layers 3, 1 and 0; elsewhere it keeps its size within 0 %."),
        ([0, 0, 0], "at every layer."),
    ],
)
def test_zeros_are_told_where_they_are(values: list[float], words: str) -> None:
    sentence = travel(values, backward=True)
    assert sentence == f"Gradients vanish: the gradient is 0, or too small to be kept, {words}"


def test_a_dead_gradient_of_one_stack_keeps_the_other_from_being_called_well() -> None:
    record = Record()
    for quantity in (GRADIENT, STREAM):
        record.describe(quantity)
        for stack in ("encoder", "decoder"):
            value = 0.0 if (quantity, stack) == (GRADIENT, "encoder") else 1.0
            record.append(Reading(quantity.name, Site(stack, at), "mean", value) for at in range(3))
    first, *others = answer(record)
    assert first.startswith("Gradients vanish: in the encoder the gradient is 0")
    assert not any("Neither" in sentence for sentence in others)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            [0, 1, 1e6],
            "is 0, or too small to be kept, at layer 0; elsewhere it grows 10^6-fold from",
        ),
        ([1, -1, 1e6], "is below 0 at layer 1; elsewhere it grows 10^6-fold from"),
    ],
)
def test_a_line_with_a_value_that_has_no_factor_is_still_followed(
    values: list[float], words: str
) -> None:
    assert travel(values).startswith(f"The signal explodes: the stream norm {words}")


def test_factors_beyond_float64_are_told_by_their_powers() -> None:
    assert "shrinks 10^400-fold" in travel([1e-200, 1e200], backward=True)
    record = record_of(stream=[1e-200, 1e200])
    assert "grows 10^400-fold" in answer(record)[-1]
    assert "rises ×10^400" in str(record)


def test_a_line_that_only_wanders_is_told_with_its_largest_fall() -> None:
    # 1.9 / 0.6 = 3.17, though neither is twofold from the start.
    assert travel([1.0, 1.9, 0.6]) == "The stream norm shrinks 3.2-fold from layer 1 to layer 2."


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (
            [0.1, 0.9999, 0.9999, 0.9],
            "Tokens are nearly equal on the way, but not at the end: the token cosine is above 0.99 "
            "from layer 1 to layer 2.",
        ),
        (
            [1.0] * 4,
            "Tokens are nearly equal from the first layer on: the token cosine is above 0.99 at "
            "every layer.",
        ),
    ],
)
def test_tokens_that_are_equal_anywhere_do_not_stay_apart(
    values: list[float], sentence: str
) -> None:
    told = answer(record_of(cosine=values, stream=[1.0] * 4))
    assert sentence in told
    assert not any("stay apart" in one for one in told)


@pytest.mark.parametrize(
    ("values", "where"),
    [
        ([1, 1, math.nan, 1, 1], "at layer 2"),
        ([math.inf, 1, 1, math.nan, 1], "at layers 0 and 3"),
        ([1, math.nan, math.nan, 1, 1], "from layer 1 to layer 2"),
    ],
)
def test_layers_without_a_finite_value_are_named_and_no_others(
    values: list[float], where: str
) -> None:
    sentences = answer(record_of(stream=values))
    assert sentences == [
        f"Values that are not finite appear {where} (Stream norm).",
        f"The stream norm is not finite {where}; elsewhere it keeps its size within 0 %.",
    ]


def test_a_first_token_that_is_massive_at_two_layers_is_told_at_these() -> None:
    record = Record()
    record.describe(STREAM)
    record.note("input", {"examples": 1, "tokens": 100})
    for layer in range(5):
        heavy = 50.0 if layer in (0, 3) else 1.0
        for statistic, value in (
            ("mean", (99 + heavy) / 100),
            ("mean_without_first", 1.0),
            ("median_without_first", 1.0),
        ):
            record.append([Reading("stream.norm", Site("decoder", layer), statistic, value)])
    assert answer(record)[-1].endswith("median norm of the others at layers 0 and 3.")


def test_partial_jacobians_tell_of_gradients_where_none_was_measured() -> None:
    # Half of it is lost in each of 8 blocks; behind the last one it is 1.
    record = Record()
    title = "Partial Jacobian norm to the end of the stack"
    record.describe(Quantity("jacobian.partial", title, "j", "j", scale="log"))
    record.note("anatomy", {"stacks": {"decoder": {"depth": 8}}})
    record.append(
        Reading("jacobian.partial", Site("decoder", layer), "mean", 0.5 ** (8 - layer))
        for layer in range(8)
    )
    assert answer(record) == [
        "Gradients vanish: the partial Jacobian norm to the end of the stack shrinks 260-fold from "
        "layer 8 to layer 0."
    ]


@pytest.mark.parametrize(
    ("exponent", "depth", "sentence"),
    [
        # exp(4 * 0.02) = 1.083
        (
            0.02,
            4,
            "Gradients hardly change: on their way through all 4 blocks they are multiplied by 1.08 "
            "in the direction that grows most.",
        ),
        # exp(-0.1) = 0.905
        (
            -0.1,
            1,
            "Gradients hardly change: on their way through the one block they are multiplied by "
            "0.905 in the direction that grows most.",
        ),
        # 2^3 = 8
        (
            math.log(2),
            3,
            "Gradients grow 8-fold on their way through all 3 blocks, in the direction that grows "
            "most.",
        ),
        # 2^10 = 1024
        (
            math.log(2),
            10,
            "Gradients explode: they grow 1000-fold on their way through all 10 blocks, in the "
            "direction that grows most.",
        ),
        # 10^-8
        (
            -math.log(10),
            8,
            "Gradients vanish: they shrink 10^8-fold on their way through all 8 blocks, even in the "
            "direction that shrinks least.",
        ),
        (
            -math.inf,
            2,
            "Gradients vanish: nothing of them is left on their way through all 2 blocks.",
        ),
    ],
)
def test_growth_per_block_tells_of_gradients_where_none_was_measured(
    exponent: float, depth: int, sentence: str
) -> None:
    record = Record()
    unit = "nats per block"
    record.describe(Quantity("any.exponent", "Exponent", "e", "e", unit=unit, leads=True))
    record.append(
        Reading("any.exponent", Site("decoder", layer), "mean", exponent) for layer in range(depth)
    )
    record.note("anatomy", {"stacks": {"decoder": {"depth": depth}}})
    assert sentence in answer(record)
    record.describe(
        Quantity("gradient.stream", "Gradient", "g", "g", topic="gradient", scale="log")
    )
    record.append(
        Reading("gradient.stream", Site("decoder", layer), "mean", 1.0)
        for layer in range(depth + 1)
    )
    assert sentence not in answer(record)  # what was measured of gradients themselves is told


def test_the_gauges_of_a_run_that_moved_are_in_its_answer() -> None:
    record = Record()
    for quantity, values in ((VALIDATION_LOSS, (4.0, 2.0)), (TOKEN_COSINE, (0.05, 0.977))):
        record.describe(quantity)
        record.append(
            Reading(quantity.name, RUN, "value", value, step=step)
            for step, value in zip((0, 100), values, strict=True)
        )
    assert answer(record)[-1] == (
        "Gauges that moved: the token cosine after the last layer from 0.05 to 0.977 between steps 0 "
        "and 100."
    )


def test_the_drawing_of_a_line_stays_where_words_about_it_find_no_room() -> None:
    values = [1.0, 3.0, 1.0, 9.0, 0.5, 7.0, 2.0, 30.0]
    record = record_of(stream=values)
    name = "stream.a_quantity_with_a_name_of_fifty_letters_so_long"
    record.describe(Quantity(name, name, "o", "o", scale="log"))
    record.append(Reading(name, Site("decoder", at), "mean", one) for at, one in enumerate(values))
    head = depth_table(summarize(record)).text(78).splitlines()[0]
    assert "by layer" in head and "shape" not in head


def test_the_representation_of_a_record_is_one_line() -> None:
    record = record_of(stream=[1.0, 2.0, 4.0])
    record.note("model", {"name": "my\nmodel"})
    record.note("probes", ["stream"])
    assert repr(record) == (
        r"<Record: measure of 'my\nmodel'; layers: decoder 2; 3 readings; in memory>"
    )
