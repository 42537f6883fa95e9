"""Our Transformer with the weights of a Hugging Face model is that model, there and back.

Tiny random models in float32: logits, gradients, stored tensors, anatomy, text.
"""

from __future__ import annotations

import copy
import functools
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import leadline
from leadline.models.loading.request import no_trace
from leadline.parts import Transformer
from leadline.parts.checkpoints import CHECKPOINTS, save
from leadline.parts.checkpoints._hf import _named, _without_twins

transformers = pytest.importorskip("transformers")

VOCABULARY, TOKENS, TOLERANCE = 61, 13, 1e-5
_GPT: dict[str, Any] = {"n_layer": 3, "n_embd": 32, "n_head": 4, "n_positions": 24}
_HF: dict[str, Any] = {
    "num_hidden_layers": 3,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "intermediate_size": 56,
    "max_position_embeddings": 24,
}
_GROUPED = {**_HF, "num_key_value_heads": 2}
_ROPE = {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}}

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("gpt2", _GPT),
    "gpt2, untied": ("gpt2", {**_GPT, "tie_word_embeddings": False}),
    "gpt2, exact gelu": ("gpt2", {**_GPT, "activation_function": "gelu", "n_inner": 40}),
    "gpt2, large eps": ("gpt2", {**_GPT, "layer_norm_epsilon": 0.1}),
    "openai-gpt": ("openai-gpt", _GPT),
    "openai-gpt, silu": ("openai-gpt", {**_GPT, "afn": "silu"}),
    "bert": ("bert", _HF),
    "bert, large eps": ("bert", {**_HF, "layer_norm_eps": 0.1}),
    "llama": ("llama", _GROUPED),
    "llama, tied": ("llama", {**_GROUPED, "tie_word_embeddings": True, **_ROPE}),
    "llama, biases": ("llama", {**_HF, "attention_bias": True, "mlp_bias": True, "head_dim": 6}),
    "llama, tanh gelu": ("llama", {**_HF, "hidden_act": "gelu_pytorch_tanh", "rms_norm_eps": 0.1}),
    "mistral": ("mistral", {**_GROUPED, "sliding_window": None, "head_dim": 10}),
    "qwen2": ("qwen2", _GROUPED),
    "qwen3": ("qwen3", {**_GROUPED, "head_dim": 12}),
    "qwen3, biases": ("qwen3", {**_GROUPED, "head_dim": 8, "attention_bias": True}),
    "olmo2": ("olmo2", _GROUPED),
    "olmo2, biases": ("olmo2", {**_HF, "attention_bias": True, "tie_word_embeddings": True}),
    "gemma": ("gemma", {**_GROUPED, "head_dim": 12}),
    "gemma, untied": ("gemma", {**_GROUPED, "head_dim": 8, "tie_word_embeddings": False}),
    "gptj": ("gptj", {**_GPT, "rotary_dim": 4}),
    "gptj, heads turned whole": ("gptj", {**_GPT, "rotary_dim": 8, "n_inner": 40}),
    "gpt_neox": ("gpt_neox", _HF),
    "gpt_neox, no biases": ("gpt_neox", {**_HF, "attention_bias": False}),
    "gpt_neox, sequential": ("gpt_neox", {**_HF, "use_parallel_residual": False}),
    "gpt_neox, tied": ("gpt_neox", {**_HF, "tie_word_embeddings": True, **_ROPE}),
}


def _theirs(case: str) -> Any:
    """The model of transformers, its weights random enough that every one of them matters."""
    kind, fields = copy.deepcopy(CASES[case])  # transformers writes into nested fields
    tokens = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))
    config = transformers.CONFIG_MAPPING[kind](vocab_size=VOCABULARY, **tokens, **fields)
    auto = "AutoModelForMaskedLM" if kind == "bert" else "AutoModelForCausalLM"
    with no_trace(0):
        model = getattr(transformers, auto).from_config(config).eval()
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for weight in model.parameters():
            noise = torch.empty(weight.shape).normal_(0, 0.15, generator=generator)
            weight.add_(noise)
    return model


@functools.cache
def _inputs(kind: str) -> dict[str, torch.Tensor]:
    """Token ids without 0, which some classes treat as padding; for BERT also padding and types."""
    generator = torch.Generator().manual_seed(2)
    ids = torch.randint(1, VOCABULARY, (3, TOKENS), generator=generator)
    if kind != "bert":
        return {"input_ids": ids}
    mask = (torch.arange(TOKENS) < torch.tensor([[13], [9], [5]])).long()
    types = (torch.arange(TOKENS) > 4).long().expand(3, -1)
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}


