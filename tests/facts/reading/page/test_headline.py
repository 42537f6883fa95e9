"""The sentences at the top of the report are made from the numbers and are true."""

from __future__ import annotations

import numpy as np
import pytest

from leadline.reading.page.headline import (
    balance_sentence,
    comparing_sentences,
    facts,
    sentences,
)
from leadline.record import Quantity, Reading, Record, Site
from leadline.record.words.first_token import first_token_ratio
from tests.synthetic import broken_record, gpt2_record, t5_record


def norms(values: list[float]) -> Record:
    record = Record()
    record.describe(Quantity("stream.norm", "Stream norm", "‖x_l‖", "q", scale="log"))
    record.append(
        Reading("stream.norm", Site("decoder", at), "mean", value)
        for at, value in enumerate(values)
    )
    return record


def test_the_norm_of_the_first_token_is_recovered_from_two_means() -> None:
    record = Record()
    record.describe(Quantity("stream.norm", "Stream norm", "‖x_l‖", "q"))
    rng = np.random.default_rng(0)
    tokens = rng.uniform(1.0, 2.0, size=(3, 5, 40))  # layer, example, token
    tokens[1:, :, 0] = 500.0
    for layer, values in enumerate(tokens):
        rest = values[:, 1:]
        for statistic, value in (
            ("mean", values.mean()),
            ("mean_without_first", rest.mean()),
            ("median_without_first", np.median(rest)),
        ):
            record.append([Reading("stream.norm", Site("decoder", layer), statistic, float(value))])
    record.note("input", {"examples": 5, "tokens": 200})
    ratio = first_token_ratio(record)
    assert ratio is not None
    expected = [v[:, 0].mean() / np.median(v[:, 1:]) for v in tokens]
    np.testing.assert_allclose(ratio.values, expected, rtol=1e-9)


def test_without_the_number_of_tokens_nothing_is_said_about_the_first() -> None:
    record = gpt2_record()
    record.note("input", {"kind": "tensor"})
    assert first_token_ratio(record) is None
    assert not any("first token" in sentence for sentence in sentences(record))


def test_gradients_of_a_random_cotangent_are_the_first_thing_said() -> None:
    record = gpt2_record()
    record.note("loss", {"kind": "random cotangent", "reason": "no head was found", "value": 0.1})
    expected = "The gradients are those of a random cotangent and not of a loss, because no head was found."
    assert sentences(record)[0] == expected
    assert not any("cotangent" in sentence for sentence in sentences(gpt2_record()))


def test_a_massive_first_token_is_named_with_its_layers() -> None:
    # In the synthetic record it has 900 times the others' norm, whose median is 0.98 of it.
    (sentence,) = [
        one for one in sentences(gpt2_record(depth=12)) if one.startswith("The first token")
    ]
    assert "up to 920 times" in sentence
    assert "from layer 3 to layer 11" in sentence


def test_an_ordinary_first_token_is_not_mentioned() -> None:
    told = " ".join(sentences(gpt2_record(massive=False)))
    assert "first token" not in told


@pytest.mark.parametrize(("ratio", "told"), [(9.9, False), (10.1, True)])
def test_a_first_token_is_massive_from_ten_times_the_median_on(ratio: float, told: bool) -> None:
    record = Record()
    record.describe(Quantity("stream.norm", "Stream norm", "‖x_l‖", "q"))
    record.note("input", {"examples": 1, "tokens": 100})
    for layer in range(5):
        heavy = ratio if layer == 2 else 1.0
        for statistic, value in (
            ("mean", (99 + heavy) / 100),
            ("mean_without_first", 1.0),
            ("median_without_first", 1.0),
        ):
            record.append([Reading("stream.norm", Site("decoder", layer), statistic, value)])
    assert any("first token" in sentence for sentence in sentences(record)) == told
    if told:
        assert "up to 10 times the median norm of the others at layer 2" in sentences(record)[-2]


def test_the_structure_is_said_in_one_sentence() -> None:
    first = sentences(gpt2_record(depth=12, name="my model"))[-1]
    assert first == (
        "my model is a decoder stack of 12 layers with norms before the branches (pre-norm)."
    )
    two = sentences(t5_record())[-1]
    assert "an encoder stack of 6 layers and a decoder stack of 12 layers" in two


