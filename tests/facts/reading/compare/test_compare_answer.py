"""The first sentences of a comparison say whose gradients vanish, and where."""

from __future__ import annotations

from leadline.reading.compare.answer import comparison_answer
from leadline.reading.compare.compare import compare
from leadline.reading.compare.names import short_names
from leadline.record import Quantity, Reading, Record, Site
from leadline.record.words.course import FAR


def gradient(values: list[float], name: str) -> Record:
    record = Record()
    record.describe(Quantity("gradient.stream", "Gradient", "g", "g", scale="log", leads=True))
    record.append(
        Reading("gradient.stream", Site("decoder", layer), "mean", value)
        for layer, value in enumerate(values)
    )
    record.note("model", {"name": name})
    return record


def test_the_model_with_vanishing_gradients_is_named_with_the_place() -> None:
    # Backward from layer 8: even down to layer 5, then 1000-fold down to layer 3.
    lost = gradient([1e-3] * 4 + [0.03] + [1.0] * 4, "post")
    first, *_ = comparison_answer(compare(gradient([1.0] * 9, "pre"), lost))
    assert first.startswith("post has vanishing gradients, pre has not: in pre the gradient keeps")
    assert "in post it shrinks 1000-fold from layer 8 to layer 3" in first


def test_a_gradient_that_grows_by_far_explodes() -> None:
    wild = gradient([2.0 ** (8 - layer) for layer in range(9)], "wild")
    first, *_ = comparison_answer(compare(gradient([1.0] * 9, "calm"), wild))
    assert first.startswith("wild has exploding gradients, calm has not")


def test_below_the_threshold_neither_is_said_to_vanish() -> None:
    some = gradient([1.01 / FAR, 1.0], "some")
    first, *_ = comparison_answer(compare(gradient([1.0, 1.0], "none"), some))
    assert first.startswith("Neither has vanishing or exploding gradients")


def test_long_names_lose_what_they_share_or_become_letters() -> None:
    assert short_names(["leadline.lab.pair:pre", "leadline.lab.pair:post"]) == ("pre", "post")
    assert short_names(["gpt2", "bert"]) == ("gpt2", "bert")
    assert short_names(["x" * 30, "y" * 30]) == ("A", "B")