def _loss(logits: torch.Tensor) -> torch.Tensor:
    generator = torch.Generator().manual_seed(3)
    targets = torch.randint(VOCABULARY, (3 * TOKENS,), generator=generator)
    return F.cross_entropy(logits.flatten(0, 1), targets)


@pytest.mark.parametrize("case", CASES)
def test_logits_and_every_gradient_are_those_of_transformers(case: str) -> None:
    kind, theirs = CASES[case][0], _theirs(case)
    ours = Transformer.from_hf(theirs)
    inputs = _inputs(kind)
    expected, found = theirs(**inputs).logits, ours(**inputs)
    assert expected.abs().max() > 0.5
    assert (found - expected).abs().max() <= TOLERANCE

    _loss(expected).backward()
    _loss(found).backward()
    gradients = {name: weight.grad for name, weight in theirs.named_parameters()}
    mine = dict(ours.named_parameters())
    rows = list(CHECKPOINTS.get(kind)().rows(ours.recipe))
    assert {row.ours for row in rows} == set(mine)
    for row in rows:
        wanted = row.change.join([gradients[name] for name in row.theirs])
        gradient = mine[row.ours].grad
        assert gradient is not None
        assert wanted.abs().max() > 0, row.ours
        assert (gradient - wanted).abs().max() <= TOLERANCE * wanted.abs().max(), row.ours


@pytest.mark.parametrize("case", CASES)
def test_a_model_goes_back_bit_by_bit(case: str, tmp_path: Path) -> None:
    theirs = _theirs(case)
    ours = Transformer.from_hf(theirs)
    ours.to_hf(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["config.json", "model.safetensors"]
    with no_trace(0):
        back, info = type(theirs).from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info.values()), info
    stored = back.state_dict()
    assert list(stored) == list(theirs.state_dict())
    for name, tensor in theirs.state_dict().items():
        assert torch.equal(stored[name], tensor), name
    inputs = _inputs(CASES[case][0])
    assert torch.equal(back(**inputs).logits, theirs(**inputs).logits)
    again = Transformer.from_hf(tmp_path)
    assert again.recipe == ours.recipe
    assert torch.equal(again(**inputs), ours(**inputs))


@pytest.mark.parametrize("case", CASES)
def test_a_folder_of_save_pretrained_gives_the_model_in_memory(case: str, tmp_path: Path) -> None:
    theirs = _theirs(case)
    theirs.save_pretrained(tmp_path)
    ours, other = Transformer.from_hf(theirs), Transformer.from_hf(tmp_path)
    assert other.recipe == ours.recipe
    assert other.state_dict().keys() == ours.state_dict().keys()
    for name, tensor in ours.state_dict().items():
        assert torch.equal(other.state_dict()[name], tensor), name
    save(other, tmp_path / "own")
    own = Transformer.load(tmp_path / "own")
    inputs = _inputs(CASES[case][0])
    assert torch.equal(own(**inputs), ours(**inputs))


@pytest.mark.parametrize("case", CASES)
def test_both_have_one_anatomy_and_one_stream(case: str) -> None:
    kind, theirs = CASES[case][0], _theirs(case)
    ours = Transformer.from_hf(theirs)
    inputs = _inputs(kind)
    expected = leadline.anatomy_of(theirs, inputs).stacks[0]
    found = leadline.anatomy_of(ours, inputs).stacks[0]
    assert (found.name, found.depth, found.width) == (expected.name, 3, expected.width)
    for mine, other in zip(found.blocks, expected.blocks, strict=True):
        assert (mine.placement, mine.parallel) == (other.placement, other.parallel)
        assert [s.role for s in mine.sublayers] == [s.role for s in other.sublayers]
        assert [s.placement for s in mine.sublayers] == [s.placement for s in other.sublayers]
    norms = [
        leadline.measure(model, inputs, probes="stream").by_layer("stream.norm").values
        for model in (ours, theirs)
    ]
    assert len(norms[0]) == 4
    assert norms[0] == pytest.approx(norms[1], rel=TOLERANCE)


