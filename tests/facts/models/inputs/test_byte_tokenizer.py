"""A text is its bytes and comes back from them."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from leadline.errors import InputError
from leadline.models.inputs import text_inputs
from leadline.models.inputs.byte_tokenizer import ByteTokenizer
from leadline.parts import Transformer

BYTES = ByteTokenizer()


def test_a_token_is_a_byte():
    assert BYTES("Az é") == [65, 122, 32, 0xC3, 0xA9]
    assert BYTES.vocabulary == 256


@given(st.text())
def test_a_text_comes_back_from_its_ids(text):
    assert BYTES.decode(BYTES(text)) == text


def test_ids_may_be_a_tensor():
    assert BYTES.decode(torch.tensor([104, 105])) == "hi"


def test_a_character_cut_in_two_is_shown_as_such():
    assert BYTES.decode(BYTES("é")[:1]) == "\N{REPLACEMENT CHARACTER}"
    assert ord("\N{REPLACEMENT CHARACTER}") == 0xFFFD


@pytest.mark.parametrize("token", [-1, 256])
def test_an_id_that_is_no_byte_is_refused(token):
    with pytest.raises(InputError, match=f"Token 2 has the id {token}, .* from 0 to 255"):
        BYTES.decode([65, token])
    assert len(BYTES.decode([0, 255])) == 2


def test_half_a_character_is_refused():
    with pytest.raises(InputError, match="Character 3 of the text"):
        BYTES("ab\ud800")


def test_a_model_of_bytes_reads_text():
    model = Transformer(depth=1, width=8, heads=1, vocabulary=256, context=16)
    inputs = text_inputs("Tides", BYTES, model)
    assert inputs.tensors["input_ids"].tolist() == [list(b"Tides")]
