"""Inputs that a table of the model is too short for are refused in a sentence, on every route."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import leadline as ll
from leadline.errors import InputError
from leadline.models.inputs import Inputs
from leadline.testing.zoo import ZOO

PLACES, WORDS = 12, 20


class Plain(nn.Module):
    """A model that says nothing of itself: no configuration, positions in one of three ways."""

    def __init__(self, positions):
        super().__init__()
        torch.manual_seed(0)
        self.words = nn.Embedding(WORDS, 8)
        self.positions = positions
        if positions == "embedding":
            self.places = nn.Embedding(PLACES, 8)
        else:
            self.places = nn.Parameter(torch.randn(PLACES, 8))
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True)
        self.stack = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, tokens, others=None):
        at = torch.arange(tokens.shape[1])
        if self.positions == "embedding":
            places = self.places(at)
        else:
            places = self.places[at] if self.positions == "indexed" else self.places[: len(at)]
        x = self.words(tokens) + places
        return self.stack(x if others is None else x + self.words(others))


def _ids(length, words=WORDS):
    return torch.randint(words, (2, length), generator=torch.Generator().manual_seed(0))


def _refusal(*args, **options):
    with pytest.raises(InputError) as caught:
        ll.measure(*args, **options)
    return str(caught.value)


@pytest.mark.parametrize("positions", ["embedding", "indexed", "sliced"])
def test_more_tokens_than_a_table_has_positions_are_refused_with_both_numbers(positions):
    model = Plain(positions)
    sentence = _refusal(model, _ids(PLACES + 3))
    for part in ("15 tokens", "at most 12", "'places'", "--random 4x12", "ids[:, :12]"):
        assert part in sentence
    assert "stream.norm" in ll.measure(model, _ids(PLACES))


@pytest.mark.parametrize("ask", [ll.anatomy_of, ll.paths])
def test_other_questions_refuse_them_too(ask):
    with pytest.raises(InputError, match="at most 12"):
        ask(Plain("embedding"), _ids(PLACES + 1))


def test_linear_maps_refuse_them_too():
    assert "at most 12" in _refusal(Plain("embedding"), _ids(PLACES + 1), probes="jacobian")


@pytest.mark.parametrize(("name", "limit"), [("gpt2", 64), ("opt", 64), ("bert", 64)])
def test_inputs_made_by_hand_are_checked_like_tensors(name, limit):
    model = ZOO[name].build(0)
    long = torch.full((1, limit + 1), 7)
    for value in (long, long.tolist(), {"input_ids": long}, Inputs({"input_ids": long})):
        sentence = _refusal(model, value)
        assert f"{limit + 1} tokens" in sentence
        assert f"at most {limit}" in sentence
    foreign = torch.full((1, 5), 5_000)
    for value in (foreign, foreign.tolist(), Inputs({"input_ids": foreign})):
        assert "5000" in _refusal(model, value)
        assert "(0 to 98)" in _refusal(model, value)


def test_a_decoder_that_is_asked_for_too_much_says_so():
    model = ZOO["bart"].build(0)
    long = torch.full((1, 65), 7)
    assert "at most 64" in _refusal(model, {"input_ids": long[:, :9], "decoder_input_ids": long})
    foreign = long[:, :9] + 5_000
    sentence = _refusal(model, {"input_ids": long[:, :9], "decoder_input_ids": foreign})
    assert "5007 in 'decoder_input_ids'" in sentence
    assert "99 entries" in sentence


def test_an_id_beyond_any_other_table_is_named_with_its_input():
    others = _ids(6)
    others[1, 2] = WORDS
    sentence = _refusal(Plain("embedding"), {"tokens": _ids(6), "others": others})
    assert "Id 20 in 'others' (example 2, token 3)" in sentence
    assert "'words' of 20 entries" in sentence


class Accident(Plain):
    """A mistake in the forward whose sizes look like those of a table."""

    def forward(self, tokens):
        x = super().forward(tokens)
        return x + tokens.float().sum(0)[: x.shape[1]]  # [token] onto [example, token, width]


def test_sizes_that_agree_by_accident_are_no_table():
    model = Accident("embedding")  # a width of 8, the size of several of its weights
    with pytest.raises(RuntimeError, match=r"size of tensor a \(8\)"):
        ll.measure(model, _ids(10))


class Faulty(Plain):
    """Fails for a reason of its own."""

    def __init__(self, fault):
        super().__init__("embedding")
        self.fault = fault

    def forward(self, tokens):
        raise self.fault


@pytest.mark.parametrize(
    "fault",
    [
        IndexError("index 3 is out of bounds for dimension 0 with size 2"),
        IndexError("list index out of range"),
        RuntimeError("The size of tensor a (5) must match the size of tensor b (3)"),
    ],
)
def test_other_errors_of_the_model_pass_unchanged(fault):
    with pytest.raises(type(fault)) as caught:
        ll.measure(Faulty(fault), _ids(6))
    assert caught.value is fault


def test_the_context_of_a_configuration_in_nanogpt_style_is_known():
    model = Plain("embedding")
    model.config = type("Config", (), {"block_size": PLACES})()
    assert ll.measure(model).provenance["input"]["longest"] == PLACES