@pytest.mark.parametrize("case", ["gpt2", "bert", "llama", "olmo2", "gemma", "gptj", "gpt_neox"])
def test_half_precision_stays_half_and_close(case: str, tmp_path: Path) -> None:
    exact = _theirs(case)
    theirs = _theirs(case).to(torch.bfloat16)
    theirs.save_pretrained(tmp_path)
    inputs = _inputs(CASES[case][0])
    for source in (theirs, tmp_path):
        ours = Transformer.from_hf(source)
        assert {weight.dtype for weight in ours.parameters()} == {torch.bfloat16}
        with torch.no_grad():
            found, same = ours(**inputs).float(), theirs(**inputs).logits.float()
            truth = exact(**inputs).logits
        # As far from the float32 model as theirs is, and no further.
        scale = truth.abs().max()
        assert (found - same).abs().max() <= 0.05 * scale
        assert (found - truth).square().mean() <= 1.5 * (same - truth).square().mean() + 1e-6
    whole = Transformer.from_hf(tmp_path, dtype=torch.float32)
    assert {weight.dtype for weight in whole.parameters()} == {torch.float32}
    ours = Transformer.from_hf(theirs)
    ours.to_hf(tmp_path / "out")
    assert json.loads((tmp_path / "out" / "config.json").read_text())["dtype"] == "bfloat16"
    with no_trace(0):
        back = type(theirs).from_pretrained(tmp_path / "out")
    assert back.dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("GPT2", _GPT),
        ("OpenAIGPT", _GPT),
        ("Bert", _HF),
        ("Llama", _GROUPED),
        ("Mistral", {**_GROUPED, "sliding_window": None}),
        ("Qwen2", _GROUPED),
        ("Qwen3", _GROUPED),
        ("Olmo2", _GROUPED),
        ("Gemma", _GROUPED),
        ("GPTJ", {**_GPT, "rotary_dim": 4}),
        ("GPTNeoX", _HF),
    ],
)
def test_a_model_without_head_gives_its_stream(
    name: str, fields: dict[str, Any], tmp_path: Path
) -> None:
    config = getattr(transformers, f"{name}Config")(vocab_size=VOCABULARY, **fields)
    with no_trace(0):
        theirs = getattr(transformers, f"{name}Model")(config).eval()
    theirs.save_pretrained(tmp_path)
    inputs = _inputs("bert" if name == "Bert" else "")
    for source in (theirs, tmp_path):
        ours = Transformer.from_hf(source)
        assert str(ours.recipe.head) == "none"
        with torch.no_grad():
            expected = theirs(**inputs).last_hidden_state
            assert (ours(**inputs) - expected).abs().max() <= TOLERANCE
    pooler = ("pooler.dense.weight", "pooler.dense.bias") if name == "Bert" else ()
    origin = Transformer.from_hf(theirs).origin
    assert origin is not None and origin.left_out == pooler
    Transformer.from_hf(theirs).to_hf(tmp_path / "out")
    with no_trace(0):
        back, info = transformers.AutoModel.from_pretrained(
            tmp_path / "out", output_loading_info=True
        )
        assert type(back) is type(theirs)
        assert set(info["missing_keys"]) == set(pooler)
        assert torch.equal(back(**inputs).last_hidden_state, theirs(**inputs).last_hidden_state)


@pytest.mark.parametrize("case", ["gpt2", "llama", "gpt_neox", "gemma", "qwen3"])
def test_greedy_text_is_that_of_transformers(case: str) -> None:
    theirs = _theirs(case)
    ours = Transformer.from_hf(theirs)
    ids = _inputs("")["input_ids"][:, :6]
    with no_trace(0):
        expected = theirs.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=12,
            do_sample=False,
            pad_token_id=0,
            eos_token_id=None,
        )
    assert torch.equal(ours.generate(ids, steps=12), expected)


@pytest.mark.parametrize("case", ["gpt2", "llama"])
def test_padded_batches_are_continued_as_by_transformers(case: str) -> None:
    theirs = _theirs(case)
    ours = Transformer.from_hf(theirs)
    ids = _inputs("")["input_ids"][:, :6].clone()
    mask = (torch.arange(6) >= torch.tensor([[0], [2], [4]])).long()
    ids[mask == 0] = 0
    with no_trace(0):
        expected = theirs.generate(
            ids,
            attention_mask=mask,
            max_new_tokens=10,
            do_sample=False,
            pad_token_id=0,
            eos_token_id=None,
        )
    assert torch.equal(ours.generate(ids, steps=10, attention_mask=mask), expected)


@pytest.mark.parametrize("kind", CHECKPOINTS.names())
def test_an_absent_field_has_the_default_of_its_class(kind: str) -> None:
    family = CHECKPOINTS.get(kind)()
    window = {"sliding_window": None} if kind == "mistral" else {}
    whole = transformers.CONFIG_MAPPING[kind](**window).to_dict()
    assert family.recipe(window) == family.recipe(whole)


@pytest.mark.parametrize("case", CASES)
def test_the_table_names_every_tensor_of_transformers_once(case: str) -> None:
    theirs = _theirs(case)
    family = CHECKPOINTS.get(CASES[case][0])()
    recipe = Transformer.from_hf(theirs).recipe
    named, left_out = _named(family, theirs.state_dict(), "the model")
    _without_twins(family, recipe, named, "the model")
    names = [name for row in family.rows(recipe) for name in row.theirs]
    assert sorted(names) == sorted(named)
    assert left_out == ()
