"""Attention against a softmax written out head by head in float64."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from leadline.errors import RecipeError
from leadline.parts import Transformer
from leadline.parts.branches import ATTENTIONS, Run
from leadline.parts.branches.attention.multihead import MultiHead
from leadline.parts.masking import mask_of
from leadline.parts.place import Place
from tests.facts.parts.by_hand import attention, layer_norm, rms_norm, stir

WIDTH, HEADS, TOKENS = 12, 4, 5


def _branch(norm: Any = nn.LayerNorm, **options: Any) -> MultiHead:
    place = Place(width=WIDTH, heads=HEADS, depth=3, layer=1, norm=norm)
    branch: MultiHead = ATTENTIONS.build(
        {"name": "multihead", **options}, place=place, inside=lambda point, width: None
    )
    for _, weight in branch.weights():
        nn.init.normal_(weight, std=0.5, generator=torch.Generator().manual_seed(weight.numel()))
    stir(branch, by=0.2)
    return branch.double()


def _x(examples: int = 2) -> Tensor:
    generator = torch.Generator().manual_seed(3)
    return torch.randn(examples, TOKENS, WIDTH, generator=generator, dtype=torch.float64)


def _run(causal: bool, padding: Tensor | None = None) -> Run:
    mask, by_kernel = mask_of(
        padding, tokens=TOKENS, start=0, causal=causal, device=torch.device("cpu")
    )
    return Run(mask=mask, causal=by_kernel)


def _close(first: Tensor, second: Tensor) -> bool:
    return torch.allclose(first, second, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("groups", [4, 2, 1])
@torch.no_grad()
def test_attention_is_the_softmax_of_scaled_products(causal: bool, groups: int) -> None:
    branch = _branch(causal=causal, groups=groups)
    expected = attention(branch, _x(), heads=HEADS, groups=groups, causal=causal)
    assert _close(branch(_x(), _run(causal)), expected)
    assert branch.qkv.weight.shape == ((HEADS + 2 * groups) * 3, WIDTH)


@torch.no_grad()
def test_the_scale_is_one_over_the_root_of_the_head_width_unless_given() -> None:
    branch = _branch(scale=1.5)
    assert _close(branch(_x(), _run(True)), attention(branch, _x(), heads=HEADS, scale=1.5))
    branch.scale = None
    assert _close(branch(_x(), _run(True)), attention(branch, _x(), heads=HEADS, scale=1 / 3**0.5))


@torch.no_grad()
def test_heads_may_be_wider_than_their_share_of_the_width() -> None:
    branch = _branch(head_width=7, groups=2)
    assert branch.qkv.weight.shape == ((4 + 2 + 2) * 7, WIDTH)
    assert branch.output.weight.shape == (WIDTH, 28)
    assert _close(branch(_x(), _run(True)), attention(branch, _x(), heads=HEADS, groups=2))


@pytest.mark.parametrize(
    ("options", "biases"),
    [
        ({}, {"qkv.bias", "output.bias"}),
        ({"bias": False}, set()),
        ({"bias": True, "output_bias": False}, {"qkv.bias"}),
        ({"bias": False, "output_bias": True}, {"output.bias"}),
    ],
)
@torch.no_grad()
def test_biases_stand_where_they_are_asked_for(options: dict[str, bool], biases: set[str]) -> None:
    branch = _branch(**options)
    assert {n for n, _ in branch.named_parameters() if n.endswith("bias")} == biases
    assert _close(branch(_x(), _run(True)), attention(branch, _x(), heads=HEADS))


@pytest.mark.parametrize("groups", [4, 2])
@torch.no_grad()
def test_queries_and_keys_are_normed_over_each_head(groups: int) -> None:
    branch = _branch(qk_norm="head", groups=groups)
    assert branch.query_norm is not None and branch.key_norm is not None
    assert branch.query_norm.get_parameter("weight").shape == (3,)
    assert branch.key_norm.get_parameter("weight").shape == (3,)
    assert branch.value_norm is None
    norms = {"query": layer_norm(branch.query_norm), "key": layer_norm(branch.key_norm)}
    expected = attention(branch, _x(), heads=HEADS, groups=groups, **norms)
    assert _close(branch(_x(), _run(True)), expected)


@pytest.mark.parametrize("groups", [4, 2])
@torch.no_grad()
def test_queries_and_keys_are_normed_over_all_heads_together(groups: int) -> None:
    branch = _branch(_rms, qk_norm="width", groups=groups)
    assert branch.query_norm is not None and branch.key_norm is not None
    assert branch.query_norm.get_parameter("weight").shape == (12,)
    assert branch.key_norm.get_parameter("weight").shape == (3 * groups,)
    norms = {"query": rms_norm(branch.query_norm), "key": rms_norm(branch.key_norm)}
    expected = attention(branch, _x(), heads=HEADS, groups=groups, widely=True, **norms)
    assert _close(branch(_x(), _run(True)), expected)


def _rms(width: int) -> nn.Module:
    return nn.RMSNorm(width, eps=1e-6)


@pytest.mark.parametrize("causal", [True, False])
@torch.no_grad()
def test_padding_is_hidden_on_either_side(causal: bool) -> None:
    branch = _branch(causal=causal, groups=2)
    padding = torch.tensor([[1, 1, 1, 0, 0], [0, 0, 1, 1, 1]])
    expected = attention(branch, _x(), heads=HEADS, groups=2, causal=causal, hidden=padding == 0)
    assert _close(branch(_x(), _run(causal, padding)), expected)


@pytest.mark.parametrize("causal", [True, False])
@torch.no_grad()
def test_a_token_moves_what_may_see_it_and_nothing_else(causal: bool) -> None:
    branch = _branch(causal=causal)
    before = branch(_x(1), _run(causal))
    for changed in range(TOKENS):
        x = _x(1)
        x[0, changed] += 1
        moved = (branch(x, _run(causal)) - before).abs().amax(-1)[0] > 1e-9
        expected = [not causal or i >= changed for i in range(TOKENS)]
        assert moved.tolist() == expected


@torch.no_grad()
def test_a_causal_model_never_looks_ahead() -> None:
    model = Transformer(depth=3, width=16, heads=2, vocabulary=11, context=6, init="xavier")
    assert model.causal is True
    ids = torch.tensor([[1, 2, 3, 4, 5, 6]])
    before = model(ids)
    for changed in range(6):
        other = ids.clone()
        other[0, changed] = 9
        same = (model(other) == before).all(-1)[0]
        assert same[:changed].all()
        assert not same[changed:].any()


@pytest.mark.parametrize("share", [0.5, 0.2, 1, 0])
@torch.no_grad()
def test_the_value_residual_mixes_the_values_of_the_first_layer_in(share: float) -> None:
    branch = _branch(value_residual=share)
    plain = _branch()
    plain.load_state_dict(branch.state_dict())
    first = torch.randn(2, TOKENS, HEADS, 3, dtype=torch.float64)
    run = _run(True)
    run.shared["values"] = first
    got = branch(_x(), run)
    # The same by values made from the stream: v is linear, so shift it through the bias of v.
    own = (_x() @ branch.qkv.weight.T + branch.qkv.bias)[..., 24:].view(2, TOKENS, HEADS, 3)
    mixed = (1 - share) * own + share * first
    expected = _with_values(plain, mixed)
    assert _close(got, expected)
    assert _close(run.shared["values"], first)


def _with_values(branch: MultiHead, values: Tensor) -> Tensor:
    """Causal attention of `_x()` with other values, head by head."""
    q, k = ((_x() @ branch.qkv.weight.T + branch.qkv.bias)[..., i : i + 12] for i in (0, 12))
    out = torch.zeros(2, TOKENS, 12, dtype=torch.float64)
    for e, i, h in itertools.product(range(2), range(TOKENS), range(HEADS)):
        mine = slice(3 * h, 3 * h + 3)
        scores = (k[e, : i + 1, mine] @ q[e, i, mine]) / 3**0.5
        out[e, i, mine] = torch.softmax(scores, 0) @ values[e, : i + 1, h]
    return out @ branch.output.weight.T + branch.output.bias


def test_the_first_layer_leaves_its_values_for_the_others() -> None:
    branch = _branch(value_residual=0.5)
    plain = _branch()
    plain.load_state_dict(branch.state_dict())
    run = _run(True)
    assert torch.equal(branch(_x(), run), plain(_x(), _run(True)))
    own = (_x() @ branch.qkv.weight.T + branch.qkv.bias)[..., 24:].view(2, TOKENS, HEADS, 3)
    assert _close(run.shared["values"], own)


def test_a_learned_value_residual_starts_at_one_half_from_the_second_layer() -> None:
    attend = "multihead(value_residual=learned)"
    model = Transformer(depth=3, width=16, heads=2, attention=attend)
    shares = {n: p.item() for n, p in model.named_parameters() if n.endswith("share")}
    assert shares == {
        "blocks.1.attention.branch.share": 0.5,
        "blocks.2.attention.branch.share": 0.5,
    }
    fixed = Transformer(model.recipe.but(attention="multihead(value_residual=0.5)"))
    ids = torch.tensor([[3, 1, 4, 1, 5]])
    assert torch.allclose(model(ids), fixed(ids), atol=1e-7)
    assert not torch.allclose(model(ids), model.with_(attention="multihead")(ids), atol=1e-7)


def test_an_attention_names_the_rows_of_its_weights() -> None:
    branch = _branch(groups=2)
    named = dict(branch.weights())
    assert list(named) == ["query", "key", "value", "output"]
    stacked = torch.cat([named["query"], named["key"], named["value"]])
    assert torch.equal(stacked, branch.qkv.weight)
    assert [len(named[role]) for role in named] == [12, 6, 6, 12]
    assert named["output"] is branch.output.weight


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"groups": 3},
            "4 heads cannot share 3 groups of keys and values; choose a number of groups that "
            "divides the heads.",
        ),
        ({"groups": 0}, "The option groups of multihead is 0; give a whole number from 1 on."),
        ({"groups": -2}, "The option groups of multihead is -2; give a whole number from 1 on."),
        (
            {"head_width": 0},
            "The option head_width of multihead is 0; give a whole number from 1 on.",
        ),
        (
            {"head_width": 2.0},
            "The option head_width of multihead is 2.0; give a whole number from 1 on.",
        ),
        (
            {"qk_norm": "heads"},
            "qk_norm is 'heads'; choose head (over each head), width (over all heads together) or "
            "none.",
        ),
        ({"causal": 1}, "The option causal of multihead is 1; give true or false."),
        ({"bias": "no"}, "The option bias of multihead is 'no'; give true or false."),
        ({"output_bias": 0}, "The option output_bias of multihead is 0; give true or false."),
        ({"scale": "small"}, "The option scale of multihead is 'small'; give a number above 0."),
        (
            {"value_residual": "some"},
            "value_residual is 'some'; give the share of the first values, such as 0.5, or "
            "learned.",
        ),
        (
            {"value_residual": 1.5},
            "The option value_residual of multihead is 1.5; give a number from 0 to 1.",
        ),
    ],
)
def test_an_impossible_option_of_attention_is_refused(
    options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(RecipeError) as caught:
        _branch(**options)
    assert str(caught.value) == sentence


def test_no_attention_is_no_branch() -> None:
    model = Transformer(depth=2, width=8, heads=2, attention="none")
    assert [name for name, _ in model.blocks[0].named_children()] == ["mlp"]
    assert model.causal is None
    x = torch.tensor([[1, 2, 3]])
    alone = model(x[:, :1])  # tokens never meet
    assert torch.allclose(model(x)[:, 0], alone[:, 0], atol=1e-6)
