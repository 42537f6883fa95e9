"""Inputs: drawn, tokenised, read from files, converted; bad ones are refused in a sentence."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest
import torch
from torch import nn

from leadline.errors import InputError
from leadline.models.inputs import (
    Inputs,
    as_inputs,
    choose_loss,
    context_limit,
    random_inputs,
    random_tokens,
    text_file,
    text_inputs,
    token_file,
    vocabulary_size,
)
from leadline.testing.zoo import ZOO

pytest.importorskip("transformers")


class Letters:
    """A tokenizer for a to z: a is 10, b is 11, and so on; blanks are dropped."""

    mask_token_id = 4

    def __call__(self, text):
        return {"input_ids": [10 + ord(c) - ord("a") for c in text if c.isalpha()]}


@pytest.fixture(scope="module")
def gpt2():
    return ZOO["gpt2"].build(0)


@pytest.fixture(scope="module")
def roberta():
    return ZOO["roberta"].build(0)


def _refusal(call):
    with pytest.raises(InputError) as caught:
        call()
    return str(caught.value)


# Drawn ------------------------------------------------------------------------------------------


def test_random_tokens_are_a_function_of_the_seed(gpt2):
    one, same, other = (random_tokens(gpt2, examples=3, length=9, seed=s) for s in (1, 1, 2))
    assert one.tensors["input_ids"].shape == (3, 9)
    assert one.digest == same.digest != other.digest
    assert (one.kind, one.seed, one.mask) == ("random tokens", 1, None)


def test_random_tokens_cover_the_vocabulary_but_for_special_ids(gpt2):
    ids = random_tokens(gpt2, examples=64, length=64, seed=0).tensors["input_ids"]
    # The zoo's GPT-2 has 99 tokens; 0, 1 and 2 are padding, start and end.
    assert set(ids.flatten().tolist()) == set(range(3, 99))


def test_random_tokens_leave_the_global_random_state_alone(gpt2):
    before = torch.random.get_rng_state()
    random_tokens(gpt2, examples=2, length=4, seed=5)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_encoder_decoder_gets_tokens_of_its_own_for_the_decoder():
    tensors = random_tokens(ZOO["t5"].build(0), examples=2, length=7, seed=0).tensors
    assert tensors["input_ids"].shape == tensors["decoder_input_ids"].shape == (2, 7)
    assert not torch.equal(tensors["input_ids"], tensors["decoder_input_ids"])


def test_more_tokens_than_positions_are_refused_with_the_limit(gpt2):
    sentence = _refusal(lambda: random_tokens(gpt2, examples=1, length=65))
    assert "65 tokens" in sentence
    assert "at most 64" in sentence
    random_tokens(gpt2, examples=1, length=64)


@pytest.mark.parametrize("sizes", [{"examples": 0}, {"length": 0}, {"length": -3}])
def test_empty_batch_is_refused(gpt2, sizes):
    assert "at least 1" in _refusal(lambda: random_tokens(gpt2, **sizes))


def test_model_without_vocabulary_gets_no_tokens():
    assert "no vocabulary" in _refusal(lambda: random_tokens(nn.Linear(3, 3)))


def test_positions_of_roberta_start_behind_the_padding_id(roberta):
    limit = context_limit(roberta)
    assert limit == 63
    with torch.no_grad():
        roberta(**random_tokens(roberta, examples=1, length=limit).tensors)
        with pytest.raises((IndexError, RuntimeError), match="out of"):
            roberta(torch.full((1, limit + 1), 7))


def test_module_of_ones_own_is_asked_for_its_embedding_and_its_argument():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(17, 8)

        def forward(self, tokens):
            return self.embedding(tokens)

    inputs = random_inputs(Own(), examples=2, length=5)
    assert list(inputs.tensors) == ["tokens"]
    assert int(inputs.tensors["tokens"].max()) < 17
    assert vocabulary_size(Own()) == 17


@pytest.mark.parametrize("batch_first", [True, False])
def test_stack_of_torch_gets_a_stream_in_its_own_order(batch_first):
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=batch_first)
    stack = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    inputs = random_inputs(stack, examples=2, length=5)
    expected = (2, 5, 16) if batch_first else (5, 2, 16)
    assert inputs.main.shape == expected
    assert stack(**inputs.tensors).shape == expected


def test_compiled_model_is_read_through_its_wrapper(gpt2):
    compiled = torch.compile(gpt2, backend="eager")
    inputs = random_tokens(compiled, examples=2, length=4, seed=3)
    assert inputs.digest == random_tokens(gpt2, examples=2, length=4, seed=3).digest


def test_waveform_makes_as_many_tokens_as_were_asked_for():
    model = ZOO["wav2vec2"].build(0)
    inputs = random_inputs(model, examples=2, length=11)
    with torch.no_grad():
        assert model(**inputs.tensors).last_hidden_state.shape[1] == 11


def test_noise_has_the_number_type_of_the_model():
    model = ZOO["vit"].build(0).to(torch.bfloat16)
    assert random_inputs(model, examples=1).main.dtype == torch.bfloat16


@pytest.mark.parametrize("name", [name for name in ZOO if name != "segformer"])
def test_every_specimen_of_the_zoo_runs_on_random_inputs(name):
    model = ZOO[name].build(0)
    inputs = random_inputs(model, examples=2, length=12, seed=3)
    with torch.no_grad():
        model(**inputs.tensors)
    assert inputs.summary()["examples"] == 2


def test_image_of_unknown_size_is_refused():
    model = ZOO["segformer"].build(0)
    assert "no image size" in _refusal(lambda: random_inputs(model))


# Text -------------------------------------------------------------------------------------------


def test_texts_are_padded_on_the_right_and_masked(gpt2):
    inputs = text_inputs(["abc", "a"], Letters(), gpt2)
    assert inputs.tensors["input_ids"].tolist() == [[10, 11, 12], [10, 0, 0]]
    assert inputs.mask.tolist() == [[True, True, True], [True, False, False]]
    assert inputs.tensors["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]
    assert inputs.mask_token_id == 4
    summary = inputs.summary()
    assert (summary["tokens"], summary["longest"], summary["padded"]) == (4, 3, 2)
    assert (summary["kind"], summary["text_preview"]) == ("text", "abc")


def test_texts_of_one_length_have_no_mask(gpt2):
    inputs = text_inputs(["abc", "cba"], Letters(), gpt2)
    assert inputs.mask is None
    assert list(inputs.tensors) == ["input_ids"]


def test_decoder_sees_the_text_behind_the_start_token():
    inputs = text_inputs(["abc", "a"], Letters(), ZOO["bart"].build(0))
    assert inputs.tensors["decoder_input_ids"].tolist() == [[2, 10, 11], [2, 10, 0]]
    assert inputs.decoder_mask.tolist() == [[True, True, True], [True, True, False]]


@pytest.mark.parametrize("texts", ["", "   \n", ["abc", ""], []])
def test_empty_text_is_refused(gpt2, texts):
    assert "text" in _refusal(lambda: text_inputs(texts, Letters(), gpt2)).lower()


def test_text_without_a_single_token_is_refused(gpt2):
    assert "no tokens" in _refusal(lambda: text_inputs("123", Letters(), gpt2))


def test_too_long_text_is_refused_with_limit_and_way_out(gpt2):
    sentence = _refusal(lambda: text_inputs("a" * 70, Letters(), gpt2))
    assert "70 tokens" in sentence
    assert "at most 64" in sentence
    assert "--truncate" in sentence
    assert text_inputs("a" * 70, Letters(), gpt2, truncate=True).main.shape == (1, 64)


def test_text_without_tokenizer_is_refused(gpt2):
    assert "without a tokenizer" in _refusal(lambda: text_inputs("abc", None, gpt2))
    assert "without a tokenizer" in _refusal(lambda: as_inputs("abc", gpt2))


def test_ids_of_a_foreign_tokenizer_are_refused_with_their_place(gpt2):
    class Foreign:
        def encode(self, text):
            return [10, 11, 99] if text == "b" else [10]

    sentence = _refusal(lambda: text_inputs(["a", "b"], Foreign(), gpt2))
    assert "Token id 99 (example 2, token 3)" in sentence
    assert "99 tokens (0 to 98)" in sentence


def test_file_is_cut_into_consecutive_windows(tmp_path, gpt2):
    path = tmp_path / "letters.txt"
    path.write_text("abc def\nghi j")
    inputs = text_file(path, Letters(), gpt2, examples=2, length=4)
    assert inputs.main.tolist() == [[10, 11, 12, 13], [14, 15, 16, 17]]
    inputs = text_file(path, Letters(), gpt2, examples=9, length=4)
    assert inputs.mask.sum(dim=1).tolist() == [4, 4, 2]
    assert (inputs.kind, inputs.preview) == ("text file", "abc def ghi j")


def test_file_can_be_read_line_by_line(tmp_path, gpt2):
    path = tmp_path / "letters.txt"
    path.write_text("abc\n\nde\n")
    inputs = text_file(path, Letters(), gpt2, by_line=True)
    assert inputs.main.tolist() == [[10, 11, 12], [13, 14, 0]]


def test_windows_of_a_tokenizer_with_special_tokens_each_carry_them(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    from transformers import PreTrainedTokenizerFast

    vocabulary = {"[CLS]": 3, "[SEP]": 4, "[UNK]": 5, **{chr(97 + i): 10 + i for i in range(26)}}
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    inner.post_processor = tokenizers.processors.BertProcessing(("[SEP]", 4), ("[CLS]", 3))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner)
    path = tmp_path / "letters.txt"
    path.write_text("a b c d e")
    inputs = text_file(path, tokenizer, ZOO["bert"].build(0), length=4)
    assert inputs.main.tolist() == [[3, 10, 11, 4], [3, 12, 13, 4], [3, 14, 4, 0]]


@pytest.mark.parametrize(
    ("content", "expected"),
    [(b"", "is empty"), (b" \n ", "is empty"), (b"\xff\xfe\x00", "not text in UTF-8")],
)
def test_file_without_text_is_refused(tmp_path, gpt2, content, expected):
    path = tmp_path / "letters.txt"
    path.write_bytes(content)
    assert expected in _refusal(lambda: text_file(path, Letters(), gpt2))


def test_missing_file_is_refused(tmp_path, gpt2):
    assert "No such file" in _refusal(lambda: text_file(tmp_path / "no.txt", Letters(), gpt2))


# Token files ------------------------------------------------------------------------------------


def _write(path, rows):
    if path.suffix == ".txt":
        path.write_text("\n".join(" ".join(map(str, row)) for row in rows))
    elif path.suffix == ".json":
        path.write_text(json.dumps({"input_ids": rows}))
    elif path.suffix == ".npy":
        np.save(path, np.array(rows))
    else:
        from safetensors.numpy import save_file

        save_file({"input_ids": np.array(rows)}, path)


@pytest.mark.parametrize("ending", [".txt", ".json", ".npy", ".safetensors"])
def test_token_file_gives_its_rows(tmp_path, gpt2, ending):
    path = tmp_path / f"ids{ending}"
    _write(path, [[5, 6, 7], [8, 9, 10]])
    inputs = token_file(path, gpt2)
    assert inputs.tensors["input_ids"].tolist() == [[5, 6, 7], [8, 9, 10]]
    assert (inputs.kind, inputs.preview) == ("token file", "5 6 7")


def test_token_file_may_have_rows_of_different_lengths(tmp_path, gpt2):
    path = tmp_path / "ids.txt"
    path.write_text("5, 6, 7\n\n8\n")
    assert token_file(path, gpt2).mask.tolist() == [[True] * 3, [True, False, False]]


@pytest.mark.parametrize("ending", [".txt", ".json", ".npy", ".safetensors"])
def test_token_file_with_a_foreign_id_is_refused_with_its_place(tmp_path, gpt2, ending):
    path = tmp_path / f"ids{ending}"
    _write(path, [[5, 6], [7, 400]])
    sentence = _refusal(lambda: token_file(path, gpt2))
    assert "Token id 400 (example 2, token 2)" in sentence
    assert "99 tokens" in sentence


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("ids.csv", b"1,2", "unknown ending"),
        ("ids.pt", b"1,2", "unknown ending"),
        ("ids.txt", b"five six", "'five' (example 1, token 1) is not a token id"),
        ("ids.txt", b"", "is empty"),
        ("ids.json", b"[[1, 2", "is not JSON"),
        ("ids.json", b"[[1, 2.5]]", "2.5 (example 1, token 2) is not a token id"),
        ("ids.json", b"[[1, true]]", "is not a token id"),
        ("ids.json", b'{"ids": [1]}', "no rows of token ids"),
        ("ids.json", b"[]", "no rows of token ids"),
        ("ids.json", b"[[]]", "has no tokens"),
        ("ids.json", b"[[-1, 2]]", "Token id -1"),
        ("ids.npy", b"not an array", "without unpickling"),
        ("ids.npy", b"", "without unpickling"),
        ("ids.safetensors", b"\x00\x01", "cut short or damaged"),
    ],
)
def test_file_in_a_wrong_format_is_refused(tmp_path, gpt2, name, content, expected):
    path = tmp_path / name
    path.write_bytes(content)
    assert expected in _refusal(lambda: token_file(path, gpt2))


def test_pickled_array_and_fractions_are_refused(tmp_path, gpt2):
    path = tmp_path / "ids.npy"
    np.save(path, np.array([[1], [2, 3]], dtype=object), allow_pickle=True)
    assert "without unpickling" in _refusal(lambda: token_file(path, gpt2))
    np.save(path, np.array([[1.0, 2.0]]))
    assert "whole numbers" in _refusal(lambda: token_file(path, gpt2))
    np.save(path, np.zeros((1, 2, 3), dtype=int))
    assert "whole numbers" in _refusal(lambda: token_file(path, gpt2))


def test_too_long_token_file_is_refused_or_cut(tmp_path, gpt2):
    path = tmp_path / "ids.npy"
    np.save(path, np.full((1, 65), 7))
    assert "at most 64" in _refusal(lambda: token_file(path, gpt2))
    assert token_file(path, gpt2, truncate=True).main.shape == (1, 64)


# Conversion -------------------------------------------------------------------------------------


def test_tensor_dictionary_tuple_and_rows_give_the_same_inputs(gpt2):
    ids = torch.tensor([[5, 6, 7]])
    expected = as_inputs(ids, gpt2)
    assert expected.tensors["input_ids"] is not None
    for value in ({"input_ids": ids}, {"input_ids": [[5, 6, 7]]}, [[5, 6, 7]], (ids,)):
        assert as_inputs(value, gpt2).digest == expected.digest
    assert as_inputs(expected, gpt2).digest == expected.digest


def test_tuple_is_read_as_positional_arguments():
    class Two(nn.Module):
        def forward(self, left, right):
            return left + right

    inputs = as_inputs((torch.ones(1), torch.zeros(1)), Two())
    assert list(inputs.tensors) == ["left", "right"]
    assert "forward takes 2" in _refusal(lambda: as_inputs((torch.ones(1),) * 3, Two()))


def test_dictionary_gives_mask_and_labels(gpt2):
    value = {
        "input_ids": torch.tensor([[5, 6], [7, 0]]),
        "attention_mask": torch.tensor([[1, 1], [1, 0]]),
        "labels": torch.tensor([[5, 6], [7, -100]]),
    }
    inputs = as_inputs(value, gpt2)
    assert inputs.mask.tolist() == [[True, True], [True, False]]
    assert inputs.labels.tolist() == [[5, 6], [7, -100]]
    assert sorted(inputs.tensors) == ["attention_mask", "input_ids"]
    value["attention_mask"] = torch.ones(2, 2)
    assert as_inputs(value, gpt2).mask is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (torch.tensor([[5, 99]]), "Token id 99 (example 1, token 2)"),
        (torch.tensor([[-1, 5]]), "Token id -1 (example 1, token 1)"),
        (torch.zeros(1, 65, dtype=torch.long), "at most 64"),
        (torch.zeros(1, 0, dtype=torch.long), "no tokens"),
        ({}, "no tensor"),
        (17, "The inputs are 17, which cannot be fed"),
        ([], "The input is empty"),
        ({"input_ids": [[1, 2], [3]]}, "padding=True"),
        ({"input_ids": [[1], [2]], "attention_mask": [[1], [0]]}, "no real token"),
    ],
)
def test_value_that_does_not_fit_is_refused(gpt2, value, expected):
    assert expected in _refusal(lambda: as_inputs(value, gpt2))


def test_digest_is_the_sha256_of_names_shapes_types_and_bytes():
    tensor = torch.tensor([[1, 2]], dtype=torch.int64)
    text = b"x torch.int64 (1, 2)\n" + np.array([1, 2], dtype="<i8").tobytes()
    assert Inputs({"x": tensor}).digest == hashlib.sha256(text).hexdigest()


def test_digest_tells_apart_what_is_different_and_reads_every_number_type():
    one = torch.tensor([[1.0, 2.0]])
    variants = [
        Inputs({"x": one}),
        Inputs({"y": one}),
        Inputs({"x": one.to(torch.bfloat16)}),
        Inputs({"x": one.reshape(2, 1)}),
        Inputs({"x": one > 1}),
        Inputs({"x": torch.tensor(1.0)}),
    ]
    assert len({inputs.digest for inputs in variants}) == len(variants)
    assert Inputs({"x": one.expand(3, 2)}).digest == Inputs({"x": one.repeat(3, 1)}).digest


@pytest.mark.parametrize(
    ("option", "refused"),
    [
        ("--random 4x128", lambda model: as_inputs({"input_ids": torch.tensor([[999]])}, model)),
        ("--random 4x128", lambda model: as_inputs(object(), model)),
        ("--random 4x128", lambda model: text_inputs(["a"], None, model)),
        ("--tokens-file", lambda model: text_inputs(["a"], None, model)),
        ("--text", lambda model: as_inputs([], model)),
        ("--random 4x128", lambda model: random_tokens(model, examples=0)),
        ("--random 4x128", lambda _: random_tokens(nn.Linear(2, 2))),
        ("--loss random", lambda model: choose_loss(model, Inputs({"x": torch.ones(2)}), "masked")),
        (
            "--loss random",
            lambda model: choose_loss(model, as_inputs(torch.tensor([[5]]), model), "next-token"),
        ),
    ],
)
def test_what_to_do_is_said_for_the_command_line_too(option, refused):
    with pytest.raises(InputError, match=option):
        refused(ZOO["gpt2"].build(0))


def test_too_many_random_tokens_are_refused_with_a_size_that_fits():
    model = ZOO["gpt2"].build(0)
    limit = context_limit(model)
    with pytest.raises(InputError, match=f"--random 2x{limit}"):
        random_tokens(model, examples=2, length=limit + 1)
    random_tokens(model, examples=2, length=limit)