def test_lanes_and_parallel_branches_are_mentioned() -> None:
    record = gpt2_record()
    anatomy = record.provenance["anatomy"]
    anatomy["stacks"]["decoder"]["lanes"] = 4
    for block in anatomy["layers"]:
        block["sublayers"][1]["parallel"] = True
    record.note("anatomy", anatomy)
    first = sentences(record)[-1]
    assert "attention and MLP in parallel" in first
    assert "its stream 4 lanes wide" in first


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([1.0] * 9, "keeps its size within 0 %"),
        ([1.0, 1.1, 1.3, 1.2, 1.4], "keeps its size within a factor of 1.4"),
        ([2.0**l for l in range(9)], "grows 260-fold from layer 0 to layer 8"),
        (
            [0.319, *[11.3] * 8],
            "grows 35-fold from layer 0 to layer 1",
        ),
        (
            [*[11.3] * 8, 0.319],
            "shrinks 35-fold from layer 0 to layer 8, most of it in the step from layer 7 to 8",
        ),
        (
            [1.0, 1.0, 1.0, 1.0, 10.0, 100.0, 100.0, 100.0, 100.0, 100.0],
            "grows 100-fold from layer 0 to layer 5, most of it in the step from layer 3 to 4",
        ),
        (
            [1.0, 3.0, 8.0, 2.0, 1.0],
            "grows 8-fold from layer 0 to layer 2, most of it in the step from layer 0 to 1, "
            "then shrinks 8-fold to layer 4",
        ),
        ([1.0, 2.0], "grows 2-fold from layer 0 to layer 1"),
        ([4.0, 1.0, 0.0, 0.0], "is 0, or too small to be kept, from layer 2 to layer 3"),
    ],
)
def test_the_stream_is_said_with_its_change_and_its_place(values: list[float], words: str) -> None:
    assert f"stream norm {words}." in " ".join(sentences(norms(values)))


def test_values_that_are_not_finite_are_told_with_their_first_layer() -> None:
    told = sentences(broken_record(first_bad=5))
    assert told[0] == "Values that are not finite appear from layer 5 on (Norm of the stream)."


def test_both_stacks_are_told() -> None:
    (growth,) = [one for one in sentences(t5_record()) if "norm of the stream" in one]
    assert "n the encoder the norm of the stream" in growth
    assert "; in the decoder it" in growth


def test_an_empty_record_says_so() -> None:
    assert sentences(Record()) == ["This record holds no readings."]


def test_two_records_are_compared_in_their_stream() -> None:
    slow, fast = norms([1.0, 2.0, 3.0, 4.0, 5.0]), norms([1.0, 4.0, 9.0, 16.0, 25.0])
    way, differences = comparing_sentences([slow, fast], ["slow", "fast"])
    assert way.startswith("In slow the stream norm grows 5-fold from layer 0 to layer 4")
    assert "; in fast it grows 25-fold from layer 0 to layer 4" in way
    assert differences == (
        "2-fold differences begin at layer 1 (stream.norm); the largest difference is in "
        "stream.norm: at layer 4 fast has 5 times the value of slow."
    )


def test_equal_records_have_no_difference() -> None:
    alike, told = comparing_sentences([norms([1.0, 2.0]), norms([1.0, 2.0])], ["a", "b"])
    assert alike == "The two are identical."
    assert "difference" not in told


def test_records_that_share_no_quantity_are_not_compared() -> None:
    assert comparing_sentences([Record(), gpt2_record()], ["a", "b"]) == [
        "a holds no readings: there is nothing to compare."
    ]


def test_the_balance_names_the_worst_layer() -> None:
    worst = {"layer": 7, "stack": "encoder"}
    one = {"anatomy": {"balance_eps": 0.9, "balance_worst": worst, "stacks": {"encoder": {}}}}
    assert balance_sentence(one) == "The books balance: 0.90 eps, worst at layer 7."
    two = {"anatomy": one["anatomy"] | {"stacks": {"encoder": {}, "decoder": {}}}}
    assert balance_sentence(two) == "The books balance: 0.90 eps, worst at encoder layer 7."
    exact = {"anatomy": {"balance_eps": 0.0, "balance_worst": worst}}
    assert balance_sentence(exact) == "The books balance to the last bit: 0 eps."
    assert balance_sentence({}) == "The balance of this anatomy was not recorded."


def test_facts_tell_what_was_measured() -> None:
    found = {fact.label: (fact.value, fact.detail) for fact in facts(gpt2_record(depth=12))}
    assert found["Layers"] == ("12", "decoder; width 768")
    assert found["Writes"] == ("24", "norm: pre")
    assert found["Parameters"] == ("124 million", "float32")
    assert found["Input"] == ("random tokens", "4 examples, 512 tokens")
    assert found["Loss"][0] == "next-token"
    assert found["Passes"] == ("1 forward + 1 backward", "6 forward passes to read the anatomy")


def test_facts_of_a_bare_record_leave_out_what_is_unknown() -> None:
    assert [fact.label for fact in facts(norms([1.0, 2.0]))] == ["Layers"]


def test_a_decoder_is_compared_with_the_decoder_of_an_encoder_decoder() -> None:
    sentence = comparing_sentences([gpt2_record(massive=False), t5_record()], ["gpt2", "t5"])[0]
    assert sentence.startswith("In gpt2 the norm of the stream of the decoder")
    assert "; in t5 it" in sentence


def test_layers_that_do_not_balance_are_named_in_place_of_the_balance() -> None:
    missed = [{"stack": "decoder", "layer": layer, "eps": 1e6} for layer in (2, 5)]
    known = {"anatomy": {"balance_eps": 0.0, "balance_missed": missed}}
    assert balance_sentence(known) == "The books do not balance: layers 2, 5 miss."
    assert balance_sentence({"anatomy": {"balance_eps": 0.0}}).startswith("The books balance")
