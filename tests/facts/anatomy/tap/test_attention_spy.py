"""Attention is seen where it is computed: the same kernel runs, and nothing is missing."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import leadline as ll
from leadline.anatomy import AttentionSpy, SeenAttention


class Model(nn.Module):
    """One attention, computed by whatever `how` does with queries, keys and values."""

    def __init__(self, how: Any, width: int = 8, heads: int = 2) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.how, self.heads = how, heads

    def forward(self, x: Tensor) -> Tensor:
        def split(y: Tensor) -> Tensor:
            return y.unflatten(-1, (self.heads, -1)).transpose(1, 2)

        z = self.norm(x)
        return self.how(split(self.query(z)), split(self.key(z)), split(self.value(z)))


def look(model: nn.Module, *inputs: Tensor, **given: Any) -> tuple[list[SeenAttention], Any]:
    found: list[SeenAttention] = []
    with torch.no_grad(), AttentionSpy(model, found.append, **given):
        output = model(*inputs)
    return found, output


def tokens(examples: int = 3, length: int = 5, width: int = 8) -> Tensor:
    return torch.randn(
        examples, length, width, generator=torch.Generator().manual_seed(0), dtype=torch.float32
    )


def scores(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])


def test_the_kernel_is_seen_with_its_queries_keys_and_scaling() -> None:
    model = Model(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True))
    (seen,), output = look(model, tokens())
    assert seen.route == "kernel"
    assert seen.causal
    assert seen.scaling == 0.5
    assert seen.query is not None and seen.query.shape == (3, 2, 5, 4)
    assert torch.equal(seen.output, output)


@pytest.mark.parametrize(
    "softmax",
    [F.softmax, torch.softmax, lambda x, dim: x.softmax(dim), lambda x, dim: nn.Softmax(dim)(x)],
)
@pytest.mark.parametrize(
    "product",
    [torch.matmul, lambda a, v: a @ v, lambda a, v: torch.einsum("bhij,bhjd->bhid", a, v)],
)
def test_weights_are_followed_from_the_softmax_to_the_values(softmax: Any, product: Any) -> None:
    kept: list[Tensor] = []

    def how(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        kept.append(softmax(scores(q, k), dim=-1))
        return product(F.dropout(kept[0], 0.5, training=False), v)

    (seen,), _ = look(Model(how), tokens())
    assert seen.route == "weights"
    assert seen.weights is not None and torch.equal(seen.weights, kept[0])
    assert seen.query is not None and seen.key is not None and seen.logits is not None
    assert torch.allclose(seen.logits, scores(seen.query, seen.key))


def test_a_softmax_that_multiplies_nothing_is_no_attention() -> None:
    found, _ = look(Model(lambda q, k, v: scores(q, k).softmax(-1).sum(-1)), tokens())
    assert found == []


def test_a_softmax_over_another_axis_is_no_attention() -> None:
    found, _ = look(Model(lambda q, k, v: scores(q, k).softmax(1) @ v), tokens())
    assert found == []


def test_the_soft_cap_is_the_number_behind_the_tanh() -> None:
    def how(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return (torch.tanh(scores(q, k) / 30.0) * 30.0).softmax(-1) @ v

    (seen,), _ = look(Model(how), tokens())
    assert seen.soft_cap == 30.0


def test_without_a_tanh_a_number_is_no_cap() -> None:
    (seen,), _ = look(Model(lambda q, k, v: (scores(q, k) * 2.0).softmax(-1) @ v), tokens())
    assert seen.soft_cap is None


def test_a_sink_is_the_column_that_is_dropped_before_the_product() -> None:
    def how(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        logits = scores(q, k)
        sink = torch.full_like(logits[..., :1], 0.3)
        return torch.cat([logits, sink], -1).softmax(-1)[..., :-1] @ v

    (seen,), _ = look(Model(how), tokens())
    assert seen.sink
    assert seen.weights is not None and seen.weights.shape[-1] == 5
    assert float(seen.weights.sum(-1).max()) < 1
    assert seen.logits is not None and seen.logits.shape == seen.weights.shape
    assert seen.query is not None


def test_without_a_sink_there_is_none() -> None:
    (seen,), _ = look(Model(lambda q, k, v: scores(q, k).softmax(-1) @ v), tokens())
    assert not seen.sink


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_multihead_attention_of_torch_is_opened(need_weights: bool, causal: bool) -> None:
    attention = nn.MultiheadAttention(8, 2, batch_first=True).eval()

    class Holder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = attention

        def forward(self, x: Tensor) -> Tensor:
            mask = torch.full((5, 5), float("-inf")).triu(1) if causal else None
            return self.attention(x, x, x, need_weights=need_weights, attn_mask=mask)[0]

    found, output = look(Holder(), tokens(), examples=lambda: 3)
    (seen,) = found
    assert seen.module == "attention"
    assert seen.heads == 2
    assert seen.query_source is not None and seen.key_source is not None
    with torch.no_grad():
        assert torch.allclose(output, Holder()(tokens()), atol=1e-6)


def test_products_with_heads_in_the_batch_are_shaped_by_the_number_of_examples() -> None:
    def how(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        flat = [x.flatten(0, 1) for x in (q, k, v)]
        return torch.bmm(torch.bmm(flat[0], flat[1].transpose(1, 2)).softmax(-1), flat[2])

    (seen,), _ = look(Model(how), tokens(), examples=lambda: 3)
    assert seen.weights is not None and seen.weights.shape == (3, 2, 5, 5)


def test_a_matrix_of_another_number_of_examples_is_not_handed_on() -> None:
    found, _ = look(
        Model(lambda q, k, v: scores(q, k).softmax(-1) @ v), tokens(), examples=lambda: 2
    )
    assert found == []


def test_looking_leaves_no_hooks_and_no_mode() -> None:
    model = Model(F.scaled_dot_product_attention)
    look(model, tokens())
    assert all(not m._forward_hooks and not m._forward_pre_hooks for m in model.modules())
    assert torch._C._len_torch_function_stack() == 0


def test_an_error_in_the_model_takes_the_hooks_away_too() -> None:
    def how(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        raise ValueError("broken")

    model = Model(how)
    with pytest.raises(ValueError, match="broken"):
        look(model, tokens())
    assert all(not m._forward_hooks and not m._forward_pre_hooks for m in model.modules())
    assert torch._C._len_torch_function_stack() == 0


def test_gradients_flow_as_without_the_spy() -> None:
    model = Model(lambda q, k, v: scores(q, k).softmax(-1) @ v)
    model(tokens()).square().sum().backward()
    plain = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    with AttentionSpy(model, lambda seen: None):
        output = model(tokens())
    output.square().sum().backward()
    seen = [p.grad for p in model.parameters() if p.grad is not None]
    assert len(seen) == len(plain) == 8
    assert all(torch.equal(a, b) for a, b in zip(plain, seen, strict=True))


def test_our_own_transformer_is_seen_like_any_other() -> None:
    model = ll.Transformer(depth=2, width=16, heads=2, vocabulary=20, context=16)
    ids = torch.randint(0, 20, (2, 7), generator=torch.Generator().manual_seed(1))
    found, output = look(model, ids)
    assert [seen.module for seen in found] != []
    assert len(found) == 2 and all(seen.causal for seen in found)
    with torch.no_grad():
        assert torch.equal(output, model(ids))


def test_two_softmaxes_before_their_products_are_both_followed() -> None:
    def how(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        one, two = scores(q, k).softmax(-1), scores(k, q).softmax(-1)
        return one @ v + two @ v

    found, _ = look(Model(how), tokens())
    assert [seen.route for seen in found] == ["weights", "weights"]
    first, second = found
    assert first.weights is not None and second.weights is not None
    assert torch.equal(first.query, second.key)  # type: ignore[arg-type]
    assert not torch.equal(first.weights, second.weights)


def test_a_model_that_never_uses_its_weights_does_not_make_us_keep_them() -> None:
    def how(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        for _ in range(40):
            torch.matmul(q, k.transpose(-1, -2))
        return v

    spy = AttentionSpy(Model(how), lambda seen: None)
    with torch.no_grad(), spy:
        spy._model(tokens())
        assert len(spy._mode._tracks) <= 16


def test_factors_on_the_way_are_multiplied() -> None:
    def how(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        logits = 3.0 * (q @ k.transpose(-1, -2)) / torch.tensor(4.0)
        logits *= 2
        return (logits + 1.0).softmax(-1) @ v

    (seen,), _ = look(Model(how), tokens())
    assert seen.scaling == pytest.approx(1.5)


def test_a_factor_of_its_own_for_every_head_is_no_scaling() -> None:
    def how(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        each = torch.tensor([1.0, 2.0])[:, None, None]
        return (q @ k.transpose(-1, -2) * each).softmax(-1) @ v

    (seen,), _ = look(Model(how), tokens())
    assert seen.scaling is None


def test_the_factor_of_baddbmm_is_its_alpha() -> None:
    def how(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (x.flatten(0, 1) for x in (q, k, v))
        bias = torch.zeros(len(q), 5, 5)
        logits = torch.baddbmm(bias, q, k.transpose(1, 2), beta=1.0, alpha=0.7)
        return torch.bmm(logits.softmax(-1), v)

    (seen,), _ = look(Model(how), tokens(), examples=lambda: 3)
    assert seen.scaling == pytest.approx(0.7)


def test_keyword_products_are_products() -> None:
    def how(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        logits = torch.matmul(input=q, other=k.transpose(-1, -2))
        return torch.matmul(input=logits.softmax(dim=-1), other=v)

    (seen,), _ = look(Model(how), tokens())
    assert seen.query is not None and seen.query.shape == (3, 2, 5, 4)


def test_an_einsum_is_brought_into_the_order_of_a_product() -> None:
    def how(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch.einsum("bhij,bjhd->bihd", scores(q, k).softmax(-1), v.transpose(1, 2))

    (seen,), output = look(Model(how), tokens())
    assert seen.weights is not None
    assert torch.allclose(seen.weights @ seen.value, seen.output, atol=1e-6)
    assert torch.equal(seen.output, output.transpose(1, 2))


def test_scores_that_were_cut_have_no_queries_any_more() -> None:
    def how(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return scores(q, k)[:, :1].softmax(-1) @ v[:, :1]

    (seen,), _ = look(Model(how), tokens())
    assert seen.query is None and seen.weights is not None


def test_a_mask_of_three_axes_is_one_for_all_examples() -> None:
    mask = torch.ones(1, 5, 5, dtype=torch.bool).tril()
    model = Model(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=mask))
    (seen,), _ = look(model, tokens())
    assert seen.mask is not None and seen.mask.shape == (1, 1, 5, 5)


@pytest.mark.parametrize(("examples", "ambiguous"), [(1, False), (2, True), (3, False)])
def test_as_many_examples_as_heads_could_be_taken_for_each_other(
    examples: int, ambiguous: bool
) -> None:
    model = Model(F.scaled_dot_product_attention)
    (seen,), _ = look(model, tokens(examples=examples))
    assert seen.ambiguous is ambiguous
    assert seen.query_source is not None
