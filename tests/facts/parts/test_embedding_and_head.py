"""The two ends of a model: how ids become vectors, and vectors logits."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from leadline.errors import RecipeError
from leadline.parts import Recipe, Transformer
from leadline.parts.embedding import EMBEDDINGS
from leadline.parts.head import HEADS
from tests.facts.parts.by_hand import layer_norm, stir

IDS = torch.tensor([[1, 2, 3], [4, 5, 6]])
WIDTH, VOCABULARY = 16, 9


def _model(**fields: Any) -> Transformer:
    model = Transformer(
        depth=1, width=WIDTH, heads=2, vocabulary=VOCABULARY, context=5, init="xavier", **fields
    )
    stir(model)
    return model.double()


def _embedded(model: Transformer, types: torch.Tensor | None = None) -> torch.Tensor:
    return model.embedding(IDS, torch.arange(3), types).detach()


def _expected(model: Transformer, scale: float = 1.0) -> torch.Tensor:
    tokens = model.get_parameter("embedding.tokens.weight").detach()
    places = model.get_parameter("embedding.positions.table.weight").detach()
    return scale * tokens[IDS] + places[:3]


@pytest.mark.parametrize(
    ("embedding", "scale"),
    [("token", 1.0), ("token(scale=2.5)", 2.5), ("token(scale=sqrt_width)", 4.0)],
)
def test_an_embedding_multiplies_the_tokens_but_not_their_positions(
    embedding: str, scale: float
) -> None:
    model = _model(embedding=embedding)
    assert torch.allclose(_embedded(model), _expected(model, scale), rtol=1e-14, atol=0)


def test_the_scale_of_an_embedding_is_rounded_like_the_stream() -> None:
    model = _model(embedding="token(scale=sqrt_width)", positions="none").to(torch.bfloat16)
    wide = Transformer(
        depth=1, width=50, heads=2, embedding="token(scale=sqrt_width)", positions="none"
    ).to(torch.bfloat16)
    table = wide.get_parameter("embedding.tokens.weight")
    rounded = torch.tensor(math.sqrt(50)).to(torch.bfloat16)
    assert torch.equal(wide.embedding(IDS, torch.arange(3), None), table[IDS] * rounded)
    assert _embedded(model).dtype == torch.bfloat16


def test_token_types_are_added_and_are_the_first_unless_given() -> None:
    model = _model(embedding="token(types=2)")
    table = model.get_parameter("embedding.types.weight").detach()
    assert table.shape == (2, WIDTH)
    assert torch.allclose(_embedded(model), _expected(model) + table[0], rtol=1e-14)
    types = torch.tensor([[0, 1, 1], [1, 0, 0]])
    expected = _expected(model) + table[types]
    assert torch.allclose(_embedded(model, types), expected, rtol=1e-14)
    with torch.no_grad():
        assert not torch.allclose(model(IDS, None, types), model(IDS))


@pytest.mark.parametrize(
    "fields",
    [
        {"embedding": "token(normed=true)"},
        {"placement": "sandwich"},
        {"embedding": "token(normed=true)", "placement": "sandwich"},
    ],
)
def test_a_normed_embedding_is_normed_once_after_all_is_added(fields: dict[str, str]) -> None:
    model = _model(**fields)
    norm = model.get_submodule("embedding.norm")
    expected = layer_norm(norm)(_expected(model))
    assert torch.allclose(_embedded(model), expected.detach(), rtol=1e-11, atol=1e-13)


def test_an_embedding_is_not_normed_unless_asked() -> None:
    assert not any("embedding.norm" in name for name, _ in _model().named_parameters())


@pytest.mark.parametrize(("placement", "normed"), [("pre", False), ("sandwich", True)])
def test_without_an_embedding_the_model_takes_the_stream(placement: str, normed: bool) -> None:
    model = _model(embedding="none", head="none", placement=placement)
    x = torch.randn(2, 3, WIDTH, dtype=torch.float64)
    places = model.get_parameter("embedding.positions.table.weight").detach()
    expected = x + places[:3]
    if normed:
        expected = layer_norm(model.get_submodule("embedding.norm"))(expected).detach()
    got = model.embedding(x, torch.arange(3), None).detach()
    assert torch.allclose(got, expected, rtol=1e-11, atol=1e-13)
    assert model(x).shape == (2, 3, WIDTH)
    assert not model.embedding.takes_ids
    assert model.objective is None
    assert model.get_input_embeddings() is None


@pytest.mark.parametrize("bias", [False, True])
def test_a_linear_head_has_a_matrix_of_its_own(bias: bool) -> None:
    model = _model(head=f"linear(bias={str(bias).lower()})")
    x = model.stream(IDS)
    expected = x @ model.get_parameter("head.projection.weight").T
    if bias:
        expected = expected + model.get_parameter("head.projection.bias")
    assert torch.allclose(model(IDS), expected, rtol=1e-12, atol=1e-13)
    names = {n for n, _ in model.head.named_parameters()}
    assert names == {"projection.weight", *(["projection.bias"] if bias else [])}
    assert not model.head.ties


def test_a_linear_head_has_no_bias_unless_asked() -> None:
    assert [n for n, _ in _model().head.named_parameters()] == ["projection.weight"]


def test_a_tied_head_is_the_embeddings_table() -> None:
    model = _model(head="tied")
    table = model.get_parameter("embedding.tokens.weight")
    assert list(model.head.parameters()) == []
    assert torch.allclose(model(IDS), model.stream(IDS) @ table.T, rtol=1e-12, atol=1e-13)
    assert model.get_input_embeddings() is model.get_submodule("embedding.tokens")


def test_the_head_of_masked_words_transforms_norms_and_uses_the_table() -> None:
    model = _model(head="masked", attention="multihead(causal=false)")
    x = model.stream(IDS).detach()
    w = {n: p.detach() for n, p in model.head.named_parameters()}
    assert set(w) == {"transform.weight", "transform.bias", "norm.weight", "norm.bias", "bias"}
    inner = x @ w["transform.weight"].T + w["transform.bias"]
    points = [math.erf(v / math.sqrt(2)) for v in inner.flatten().tolist()]
    erf = torch.tensor(points, dtype=torch.float64)
    inner = inner * (1 + erf.view_as(inner)) / 2
    inner = layer_norm(model.get_submodule("head.norm"))(inner)
    expected = inner @ model.get_parameter("embedding.tokens.weight").T + w["bias"]
    assert torch.allclose(model(IDS), expected, rtol=1e-11, atol=1e-12)
    assert model.objective == "masked"


def test_the_head_of_masked_words_stands_without_a_norm_too() -> None:
    model = _model(head="masked", norm="none")
    x, w = model.stream(IDS), dict(model.head.named_parameters())
    inner = F.gelu(F.linear(x, w["transform.weight"], w["transform.bias"]))
    expected = F.linear(inner, model.get_parameter("embedding.tokens.weight"), w["bias"])
    assert torch.allclose(model(IDS), expected, rtol=1e-12, atol=1e-13)


def test_biases_of_heads_start_at_zero() -> None:
    model = Transformer(depth=1, width=8, heads=2, vocabulary=9, head="masked")
    assert model.get_parameter("head.bias").tolist() == [0.0] * 9
    assert model.get_parameter("head.transform.bias").tolist() == [0.0] * 8


def test_without_a_head_the_model_returns_the_stream() -> None:
    model = _model(head="none")
    assert torch.equal(model(IDS), model.stream(IDS))
    assert not model.head.gives_logits
    assert model.objective is None


def test_the_objective_follows_head_and_attention() -> None:
    assert _model().objective == "next-token"
    assert _model(attention="multihead(causal=false)").objective == "masked"
    assert _model(attention="none").objective == "next-token"


@pytest.mark.parametrize("head", ["tied", "masked"])
def test_a_head_that_uses_the_table_needs_an_embedding(head: str) -> None:
    with pytest.raises(RecipeError) as caught:
        Recipe(embedding="none", head=head)
    assert str(caught.value) == (
        "A tied head uses the embedding's table, and this recipe has no embedding; choose the "
        "head linear or none."
    )


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        (
            {"embedding": "token(scale=large)"},
            "The embedding's scale is 'large'; give a number or sqrt_width.",
        ),
        (
            {"embedding": "token(types=-1)"},
            "The option types of token is -1; give a whole number from 0 on.",
        ),
        (
            {"embedding": "token(normed=1)"},
            "The option normed of token is 1; give true or false.",
        ),
        ({"head": "linear(bias=1)"}, "The option bias of linear is 1; give true or false."),
    ],
)
def test_an_impossible_end_is_refused(fields: dict[str, str], sentence: str) -> None:
    with pytest.raises(RecipeError) as caught:
        Transformer(depth=1, width=8, heads=2, **fields)
    assert str(caught.value) == sentence


def test_all_ends_are_tried_here() -> None:
    assert EMBEDDINGS.names() == ["none", "token"]
    assert HEADS.names() == ["linear", "masked", "none", "tied"]
